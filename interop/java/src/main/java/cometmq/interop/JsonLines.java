package cometmq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONWriter;
import java.io.BufferedOutputStream;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.Map;

/**
 * One JSON object per line on the process's standard output.
 *
 * <p>It owns the file descriptor; Peer points System.out elsewhere, so no library can write between
 * the lines.
 */
final class JsonLines {
    private static final int BUFFER_BYTES = 1 << 18;

    private final OutputStream out =
        new BufferedOutputStream(new FileOutputStream(FileDescriptor.out), BUFFER_BYTES);

    synchronized void print(Map<String, ?> line) throws IOException {
        out.write(JSON.toJSONBytes(line, JSONWriter.Feature.WriteMapNullValue));
        out.write('\n');
    }

    synchronized void printNow(Map<String, ?> line) throws IOException {
        print(line);
        flush();
    }

    synchronized void flush() throws IOException {
        out.flush();
    }
}
