package cometmq.interop;

import com.google.gson.Gson;
import com.google.gson.JsonParser;
import com.google.gson.JsonPrimitive;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.stream.Collectors;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMachineRoomNearby;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByConfig;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueByMachineRoom;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueConsistentHash;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Answers which queues each member of a group gets by each strategy, and which queue a key gets.
 *
 * <p>One JSON case per line on standard input, one answer per line on standard output. A queue is
 * the position it has in its case, so an answer also tells how Java sorts.
 */
public final class Allocations {
    private static final String GROUP = "group";

    /** Either a group and its queues, or a key and how many queues there are. */
    private static final class Case {
        String topic;
        List<String> brokers;
        List<Integer> ids;
        List<String> members;
        List<String> rooms;
        int nodes;
        JsonPrimitive key;
        int count;
    }

    private Allocations() {
    }

    public static void main(String[] args) throws IOException {
        Lines lines = new Lines();
        System.setOut(System.err); // No library may write between the lines.
        BufferedReader in =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            Case given = new Gson().fromJson(JsonParser.parseString(line), Case.class);
            lines.print(given.key == null ? allocate(given) : Map.of("queue", select(given)));
        }
    }

    private static int select(Case given) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int id = 0; id < given.count; id++) {
            queues.add(new MessageQueue("topic", "broker", id));
        }
        Object key = given.key.isString() ? given.key.getAsString() : number(given.key.getAsLong());
        return new SelectMessageQueueByHash().select(queues, null, key).getQueueId();
    }

    private static Object number(long value) {
        if (value == (int) value) {
            return (int) value;
        }
        return value;
    }

    private static Map<String, List<List<Integer>>> allocate(Case given) {
        List<MessageQueue> queues = new ArrayList<>();
        for (int i = 0; i < given.ids.size(); i++) {
            queues.add(new MessageQueue(given.topic, given.brokers.get(i), given.ids.get(i)));
        }
        List<MessageQueue> sorted = new ArrayList<>(queues);
        List<String> members = new ArrayList<>(given.members);
        Collections.sort(sorted);
        Collections.sort(members);
        Map<String, List<List<Integer>>> answers = new LinkedHashMap<>();
        for (AllocateMessageQueueStrategy strategy : strategies(given, queues)) {
            answers.put(strategy.getName(), new TreeSet<>(members).stream()
                .map(member -> strategy.allocate(GROUP, member, sorted, members))
                .map(got -> got.stream().map(queues::indexOf).collect(Collectors.toList()))
                .collect(Collectors.toList()));
        }
        return answers;
    }

    private static List<AllocateMessageQueueStrategy> strategies(
        Case given, List<MessageQueue> queues) {
        AllocateMessageQueueByConfig fixed = new AllocateMessageQueueByConfig();
        fixed.setMessageQueueList(queues.subList(0, 1));
        AllocateMessageQueueByMachineRoom rooms = new AllocateMessageQueueByMachineRoom();
        rooms.setConsumeridcs(new HashSet<>(given.rooms));
        return List.of(
            new AllocateMessageQueueAveragely(),
            new AllocateMessageQueueAveragelyByCircle(),
            fixed,
            rooms,
            new AllocateMessageQueueConsistentHash(given.nodes),
            new AllocateMachineRoomNearby(new AllocateMessageQueueAveragely(), new Rooms()));
    }

    /** What stands before the @; all names without one are in the same room. */
    private static final class Rooms implements AllocateMachineRoomNearby.MachineRoomResolver {
        @Override
        public String brokerDeployIn(MessageQueue queue) {
            return consumerDeployIn(queue.getBrokerName());
        }

        @Override
        public String consumerDeployIn(String name) {
            int at = name.indexOf('@');
            return at > 0 ? name.substring(0, at) : "elsewhere";
        }
    }
}
