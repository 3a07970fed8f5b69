package cometmq.interop;

import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Unmodified mqadmin commands, one after another in one JVM: a JSON object per line in and out.
 *
 * <pre>
 * {"do": "commands"}                                      every command mqadmin has
 * {"do": "run", "args": [...], "limitMs": N, "until": R}  one command line, see AdminRun
 * {"do": "produce" | "consume" | "leave", ...}            clients to look at, see AdminClients
 * </pre>
 *
 * <p>A request that fails is answered with {"failed": stack trace}. The end of stdin ends the JVM.
 */
public final class Admin {
    private static final long LEAVE_LIMIT_MS = 10_000;

    private final JsonLines out;
    private final AdminClients clients = new AdminClients();

    private Admin(JsonLines out) {
        this.out = out;
    }

    public static void main(String[] args) throws IOException {
        Admin admin = new Admin(new JsonLines());
        AdminRun.takeStandardStreams();
        BufferedReader lines =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            admin.out.printNow(admin.answer(JSON.parseObject(line)));
        }
        Runtime.getRuntime().halt(0);
    }

    private Map<String, Object> answer(JSONObject request) {
        try {
            switch (request.getString("do")) {
                case "commands":
                    return Map.of("commands", Tool.list());
                case "run":
                    return run(request);
                case "produce":
                    return Map.of("sent", clients.produce(request));
                case "consume":
                    return clients.consume(request);
                case "leave":
                    return new AdminRun(() -> clients.leave(request.getString("group")))
                        .finish(LEAVE_LIMIT_MS, null);
                default:
                    throw new IllegalArgumentException("unknown request " + request);
            }
        } catch (Exception error) {
            return Map.of("failed", AdminRun.trace(error));
        }
    }

    private static Map<String, Object> run(JSONObject request) throws InterruptedException {
        String[] args = request.getList("args", String.class).toArray(new String[0]);
        AdminRun running = new AdminRun(() -> Tool.runFresh(args));
        return running.finish(request.getLongValue("limitMs"), request.getString("until"));
    }

    /** A subclass, since mqadmin shows the list of its commands to nobody else. */
    private static final class Tool extends MQAdminStartup {
        static List<Map<String, Object>> list() {
            SUB_COMMANDS.clear();
            initCommand();
            List<Map<String, Object>> known = new ArrayList<>();
            for (SubCommand command : SUB_COMMANDS) {
                known.add(Map.of(
                    "name", command.commandName(), "description", command.commandDesc()));
            }
            return known;
        }

        static void runFresh(String[] args) {
            // main0 adds every command again; the first found would have the state of earlier runs.
            SUB_COMMANDS.clear();
            main0(args, null);
        }
    }
}
