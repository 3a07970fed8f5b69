package cometmq.interop;

import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Commands of the admin client.
 *
 * <p>Its results are held in `var`s: their classes moved to other packages between versions.
 */
final class Admins {
    private static final int READ_AND_WRITE = 6;
    private static final int ROUTE_ATTEMPTS_MAX = 200;
    private static final int ROUTE_INTERVAL_MS = 50;

    private final Named<DefaultMQAdminExt> admins = new Named<>();

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("admin.start", this::start);
        operations.put("admin.shutdown", this::shutdown);
        operations.put("admin.createTopic", this::createTopic);
        operations.put("admin.createGroup", this::createGroup);
        operations.put("admin.route", command -> route(admins.of(command), command.text("topic")));
        operations.put("admin.progress", this::progress);
        operations.put("admin.members", this::members);
        operations.put("admin.resetOffset", this::resetOffset);
        operations.put("admin.resetOffsetOffline", this::resetOffsetOffline);
    }

    private Object start(Command command) throws Exception {
        DefaultMQAdminExt admin = Settings.apply(command, new DefaultMQAdminExt());
        admin.start();
        admins.put(command.name(), admin);
        return null;
    }

    private Object shutdown(Command command) {
        admins.remove(command).shutdown();
        return null;
    }

    /** Returns when the name server tells clients about it. */
    private Object createTopic(Command command) throws Exception {
        DefaultMQAdminExt admin = admins.of(command);
        String topic = command.text("topic");
        String broker = command.text("broker");
        int queues = (int) command.number("queues");
        admin.createAndUpdateTopicConfig(
            broker, new TopicConfig(topic, queues, queues, READ_AND_WRITE));
        for (int i = 0; i < ROUTE_ATTEMPTS_MAX; i++) {
            if (hasRoute(admin, topic, broker)) {
                return null;
            }
            Thread.sleep(ROUTE_INTERVAL_MS);
        }
        throw new IllegalStateException("no route to " + topic + " at " + broker);
    }

    /** By reflection for the same reason: the class of the group's settings has to be named. */
    private Object createGroup(Command command) throws Exception {
        DefaultMQAdminExt admin = admins.of(command);
        for (Method method : admin.getClass().getMethods()) {
            if (method.getName().equals("createAndUpdateSubscriptionGroupConfig")) {
                Object group = method.getParameterTypes()[1].getConstructor().newInstance();
                for (var setting : command.object("settings").entrySet()) {
                    Settings.set(group, setting.getKey(), setting.getValue());
                }
                method.invoke(admin, command.text("broker"), group);
                return null;
            }
        }
        throw new IllegalStateException("this version makes groups in another way");
    }

    private static boolean hasRoute(DefaultMQAdminExt admin, String topic, String address)
        throws Exception {
        try {
            for (var broker : admin.examineTopicRouteInfo(topic).getBrokerDatas()) {
                if (broker.getBrokerAddrs().containsValue(address)) {
                    return true;
                }
            }
        } catch (MQClientException | RemotingException notYet) {
            // It does not know the topic, or is away and the next try goes to another one.
        }
        return false;
    }

    private static Object route(DefaultMQAdminExt admin, String topic) throws Exception {
        List<Object> queues = new ArrayList<>();
        for (var data : admin.examineTopicRouteInfo(topic).getQueueDatas()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("brokerName", data.getBrokerName());
            line.put("readQueueNums", data.getReadQueueNums());
            line.put("writeQueueNums", data.getWriteQueueNums());
            line.put("perm", data.getPerm());
            queues.add(line);
        }
        return queues;
    }

    private Object progress(Command command) throws Exception {
        var stats =
            admins.of(command).examineConsumeStats(command.text("group"), command.text("topic"));
        List<Object> lines = new ArrayList<>();
        for (var entry : new TreeMap<>(stats.getOffsetTable()).entrySet()) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("queue", Queues.json(entry.getKey()));
            line.put("stored", entry.getValue().getBrokerOffset());
            line.put("consumed", entry.getValue().getConsumerOffset());
            lines.add(line);
        }
        return lines;
    }

    private Object members(Command command) throws Exception {
        List<String> members = new ArrayList<>();
        for (var connection : admins.of(command)
            .examineConsumerConnectionInfo(command.text("group")).getConnectionSet()) {
            members.add(connection.getClientId());
        }
        return members;
    }

    private Object resetOffset(Command command) throws Exception {
        Map<MessageQueue, Long> offsets = admins.of(command).resetOffsetByTimestamp(
            command.text("topic"), command.text("group"), command.number("timestamp"), true);
        List<Object> lines = new ArrayList<>();
        for (Map.Entry<MessageQueue, Long> entry : new TreeMap<>(offsets).entrySet()) {
            lines.add(reset(entry.getKey(), entry.getValue()));
        }
        return lines;
    }

    /** The way that 4.x tools take when no consumer of the group is there. */
    private Object resetOffsetOffline(Command command) throws Exception {
        List<Object> lines = new ArrayList<>();
        for (var stats : admins.of(command).resetOffsetByTimestampOld(
            command.text("group"), command.text("topic"), command.number("timestamp"), true)) {
            lines.add(reset(new MessageQueue(command.text("topic"), stats.getBrokerName(),
                (int) stats.getQueueId()), stats.getRollbackOffset()));
        }
        return lines;
    }

    private static Map<String, Object> reset(MessageQueue queue, long offset) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("queue", Queues.json(queue));
        line.put("offset", offset);
        return line;
    }
}
