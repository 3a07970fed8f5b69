package cometmq.interop;

import com.google.gson.Gson;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;

/** JSON objects, one a line, on the process's standard output; any thread may print. */
final class Lines {
    private final Gson gson = new Gson();
    private final PrintStream out = new PrintStream(
        new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);

    void print(Map<String, ?> line) {
        String text = gson.toJson(line);
        synchronized (out) {
            out.println(text);
            out.flush();
        }
    }

    void event(String kind, String of, Map<String, ?> content) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("event", kind);
        line.put("of", of);
        line.putAll(content);
        print(line);
    }
}
