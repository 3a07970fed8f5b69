package cometmq.interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** Command line flags of the form {@code --name value}; a name may come more than once. */
final class Flags {
    private final Map<String, List<String>> values = new LinkedHashMap<>();

    Flags(List<String> args) {
        for (int i = 0; i < args.size(); i += 2) {
            String flag = args.get(i);
            if (!flag.startsWith("--") || i + 1 == args.size()) {
                throw new IllegalArgumentException("expected --name value, got " + flag);
            }
            values.computeIfAbsent(flag.substring(2), name -> new ArrayList<>()).add(args.get(i + 1));
        }
    }

    List<String> all(String name) {
        List<String> found = values.getOrDefault(name, Collections.emptyList());
        if (found.isEmpty()) {
            throw new IllegalArgumentException("missing --" + name);
        }
        return found;
    }

    String one(String name) {
        List<String> found = all(name);
        return found.get(found.size() - 1);
    }

    long number(String name) {
        return Long.parseLong(one(name));
    }

    int number(String name, int absent) {
        return values.containsKey(name) ? Integer.parseInt(one(name)) : absent;
    }
}
