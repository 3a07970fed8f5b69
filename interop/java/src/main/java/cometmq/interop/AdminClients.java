package cometmq.interop;

import com.alibaba.fastjson2.JSONObject;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/** Producers and push consumers that stay online for commands to look at. */
@SuppressWarnings("deprecation") // There is no other way to the client inside producer and consumer.
final class AdminClients {
    private static final String HELD = "Held";
    private static final int HEARTBEAT_INTERVAL_MS = 1000;
    private static final long CONSUME_TIMEOUT_S = 30;

    private final Map<String, DefaultMQProducer> producers = new HashMap<>();
    private final Map<String, Consumer> consumers = new HashMap<>();

    /**
     * Send messages of the form {queue, body, keys, tags}, by a producer of this group; if there is
     * a traceTopic, it tells there what it does.
     */
    List<Map<String, Object>> produce(JSONObject request) throws Exception {
        DefaultMQProducer producer = producer(request);
        String topic = request.getString("topic");
        List<Map<String, Object>> sent = new ArrayList<>();
        for (Object each : request.getJSONArray("messages")) {
            JSONObject wanted = (JSONObject) each;
            Message message = new Message(topic, wanted.getString("tags"), wanted.getString("keys"),
                wanted.getString("body").getBytes(StandardCharsets.UTF_8));
            sent.add(place(producer.send(message, (queues, ignored, number) ->
                queue(queues, (Integer) number), wanted.getIntValue("queue"))));
        }
        // Otherwise the broker learns of the producer with the next heartbeat, up to 30 s later.
        producer.getDefaultMQProducerImpl().getMqClientFactory().sendHeartbeatToAllBrokerWithLock();
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

    private DefaultMQProducer producer(JSONObject request) throws MQClientException {
        String group = request.getString("group");
        DefaultMQProducer known = producers.get(group);
        if (known != null) {
            return known;
        }
        String traceTopic = request.getString("traceTopic");
        DefaultMQProducer producer = new DefaultMQProducer(group, traceTopic != null, traceTopic);
        producer.setNamesrvAddr(request.getString("namesrv"));
        producer.setInstanceName(group);
        producer.start();
        producers.put(group, producer);
        return producer;
    }

    /** Start a consumer of a topic, if it is not there, and return when it has so many messages. */
    Map<String, Object> consume(JSONObject request) throws Exception {
        String group = request.getString("group");
        Consumer consumer = consumers.get(group);
        if (consumer == null) {
            consumer = new Consumer(group, request.getString("namesrv"), request.getString("topic"));
            consumers.put(group, consumer);
        }
        return Map.of(
            "clientId", consumer.clientId(),
            "bodies", consumer.awaitBodies(request.getIntValue("count")));
    }

    /** Take the consumer of a group offline, in order. */
    void leave(String group) {
        consumers.remove(group).client.shutdown();
    }

    /** A push consumer that keeps messages with the tag Held for ever, so that they stay unconsumed. */
    private static final class Consumer {
        private static final Semaphore NEVER = new Semaphore(0);

        final DefaultMQPushConsumer client;
        private final BlockingQueue<String> arrived = new LinkedBlockingQueue<>();
        private final List<String> bodies = new ArrayList<>();

        Consumer(String group, String namesrv, String topic) throws MQClientException {
            client = new DefaultMQPushConsumer(group);
            client.setNamesrvAddr(namesrv);
            client.setInstanceName(group);
            // Pulls are refused until the broker has the subscription of the last rebalance.
            client.setHeartbeatBrokerInterval(HEARTBEAT_INTERVAL_MS);
            client.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
            client.subscribe(topic, "*");
            client.registerMessageListener((MessageListenerConcurrently) this::take);
            client.start();
        }

        private ConsumeConcurrentlyStatus take(
            List<MessageExt> messages, ConsumeConcurrentlyContext context) {
            for (MessageExt message : messages) {
                arrived.add(new String(message.getBody(), StandardCharsets.UTF_8));
                if (HELD.equals(message.getTags())) {
                    NEVER.acquireUninterruptibly();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        List<String> awaitBodies(int count) throws InterruptedException {
            while (bodies.size() < count) {
                String body = arrived.poll(CONSUME_TIMEOUT_S, TimeUnit.SECONDS);
                if (body == null) {
                    throw new IllegalStateException("only " + bodies + " of " + count);
                }
                bodies.add(body);
            }
            client.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return bodies;
        }

        String clientId() {
            return client.getDefaultMQPushConsumerImpl().getmQClientFactory().getClientId();
        }
    }
}
