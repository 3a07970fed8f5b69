package cometmq.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers and push consumers that stay online for commands to look at. */
final class AdminClients {
    private static final long CONSUME_TIMEOUT_S = 30;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, DefaultMQPushConsumer> consumers = new HashMap<>();

    /** Send messages of the form {queue, body, keys, tags}, by a producer of this group. */
    List<Map<String, Object>> produce(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request.getString("group"), request.getString("namesrv"));
        String topic = request.getString("topic");
        List<Map<String, Object>> sent = new ArrayList<>();
        for (Object each : request.getJSONArray("messages")) {
            JSONObject wanted = (JSONObject) each;
            Message message = new Message(topic, wanted.getString("tags"), wanted.getString("keys"),
                wanted.getString("body").getBytes(StandardCharsets.UTF_8));
            sent.add(place(producer.send(message, (queues, ignored, number) ->
                queue(queues, (Integer) number), wanted.getIntValue("queue"))));
        }
        return sent;
    }

    private static MessageQueue queue(List<MessageQueue> queues, int number) {
        return queues.stream().filter(queue -> queue.getQueueId() == number).findFirst().orElseThrow();
    }

    private static Map<String, Object> place(SendResult result) {
        return Map.of(
            "msgId", result.getMsgId(),
            "offsetMsgId", result.getOffsetMsgId(),
            "queueId", result.getMessageQueue().getQueueId(),
            "queueOffset", result.getQueueOffset());
    }

    private DefaultMQProducer producer(String group, String namesrv) throws Exception {
        DefaultMQProducer known = producers.get(group);
        if (known != null) {
            return known;
        }
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName(group);
        producer.start();
        producers.put(group, producer);
        return producer;
    }

    /** Start a consumer of a topic and return when it has consumed so many messages. */
    Map<String, Object> consume(JSONObject request) throws Exception {
        String group = request.getString("group");
        int count = request.getIntValue("count");
        Semaphore arrived = new Semaphore(0);
        Queue<String> bodies = new ConcurrentLinkedQueue<>();
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(request.getString("namesrv"));
        consumer.setInstanceName(group);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(request.getString("topic"), request.getString("tags"));
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
            }
            arrived.release(messages.size());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        consumers.put(group, consumer);
        if (!arrived.tryAcquire(count, CONSUME_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(group + " got only " + bodies + " of " + count);
        }
        consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
        String clientId =
            consumer.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        return Map.of("clientId", clientId, "bodies", List.copyOf(bodies));
    }

    /** Take the consumer of a group offline, in order. */
    void leave(String group) {
        consumers.remove(group).shutdown();
    }
}
