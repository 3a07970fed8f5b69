package cometmq.interop;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** Clients of one sort by the name a test gave them. */
final class Named<T> {
    private final Map<String, T> all = new ConcurrentHashMap<>();

    void put(String name, T client) {
        all.put(name, client);
    }

    T of(Command command) {
        T found = all.get(command.name());
        if (found == null) {
            throw new IllegalArgumentException("nothing is named " + command.name());
        }
        return found;
    }

    T remove(Command command) {
        T found = of(command);
        all.remove(command.name());
        return found;
    }
}
