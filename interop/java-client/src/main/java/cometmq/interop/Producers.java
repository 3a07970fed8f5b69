package cometmq.interop;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/** Commands that send: one by one, without waiting, without an answer, as a batch, as a stream. */
final class Producers {
    private static final int CALLBACK_TIMEOUT_S = 30;

    private final Lines lines;
    private final Named<DefaultMQProducer> producers = new Named<>();
    private final Named<Stream> streams = new Named<>();

    Producers(Lines lines) {
        this.lines = lines;
    }

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("producer.start", this::start);
        operations.put("producer.shutdown", this::shutdown);
        operations.put("producer.send", this::send);
        operations.put("producer.sendAsync", this::sendAsync);
        operations.put("producer.sendOneway", this::sendOneway);
        operations.put("producer.sendBatch", this::sendBatch);
        operations.put("producer.recall", command -> Recalls.recall(
            producers.of(command), command.text("topic"), command.text("handle")));
        operations.put("stream.start", this::startStream);
        operations.put("stream.stop", command -> streams.remove(command).finish());
    }

    private Object start(Command command) throws Exception {
        DefaultMQProducer producer =
            Settings.apply(command, new DefaultMQProducer(
                command.text("group"), command.flag("traced"), null));
        producer.start();
        producers.put(command.name(), producer);
        return null;
    }

    private Object shutdown(Command command) {
        producers.remove(command).shutdown();
        return null;
    }

    private Object send(Command command) throws Exception {
        DefaultMQProducer producer = producers.of(command);
        List<Object> results = new ArrayList<>();
        for (JsonObject wanted : command.objects("messages")) {
            results.add(json(sent(producer, wanted)));
        }
        return results;
    }

    private static SendResult sent(DefaultMQProducer producer, JsonObject wanted)
        throws Exception {
        Message message = message(wanted);
        if (wanted.has("orderKey")) {
            return producer.send(
                message, new SelectMessageQueueByHash(), wanted.get("orderKey").getAsString());
        }
        MessageQueue queue = queue(wanted);
        return queue == null ? producer.send(message) : producer.send(message, queue);
    }

    private Object sendAsync(Command command) throws Exception {
        DefaultMQProducer producer = producers.of(command);
        List<CompletableFuture<SendResult>> sent = new ArrayList<>();
        for (JsonObject wanted : command.objects("messages")) {
            CompletableFuture<SendResult> result = new CompletableFuture<>();
            producer.send(message(wanted), completing(result));
            sent.add(result);
        }
        List<Object> results = new ArrayList<>();
        for (CompletableFuture<SendResult> result : sent) {
            results.add(json(result.get(CALLBACK_TIMEOUT_S, TimeUnit.SECONDS)));
        }
        return results;
    }

    private static SendCallback completing(CompletableFuture<SendResult> result) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult sent) {
                result.complete(sent);
            }

            @Override
            public void onException(Throwable error) {
                result.completeExceptionally(error);
            }
        };
    }

    private Object sendOneway(Command command) throws Exception {
        DefaultMQProducer producer = producers.of(command);
        for (JsonObject wanted : command.objects("messages")) {
            producer.sendOneway(message(wanted));
        }
        return null;
    }

    private Object sendBatch(Command command) throws Exception {
        List<Message> batch = new ArrayList<>();
        for (JsonObject wanted : command.objects("messages")) {
            batch.add(message(wanted));
        }
        return json(producers.of(command).send(batch));
    }

    static Message message(JsonObject wanted) throws Exception {
        Message message = new Message(wanted.get("topic").getAsString(),
            Base64.getDecoder().decode(wanted.get("body").getAsString()));
        message.setFlag(wanted.get("flag").getAsInt());
        if (wanted.has("tags")) {
            message.setTags(wanted.get("tags").getAsString());
        }
        if (wanted.has("keys")) {
            message.setKeys(wanted.get("keys").getAsString());
        }
        for (Map.Entry<String, JsonElement> property
            : wanted.getAsJsonObject("properties").entrySet()) {
            message.putUserProperty(property.getKey(), property.getValue().getAsString());
        }
        for (Map.Entry<String, JsonElement> setting
            : wanted.getAsJsonObject("settings").entrySet()) {
            Settings.set(message, setting.getKey(), setting.getValue());
        }
        return message;
    }

    private static MessageQueue queue(JsonObject wanted) {
        return wanted.has("queue") ? Queues.from(wanted.getAsJsonObject("queue")) : null;
    }

    static Map<String, Object> json(SendResult sent) throws ReflectiveOperationException {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("status", sent.getSendStatus().name());
        line.put("msgId", sent.getMsgId());
        line.put("offsetMsgId", sent.getOffsetMsgId());
        line.put("queue", Queues.json(sent.getMessageQueue()));
        line.put("queueOffset", sent.getQueueOffset());
        line.put("regionId", sent.getRegionId());
        line.put("traceOn", sent.isTraceOn());
        line.put("recallHandle", Recalls.handle(sent));
        return line;
    }

    private Object startStream(Command command) {
        Stream stream = new Stream(producers.of(command), command);
        streams.put(command.name(), stream);
        stream.start();
        return null;
    }

    /** Sends without end, one message after the other, and tells each outcome. */
    private final class Stream extends Thread {
        private final DefaultMQProducer producer;
        private final String name;
        private final String topic;
        private final String prefix;
        private final long intervalMs;
        /** Where all messages go; null lets the client choose. */
        private final MessageQueue queue;
        private volatile boolean stopped;

        Stream(DefaultMQProducer producer, Command command) {
            super("stream-" + command.name());
            this.producer = producer;
            this.name = command.name();
            this.topic = command.text("topic");
            this.prefix = command.text("prefix");
            this.intervalMs = command.number("intervalMs");
            this.queue = command.has("queue") ? command.queue() : null;
        }

        @Override
        public void run() {
            for (int i = 0; !stopped; i++) {
                send(prefix + i);
                LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(intervalMs));
            }
        }

        private void send(String body) {
            Message message = new Message(topic, body.getBytes(StandardCharsets.UTF_8));
            long beganNs = System.nanoTime();
            try {
                SendResult sent =
                    queue == null ? producer.send(message) : producer.send(message, queue);
                tell("sent", json(sent), body, beganNs);
            } catch (Exception error) {
                tell("failed", Failure.describe(error), body, beganNs);
            }
        }

        /** The times are by the clock that all processes of a machine share. */
        private void tell(String kind, Map<String, Object> outcome, String body, long beganNs) {
            outcome.put("body", body);
            outcome.put("beganNs", beganNs);
            outcome.put("endedNs", System.nanoTime());
            lines.event(kind, name, outcome);
        }

        Object finish() throws InterruptedException {
            stopped = true;
            join();
            return null;
        }
    }
}
