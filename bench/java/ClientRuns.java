import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicIntegerArray;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
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
 * The Java client's measurements: bench/client_runs.py says what each of them is.
 *
 * <p>One run a process: case, name server, topic, messages to warm up with, messages that count. CPU
 * time is that of the whole JVM, so the compiler and the collector count as far as they work then.
 */
public final class ClientRuns {
    private static final String GROUP = "bench";
    private static final int BODY_BYTES = 128;
    private static final int IN_FLIGHT = 512;
    private static final int BATCH = 32;
    private static final int ONE_WAY_RUN = 5_000;
    private static final int LINGER_MS = 5;
    private static final int LINGERING_MAX = 4096;
    private static final int TIMEOUT_MS = 30_000;
    private static final int DRAIN_TIMEOUT_S = 80;
    private static final int LATENCY_RATE_PER_S = 1000;

    private final String namesrv;
    private final String topic;
    private final int warm;
    private final int count;
    private final AtomicInteger stored = new AtomicInteger();
    private volatile Throwable failure;

    private ClientRuns(String namesrv, String topic, int warm, int count) {
        this.namesrv = namesrv;
        this.topic = topic;
        this.warm = warm;
        this.count = count;
    }

    public static void main(String[] args) {
        ClientRuns runs = new ClientRuns(
            args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
        int status = 1;
        try {
            System.out.println(runs.measure(args[0]));
            status = 0;
        } catch (Exception | LinkageError error) {
            error.printStackTrace();
        }
        System.out.flush();
        // The client's threads would go on for ever.
        Runtime.getRuntime().halt(status);
    }

    private String measure(String name) throws Exception {
        switch (name) {
            case "sync":
                return sending(this::oneByOne, producer());
            case "in_flight":
                return sending((producer, from, to) -> together(producer, from, to, IN_FLIGHT),
                    producer());
            case "auto_batch":
                DefaultMQProducer producer = producer();
                producer.setAutoBatch(true);
                producer.batchMaxDelayMs(LINGER_MS);
                return sending((own, from, to) -> together(own, from, to, LINGERING_MAX), producer);
            case "batch_32":
                return sending(this::inBatches, producer());
            case "one_way":
                return sending(this::oneWay, producer());
            case "push":
                return push(1);
            case "push_batch":
                return push(BATCH);
            case "pull_poll":
                return pull();
            case "latency":
                return latency();
            default:
                throw new IllegalArgumentException("no such case: " + name);
        }
    }

    // -- time ------------------------------------------------------------------------------------

    private static final class Meter {
        private static final OperatingSystemMXBean SYSTEM =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        private final long cpuNs = SYSTEM.getProcessCpuTime();
        private final long wallNs = System.nanoTime();
        private final int count;

        Meter(int count) {
            this.count = count;
        }

        String figures() {
            double cpuS = (SYSTEM.getProcessCpuTime() - cpuNs) / 1e9;
            double wallS = (System.nanoTime() - wallNs) / 1e9;
            return String.format(
                "{\"cpu_us_per_msg\":%.4f,\"msgs_per_s\":%.2f,\"msgs_per_cpu_s\":%.2f}",
                cpuS / count * 1e6, count / wallS, count / cpuS);
        }
    }

    // -- sending ---------------------------------------------------------------------------------

    private interface Sender {
        void send(DefaultMQProducer producer, int from, int to) throws Exception;
    }

    private DefaultMQProducer producer() {
        DefaultMQProducer producer = new DefaultMQProducer(GROUP);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        return producer;
    }

    private String sending(Sender sender, DefaultMQProducer producer) throws Exception {
        producer.start();
        sender.send(producer, 0, warm);
        Meter meter = new Meter(count);
        sender.send(producer, warm, warm + count);
        String figures = meter.figures();
        if (failure != null || stored.get() != warm + count) {
            throw new IllegalStateException(stored.get() + " messages stored", failure);
        }
        return figures;
    }

    private Message message(int number) {
        ByteBuffer body = ByteBuffer.allocate(BODY_BYTES);
        while (body.hasRemaining()) {
            body.putLong(number);
        }
        return new Message(topic, body.array());
    }

    private void oneByOne(DefaultMQProducer producer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            count(producer.send(message(number)), 1);
        }
    }

    private void together(DefaultMQProducer producer, int from, int to, int most) throws Exception {
        Semaphore room = new Semaphore(most);
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                count(result, 1);
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failure = error;
                room.release();
            }
        };
        for (int number = from; number < to; number++) {
            room.acquire();
            producer.send(message(number), callback);
        }
        room.acquire(most);
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

    private void oneWay(DefaultMQProducer producer, int from, int to) throws Exception {
        for (int number = from; number < to; number++) {
            // An answer says that the broker has taken all before it. Without one now and then, the
            // client queues without bound, its heartbeat times out behind that, and it cuts its own
            // connection with tens of thousands of messages unsent.
            if (number % ONE_WAY_RUN == ONE_WAY_RUN - 1 || number == to - 1) {
                count(producer.send(message(number)), 1);
            } else {
                producer.sendOneway(message(number));
                stored.incrementAndGet();
            }
        }
    }

    private void count(SendResult result, int messages) {
        if (result.getSendStatus() == SendStatus.SEND_OK) {
            stored.addAndGet(messages);
        }
    }

    // -- consuming -------------------------------------------------------------------------------

    /** Takes a backlog in, from several threads; what counts begins after the warm-up. */
    private final class Drain {
        private final AtomicIntegerArray seen = new AtomicIntegerArray(warm + count);
        private final AtomicInteger turn = new AtomicInteger();
        private final BlockingQueue<String> figures = new LinkedBlockingQueue<>();
        private volatile Meter meter = new Meter(count);

        void take(MessageExt message) {
            seen.incrementAndGet((int) ByteBuffer.wrap(message.getBody()).getLong());
            int now = turn.incrementAndGet();
            if (now == warm) {
                meter = new Meter(count);
            } else if (now == warm + count) {
                figures.add(meter.figures());
            }
        }

        String figures() throws InterruptedException {
            String found = figures.poll(DRAIN_TIMEOUT_S, TimeUnit.SECONDS);
            for (int number = 0; number < seen.length(); number++) {
                if (seen.get(number) != 1) {
                    throw new IllegalStateException(
                        "message " + number + " came " + seen.get(number) + " times");
                }
            }
            return found;
        }
    }

    private DefaultMQPushConsumer pushConsumer() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(newGroup());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        return consumer;
    }

    private static String newGroup() {
        return GROUP + "-" + System.nanoTime();
    }

    private String push(int batch) throws Exception {
        Drain drain = new Drain();
        DefaultMQPushConsumer consumer = pushConsumer();
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            messages.forEach(drain::take);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return drain.figures();
    }

    private String pull() throws Exception {
        Drain drain = new Drain();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(newGroup());
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setPullBatchSize(BATCH);
        consumer.subscribe(topic, "*");
        consumer.start();
        for (int taken = 0; taken < warm + count;) {
            List<MessageExt> messages = consumer.poll();
            messages.forEach(drain::take);
            taken += messages.size();
        }
        return drain.figures();
    }

    // -- latency ---------------------------------------------------------------------------------

    private String latency() throws Exception {
        long[] tookNs = new long[warm + count];
        CountDownLatch left = new CountDownLatch(warm + count);
        DefaultMQPushConsumer consumer = pushConsumer();
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt message : messages) {
                ByteBuffer body = ByteBuffer.wrap(message.getBody());
                tookNs[(int) body.getLong()] = System.nanoTime() - body.getLong();
                left.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer producer = producer();
        producer.start();
        paced(producer);
        if (!left.await(DRAIN_TIMEOUT_S, TimeUnit.SECONDS)) {
            throw new IllegalStateException(left.getCount() + " messages did not come");
        }
        long[] counted = Arrays.copyOfRange(tookNs, warm, warm + count);
        Arrays.sort(counted);
        return String.format("{\"p50_us\":%.1f,\"p99_us\":%.1f}",
            counted[count / 2] / 1e3, counted[count * 99 / 100] / 1e3);
    }

    private void paced(DefaultMQProducer producer) throws Exception {
        SendCallback callback = new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
            }

            @Override
            public void onException(Throwable error) {
                error.printStackTrace();
            }
        };
        long began = System.nanoTime();
        for (int number = 0; number < warm + count; number++) {
            long due = began + number * (1_000_000_000L / LATENCY_RATE_PER_S);
            TimeUnit.NANOSECONDS.sleep(due - System.nanoTime());
            ByteBuffer body = ByteBuffer.allocate(BODY_BYTES);
            body.putLong(number).putLong(System.nanoTime());
            producer.send(new Message(topic, body.array()), callback);
        }
    }
}
