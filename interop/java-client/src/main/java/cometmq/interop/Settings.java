package cometmq.interop;

import com.google.gson.JsonElement;
import java.lang.reflect.Method;
import java.util.Map;
import org.apache.rocketmq.client.ClientConfig;

/**
 * Sets properties of a client, a message or a group by their names.
 *
 * <p>By reflection, since the enums among their types moved to another package between versions.
 */
final class Settings {
    private Settings() {
    }

    /** What every client of a command gets; an own instance name keeps group members apart. */
    static <T extends ClientConfig> T apply(Command command, T client) throws Exception {
        client.setNamesrvAddr(command.text("namesrv"));
        client.setInstanceName(command.name() + "#" + ProcessHandle.current().pid());
        for (Map.Entry<String, JsonElement> option : command.object("options").entrySet()) {
            set(client, option.getKey(), option.getValue());
        }
        return client;
    }

    static void set(Object client, String name, JsonElement value) throws Exception {
        String setter = "set" + Character.toUpperCase(name.charAt(0)) + name.substring(1);
        for (Method method : client.getClass().getMethods()) {
            if (method.getName().equals(setter) && method.getParameterCount() == 1) {
                method.invoke(client, as(method.getParameterTypes()[0], value));
                return;
            }
        }
        throw new IllegalArgumentException(client.getClass().getSimpleName() + " has no " + setter);
    }

    private static Object as(Class<?> type, JsonElement value) throws Exception {
        if (type == int.class) {
            return value.getAsInt();
        }
        if (type == long.class) {
            return value.getAsLong();
        }
        if (type == boolean.class) {
            return value.getAsBoolean();
        }
        if (type.isEnum()) {
            for (Object constant : type.getEnumConstants()) {
                if (((Enum<?>) constant).name().equals(value.getAsString())) {
                    return constant;
                }
            }
            throw new IllegalArgumentException(type.getSimpleName() + " has no " + value);
        }
        if (type.isInterface()) { // Such as a strategy, by the name of the class that has it.
            return Class.forName(value.getAsString()).getConstructor().newInstance();
        }
        return value.getAsString();
    }
}
