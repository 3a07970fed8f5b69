package cometmq.interop;

import java.util.Arrays;

/**
 * Command line peer for the Python tests: JSON lines on stdout, one line on stderr on failure.
 *
 * <pre>
 * dump    --namesrv A --topic T [--topic T2 ...]                 every message of every queue
 * produce --namesrv A --topic T --count N --seed S [--threads 4] send, report what is acknowledged
 * query   --namesrv A --topic T       (stdin: key)               messages by key
 * view    --namesrv A                 (stdin: topic offsetMsgId) messages by offset id
 * </pre>
 */
public final class Peer {
    private Peer() {
    }

    public static void main(String[] args) {
        JsonLines out = new JsonLines();
        System.setOut(System.err);
        int status = 0;
        try {
            run(args, out);
            out.flush();
        } catch (Exception error) {
            System.err.println(oneLine(error));
            status = 1;
        }
        // A client's orderly shutdown waits for idle threads for seconds and would change no result.
        Runtime.getRuntime().halt(status);
    }

    private static void run(String[] args, JsonLines out) throws Exception {
        if (args.length == 0) {
            throw new IllegalArgumentException("expected dump, produce, query or view");
        }
        Flags flags = new Flags(Arrays.asList(args).subList(1, args.length));
        switch (args[0]) {
            case "dump":
                new Reader(flags, out).dump(flags.all("topic"));
                break;
            case "produce":
                new Producer(flags, out).produce();
                break;
            case "query":
                new Reader(flags, out).query(flags.one("topic"));
                break;
            case "view":
                new Reader(flags, out).view();
                break;
            default:
                throw new IllegalArgumentException("unknown subcommand " + args[0]);
        }
    }

    static String oneLine(Throwable error) {
        return error.toString().replaceAll("\\s+", " ");
    }
}
