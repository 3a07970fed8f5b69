import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * What drives a broker that is measured: RocketMQ's own client, unchanged.
 *
 * <p>One run a process: kind, name server, topic, messages to warm up with, messages that count, how
 * many at the same time, bytes of a body. It prints `begin` when those begin that count, and what it
 * saw at the end; the broker's CPU time in between is somebody else's to look at.
 */
public final class BrokerRuns {
    private static final int BATCH = 32;
    private static final int ONE_WAY_RUN = 5_000;
    private static final int TIMEOUT_MS = 30_000;
    private static final int DRAIN_TIMEOUT_S = 150;
    private static final int FIRST_TIMEOUT_S = 90;

    private final String namesrv;
    private final String topic;
    private final int warm;
    private final int count;
    private final int together;
    private final int bodyBytes;
    private final AtomicInteger stored = new AtomicInteger();
    private final long[] tookNs;
    private volatile Throwable failure;
    private volatile long beganNs;

    private BrokerRuns(String[] args) {
        namesrv = args[1];
        topic = args[2];
        warm = Integer.parseInt(args[3]);
        count = Integer.parseInt(args[4]);
        together = Integer.parseInt(args[5]);
        bodyBytes = Integer.parseInt(args[6]);
        tookNs = new long[warm + count];
    }

    public static void main(String[] args) {
        int status = 1;
        try {
            System.out.println(new BrokerRuns(args).measure(args[0]));
            status = 0;
        } catch (Throwable error) {
            error.printStackTrace();
        }
        System.out.flush();
        // The client's threads would go on for ever.
        Runtime.getRuntime().halt(status);
    }

    private String measure(String kind) throws Exception {
        switch (kind) {
            case "sync":
                return sending(this::inThreads);
            case "async":
                return sending(this::inFlight);
            case "one_way":
                return sending(this::oneWay);
            case "batch":
                return sending(this::inBatches);
            case "push":
                return push();
            case "end_to_end":
                return endToEnd();
            default:
                throw new IllegalArgumentException("no such kind: " + kind);
        }
    }

    private void begin() {
        beganNs = System.nanoTime();
        System.out.println("begin");
        System.out.flush();
    }

    private String figures() {
        double wallS = (System.nanoTime() - beganNs) / 1e9;
        long[] counted = Arrays.copyOfRange(tookNs, warm, warm + count);
        Arrays.sort(counted);
        String speed = String.format("\"msgs_per_s\":%.2f", count / wallS);
        if (counted[count - 1] == 0) {
            return "{" + speed + "}";
        }
        return String.format("{%s,\"p50_us\":%.1f,\"p99_us\":%.1f,\"p999_us\":%.1f}", speed,
            counted[count / 2] / 1e3, counted[(int) (count * 0.99)] / 1e3,
            counted[(int) (count * 0.999)] / 1e3);
    }

    // -- sending ---------------------------------------------------------------------------------

    private interface Sender {
        void send(DefaultMQProducer producer, int from, int to) throws Exception;
    }

    private DefaultMQProducer producer() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("bench");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        // A busy machine is slow, not broken.
        producer.setMqClientApiTimeout(TIMEOUT_MS);
        producer.start();
        return producer;
    }

    private String sending(Sender sender) throws Exception {
        DefaultMQProducer producer = producer();
        sender.send(producer, 0, warm);
        begin();
        sender.send(producer, warm, warm + count);
        String figures = figures();
        if (failure != null || stored.get() != warm + count) {
            throw new IllegalStateException(stored.get() + " messages stored", failure);
        }
        return figures;
    }

    private Message message(int number) {
        ByteBuffer body = ByteBuffer.allocate(bodyBytes);
        while (body.hasRemaining()) {
            body.putLong(number);
        }
        return new Message(topic, body.array());
    }

    private void count(SendResult result, int messages) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            stored.addAndGet(messages);
        }
    }

    private void inThreads(DefaultMQProducer producer, int from, int to) throws Exception {
        AtomicInteger next = new AtomicInteger(from);
        List<Thread> threads = new ArrayList<>();
        for (int each = 0; each < together; each++) {
            Thread thread = new Thread(() -> {
                try {
                    for (int number; (number = next.getAndIncrement()) < to;) {
                        long began = System.nanoTime();
                        count(producer.send(message(number)), 1);
                        tookNs[number] = System.nanoTime() - began;
                    }
                } catch (Exception error) {
                    failure = error;
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    private void inFlight(DefaultMQProducer producer, int from, int to) throws Exception {
        Semaphore room = new Semaphore(together);
        for (int number = from; number < to; number++) {
            room.acquire();
            int own = number;
            long began = System.nanoTime();
            producer.send(message(number), new SendCallback() {
                @Override
                public void onSuccess(SendResult result) {
                    tookNs[own] = System.nanoTime() - began;
                    count(result, 1);
                    room.release();
                }

                @Override
                public void onException(Throwable error) {
                    failure = error;
                    room.release();
                }
            });
        }
        room.acquire(together);
    }

    private void oneWay(DefaultMQProducer producer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            // An answer says that the broker has taken all before it. Without one now and then the
            // client queues without bound and cuts its own connection.
            if (number % ONE_WAY_RUN == ONE_WAY_RUN - 1 || number == to - 1) {
                count(producer.send(message(number)), 1);
            } else {
                producer.sendOneway(message(number));
                stored.incrementAndGet();
            }
        }
    }

    private void inBatches(DefaultMQProducer producer, int from, int to) throws Exception {
        for (int number = from; number < to;) {
            List<Message> batch = new ArrayList<>(BATCH);
            for (; number < to && batch.size() < BATCH; number++) {
                batch.add(message(number));
            }
            count(producer.send(batch), batch.size());
        }
    }

    // -- consuming -------------------------------------------------------------------------------

    private DefaultMQPushConsumer consumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("bench-" + System.nanoTime());
        consumer.setNamesrvAddr(namesrv);
        consumer.setMqClientApiTimeout(TIMEOUT_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    /** Drains a backlog of numbered messages, each of which must come once. */
    private String push() throws Exception {
        AtomicIntegerArray seen = new AtomicIntegerArray(warm + count);
        AtomicInteger turn = new AtomicInteger();
        CountDownLatch ended = new CountDownLatch(1);
        String[] figures = new String[1];
        DefaultMQPushConsumer consumer = consumer();
        consumer.setConsumeMessageBatchMaxSize(BATCH);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                seen.incrementAndGet((int) ByteBuffer.wrap(message.getBody()).getLong());
                int now = turn.incrementAndGet();
                if (now == warm) {
                    begin();
                } else if (now == warm + count) {
                    figures[0] = figures();
                    ended.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        if (!ended.await(DRAIN_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(turn.get() + " messages came");
        }
        for (int number = 0; number < warm + count; number++) {
            if (seen.get(number) != 1) {
                throw new IllegalStateException(number + " came " + seen.get(number) + " times");
            }
        }
        return figures[0];
    }

    /** From `send` to the listener, at `together` messages a second. */
    private String endToEnd() throws Exception {
        CountDownLatch left = new CountDownLatch(warm + count);
        AtomicLong first = new AtomicLong(-1);
        DefaultMQPushConsumer consumer = consumer();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                int number = (int) body.getLong();
                if (number == 0) {
                    first.set(0);
                } else if (number > 0) {
                    tookNs[number - 1] = System.nanoTime() - body.getLong();
                    left.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        producer.send(timed(0));
        // The consumer may need seconds until it has its queues, and half a minute more: when it has
        // them it tells the broker of a new version of its subscription, but not if another heartbeat
        // is under way; its pulls are refused until the next one.
        for (long began = System.nanoTime(); first.get() != 0; Thread.sleep(10)) {
            if (System.nanoTime() - began > TimeUnit.SECONDS.toNanos(FIRST_TIMEOUT_S)) {
                throw new IllegalStateException("the first message did not come");
            }
        }
        paced(producer);
        if (!left.await(DRAIN_TIMEOUT_S, TimeUnit.SECONDS) || failure != null) {
            throw new IllegalStateException(left.getCount() + " messages did not come", failure);
        }
        return figures();
    }

    private void paced(DefaultMQProducer producer) throws Exception {
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable error) {
                failure = error;
            }
        };
        long began = System.nanoTime();
        for (int number = 0; number < warm + count; number++) {
            if (number == warm) {
                begin();
            }
            long due = began + number * (1_000_000_000L / together);
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
            producer.send(timed(number + 1), callback);
        }
    }

    private Message timed(int number) {
        ByteBuffer body = ByteBuffer.allocate(bodyBytes);
        body.putLong(number).putLong(System.nanoTime());
        return new Message(topic, body.array());
    }
}
