package cometmq.interop;

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.regex.Pattern;
import org.apache.rocketmq.common.ServiceThread;

/**
 * One command, or what else takes its time, in a thread of its own with what it prints.
 *
 * <p>Some commands go on for ever: with {@code until} a command is interrupted once its output has
 * that pattern; one that is still there at its limit is reported with the place where it stands.
 */
final class AdminRun {
    private static final long POLL_MS = 20;
    private static final long INTERRUPT_MS = 10_000;
    private static final ByteArrayOutputStream PRINTED = new ByteArrayOutputStream();

    private final long started = System.nanoTime();
    private final Thread thread;

    AdminRun(Runnable command) {
        PRINTED.reset();
        thread = new Thread(command, "mqadmin");
        // Commands start clients whose threads would otherwise keep nobody but themselves busy.
        thread.setDaemon(true);
        thread.start();
    }

    /** From now on whatever this process prints belongs to the command that runs. */
    static void takeStandardStreams() {
        PrintStream printed = new PrintStream(PRINTED, true, StandardCharsets.UTF_8);
        System.setOut(printed);
        System.setErr(printed);
    }

    static String trace(Throwable error) {
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text, true));
        return text.toString();
    }

    Map<String, Object> finish(long limitMs, String until) throws InterruptedException {
        Pattern wanted = until == null ? null : Pattern.compile(until);
        boolean seen = false;
        while (thread.isAlive() && !seen && elapsedMs() < limitMs) {
            step();
            seen = wanted != null && wanted.matcher(printed()).find();
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("output", printed());
        answer.put("hung", thread.isAlive() && !seen ? stack() : null);
        answer.put("elapsedMs", elapsedMs());
        thread.interrupt();
        for (long end = elapsedMs() + INTERRUPT_MS; thread.isAlive() && elapsedMs() < end; ) {
            step();
        }
        return answer;
    }

    private void step() throws InterruptedException {
        thread.join(POLL_MS);
        wakeClientThatShutsDown();
    }

    /**
     * A client's shutdown waits up to three seconds for its own event thread, which sleeps; woken, it
     * sees that it is to end. Those of other clients only go to sleep again.
     */
    private void wakeClientThatShutsDown() {
        for (StackTraceElement frame : thread.getStackTrace()) {
            if (frame.getClassName().equals(ServiceThread.class.getName())
                && frame.getMethodName().equals("shutdown")) {
                Thread.getAllStackTraces().keySet().stream()
                    .filter(each -> each.getName().equals("NettyEventExecutor"))
                    .forEach(Thread::interrupt);
                return;
            }
        }
    }

    private String stack() {
        StringBuilder frames = new StringBuilder();
        for (StackTraceElement frame : thread.getStackTrace()) {
            frames.append(frame).append('\n');
        }
        return frames.toString();
    }

    private long elapsedMs() {
        return (System.nanoTime() - started) / 1_000_000;
    }

    private static String printed() {
        return PRINTED.toString(StandardCharsets.UTF_8);
    }
}
