package cometmq.interop;

import com.google.gson.JsonParser;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Holds any number of named producers, consumers and admin clients for a Python test.
 *
 * <p>One JSON command per line on standard input, as in {@code {"id":1,"op":"push.start",...}}. Each
 * runs on a thread of its own and is answered by a line with its id; what consumers receive comes
 * between the answers as lines with "event". The process ends when standard input does.
 */
public final class Client {
    private final Lines lines = new Lines();
    private final Map<String, Operation> operations = new HashMap<>();
    private final ExecutorService threads = Executors.newCachedThreadPool();

    /** What a command does; the result becomes its answer. */
    interface Operation {
        Object run(Command command) throws Exception;
    }

    private Client() {
        new Producers(lines).addTo(operations);
        new PushConsumers(lines).addTo(operations);
        new PullConsumers().addTo(operations);
        new LitePullConsumers().addTo(operations);
        new Admins().addTo(operations);
        new Transactions(lines).addTo(operations);
        new Requests().addTo(operations);
    }

    public static void main(String[] args) throws IOException {
        System.setOut(System.err); // No library may write between the lines.
        Client client = new Client();
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Command command = new Command(JsonParser.parseString(line).getAsJsonObject());
            client.threads.execute(() -> client.run(command));
        }
        // The test is over; an orderly shutdown of every client would take seconds and tell nothing.
        Runtime.getRuntime().halt(0);
    }

    private void run(Command command) {
        Map<String, Object> answer = new HashMap<>();
        answer.put("id", command.number("id"));
        try {
            Operation operation = operations.get(command.text("op"));
            if (operation == null) {
                throw new IllegalArgumentException("unknown op " + command.text("op"));
            }
            answer.put("result", operation.run(command));
        } catch (Exception | LinkageError error) {
            answer.put("error", Failure.describe(error));
        }
        lines.print(answer);
    }
}
