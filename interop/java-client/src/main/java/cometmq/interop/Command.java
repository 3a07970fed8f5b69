package cometmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.common.message.MessageQueue;

/** One command's arguments. */
final class Command {
    private final JsonObject arguments;

    Command(JsonObject arguments) {
        this.arguments = arguments;
    }

    boolean has(String argument) {
        return arguments.has(argument);
    }

    String name() {
        return text("name");
    }

    String text(String argument) {
        return required(argument).getAsString();
    }

    long number(String argument) {
        return required(argument).getAsLong();
    }

    boolean flag(String argument) {
        return required(argument).getAsBoolean();
    }

    JsonObject object(String argument) {
        return required(argument).getAsJsonObject();
    }

    List<JsonObject> objects(String argument) {
        List<JsonObject> found = new ArrayList<>();
        for (JsonElement element : required(argument).getAsJsonArray()) {
            found.add(element.getAsJsonObject());
        }
        return found;
    }

    MessageQueue queue() {
        return Queues.from(object("queue"));
    }

    private JsonElement required(String argument) {
        JsonElement found = arguments.get(argument);
        if (found == null) {
            throw new IllegalArgumentException("missing argument " + argument);
        }
        return found;
    }
}
