package cometmq.interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.common.message.MessageQueue;

/** Message queues to and from their JSON form. */
final class Queues {
    private Queues() {
    }

    static MessageQueue from(JsonObject queue) {
        return new MessageQueue(queue.get("topic").getAsString(),
            queue.get("brokerName").getAsString(), queue.get("queueId").getAsInt());
    }

    static Map<String, Object> json(MessageQueue queue) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", queue.getTopic());
        line.put("brokerName", queue.getBrokerName());
        line.put("queueId", queue.getQueueId());
        return line;
    }

    static List<Map<String, Object>> json(Collection<MessageQueue> queues) {
        List<Map<String, Object>> lines = new ArrayList<>();
        for (MessageQueue queue : new TreeSet<>(queues)) {
            lines.add(json(queue));
        }
        return lines;
    }
}
