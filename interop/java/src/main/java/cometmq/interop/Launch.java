package cometmq.interop;

import java.io.IOException;
import java.lang.reflect.Method;
import java.util.Arrays;

/**
 * Runs another class's main and ends this process when standard input ends.
 *
 * <p>The test process holds the other end of that pipe, so a broker never outlives a test run that
 * was killed before it could clean up.
 */
public final class Launch {
    private static final int ORPHANED = 3;

    private Launch() {
    }

    public static void main(String[] args) throws ReflectiveOperationException {
        Thread watch = new Thread(Launch::endWithStandardInput, "parent-watch");
        watch.setDaemon(true);
        watch.start();
        Method target = Class.forName(args[0]).getMethod("main", String[].class);
        target.invoke(null, (Object) Arrays.copyOfRange(args, 1, args.length));
    }

    private static void endWithStandardInput() {
        try {
            while (System.in.read() >= 0) {
                continue;
            }
        } catch (IOException closed) {
            // A broken pipe says the same as its end: the parent is gone.
        }
        Runtime.getRuntime().halt(ORPHANED);
    }
}
