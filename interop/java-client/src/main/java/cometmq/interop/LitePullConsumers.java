package cometmq.interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands of lite pull consumers, which subscribe or are assigned queues, and are polled. */
@SuppressWarnings("deprecation") // commitSync is the name that both versions know.
final class LitePullConsumers {
    private final Named<DefaultLitePullConsumer> consumers = new Named<>();

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("lite.start", this::start);
        operations.put("lite.shutdown", this::shutdown);
        operations.put("lite.subscribe", this::subscribe);
        operations.put("lite.queues", command ->
            Queues.json(consumers.of(command).fetchMessageQueues(command.text("topic"))));
        operations.put("lite.assign", this::assign);
        operations.put("lite.seek", this::seek);
        operations.put("lite.poll", command ->
            PullConsumers.json(consumers.of(command).poll(command.number("timeoutMs"))));
        operations.put("lite.commit", this::commit);
        operations.put("lite.committed", command ->
            consumers.of(command).committed(command.queue()));
    }

    private Object start(Command command) throws Exception {
        DefaultLitePullConsumer consumer =
            Settings.apply(command, new DefaultLitePullConsumer(command.text("group")));
        consumer.start();
        consumers.put(command.name(), consumer);
        return null;
    }

    private Object shutdown(Command command) {
        consumers.remove(command).shutdown();
        return null;
    }

    private Object subscribe(Command command) throws Exception {
        consumers.of(command).subscribe(command.text("topic"), command.text("expression"));
        return null;
    }

    private Object assign(Command command) {
        List<MessageQueue> queues = new ArrayList<>();
        for (JsonObject queue : command.objects("queues")) {
            queues.add(Queues.from(queue));
        }
        consumers.of(command).assign(queues);
        return null;
    }

    private Object seek(Command command) throws Exception {
        consumers.of(command).seek(command.queue(), command.number("offset"));
        return null;
    }

    private Object commit(Command command) {
        consumers.of(command).commitSync();
        return null;
    }
}
