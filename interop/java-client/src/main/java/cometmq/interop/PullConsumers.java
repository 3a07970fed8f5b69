package cometmq.interop;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands of the classic pull consumer, which is also the one that answers about queues. */
@SuppressWarnings("deprecation") // It is deprecated, but programs that use it are what we serve.
final class PullConsumers {
    private final Named<DefaultMQPullConsumer> consumers = new Named<>();

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("pull.start", this::start);
        operations.put("pull.shutdown", this::shutdown);
        operations.put("pull.pull", this::pull);
        operations.put("pull.queues", command ->
            Queues.json(consumers.of(command).fetchSubscribeMessageQueues(command.text("topic"))));
        operations.put("pull.bounds", this::bounds);
        operations.put("pull.searchOffset", command ->
            consumers.of(command).searchOffset(command.queue(), command.number("timestamp")));
        operations.put("pull.commit", this::commit);
        operations.put("pull.committed", command ->
            consumers.of(command).fetchConsumeOffset(command.queue(), true));
        operations.put("pull.query", this::query);
        operations.put("pull.view", command -> MessageJson.full(
            consumers.of(command).viewMessage(command.text("topic"), command.text("msgId"))));
    }

    private Object start(Command command) throws Exception {
        DefaultMQPullConsumer consumer =
            Settings.apply(command, new DefaultMQPullConsumer(command.text("group")));
        consumer.start();
        consumers.put(command.name(), consumer);
        return null;
    }

    private Object shutdown(Command command) {
        consumers.remove(command).shutdown();
        return null;
    }

    private Object pull(Command command) throws Exception {
        DefaultMQPullConsumer consumer = consumers.of(command);
        int max = (int) command.number("max");
        String expression = command.text("expression");
        long offset = command.number("offset");
        PullResult pulled = command.flag("block")
            ? consumer.pullBlockIfNotFound(command.queue(), expression, offset, max)
            : consumer.pull(command.queue(), command.flag("sql")
                ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression),
                offset, max);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", pulled.getPullStatus().name());
        line.put("nextBeginOffset", pulled.getNextBeginOffset());
        line.put("minOffset", pulled.getMinOffset());
        line.put("maxOffset", pulled.getMaxOffset());
        line.put("messages", json(pulled.getMsgFoundList()));
        return line;
    }

    private Object bounds(Command command) throws Exception {
        DefaultMQPullConsumer consumer = consumers.of(command);
        List<Object> bounds = new ArrayList<>();
        for (MessageQueue queue
            : new TreeSet<>(consumer.fetchSubscribeMessageQueues(command.text("topic")))) {
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("queue", Queues.json(queue));
            line.put("min", consumer.minOffset(queue));
            line.put("max", consumer.maxOffset(queue));
            line.put("earliestMs", consumer.earliestMsgStoreTime(queue));
            bounds.add(line);
        }
        return bounds;
    }

    private Object commit(Command command) throws Exception {
        DefaultMQPullConsumer consumer = consumers.of(command);
        MessageQueue queue = command.queue();
        consumer.updateConsumeOffset(queue, command.number("offset"));
        consumer.getOffsetStore().persistAll(Collections.singleton(queue));
        return null;
    }

    private Object query(Command command) throws Exception {
        return json(consumers.of(command).queryMessage(command.text("topic"), command.text("key"),
            (int) command.number("max"), command.number("beginMs"), command.number("endMs"))
            .getMessageList());
    }

    static List<Map<String, Object>> json(List<MessageExt> messages) {
        List<Map<String, Object>> lines = new ArrayList<>();
        for (MessageExt message : messages == null ? List.<MessageExt>of() : messages) {
            lines.add(MessageJson.full(message));
        }
        return lines;
    }
}
