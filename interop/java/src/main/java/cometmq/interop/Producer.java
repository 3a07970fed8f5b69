package cometmq.interop;

import java.io.IOException;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * Sends a seed's messages and prints a line as soon as a message is acknowledged.
 *
 * <p>The first failed send ends it: a test kills the broker meanwhile and wants to know exactly what
 * had been acknowledged. Nothing is retried, so no message can be stored twice.
 */
final class Producer {
    private static final String GROUP = "cometmq_interop_producer";
    private static final int SEND_TIMEOUT_MS = 10_000;

    private final JsonLines out;
    private final Samples samples;
    private final List<int[]> sends;
    private final int threads;
    private final DefaultMQProducer producer = new DefaultMQProducer(GROUP);
    private final AtomicInteger nextSend = new AtomicInteger();
    private final AtomicInteger acked = new AtomicInteger();
    private final AtomicReference<Throwable> failure = new AtomicReference<>();

    Producer(Flags flags, JsonLines out) throws MQClientException {
        this.out = out;
        this.samples = new Samples(flags.one("topic"), flags.number("seed"));
        this.sends = samples.sends((int) flags.number("count"));
        this.threads = flags.number("threads", 4);
        producer.setNamesrvAddr(flags.one("namesrv"));
        producer.setRetryTimesWhenSendFailed(0);
        producer.setSendMsgTimeout(SEND_TIMEOUT_MS);
        producer.start();
    }

    void produce() throws InterruptedException, IOException {
        List<Thread> running = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            Thread thread = new Thread(this::sendUntilDoneOrFailed, "send-" + i);
            thread.start();
            running.add(thread);
        }
        for (Thread thread : running) {
            thread.join();
        }
        Map<String, Object> done = new LinkedHashMap<>();
        done.put("done", failure.get() == null);
        done.put("acked", acked.get());
        if (failure.get() != null) {
            done.put("error", Peer.oneLine(failure.get()));
        }
        out.printNow(done);
    }

    private void sendUntilDoneOrFailed() {
        try {
            for (int i = nextSend.getAndIncrement(); i < sends.size() && failure.get() == null;
                 i = nextSend.getAndIncrement()) {
                send(sends.get(i)[0], sends.get(i)[1]);
            }
        } catch (Exception error) {
            failure.compareAndSet(null, error);
        }
    }

    private void send(int first, int size) throws Exception {
        List<Message> messages = new ArrayList<>();
        List<String> hashes = new ArrayList<>();
        for (int i = 0; i < size; i++) {
            Message message = samples.message(first + i, size > 1);
            messages.add(message);
            hashes.add(sha256(message.getBody())); // Before the client puts a compressed body there.
        }
        SendResult sent = size > 1 ? producer.send(messages) : producer.send(messages.get(0));
        if (sent.getSendStatus() != SendStatus.SEND_OK) {
            throw new IllegalStateException("send answered " + sent.getSendStatus());
        }
        // A batch is answered once: its ids are comma-separated, its offset is the first message's.
        String[] ids = sent.getMsgId().split(",");
        String[] offsetIds = sent.getOffsetMsgId().split(",");
        for (int i = 0; i < size; i++) {
            acknowledge(messages.get(i), hashes.get(i), sent, i, ids[i], offsetIds[i]);
        }
    }

    private void acknowledge(Message message, String hash, SendResult sent, int place, String id,
        String offsetId) throws IOException {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.put("queueId", sent.getMessageQueue().getQueueId());
        line.put("queueOffset", sent.getQueueOffset() + place);
        line.put("msgId", id);
        line.put("offsetMsgId", offsetId);
        line.put("keys", message.getKeys());
        line.put("bodySha256", hash);
        // A delayed message's offsets are those in SCHEDULE_TOPIC_XXXX, not those after delivery.
        line.put("delayLevel", message.getDelayTimeLevel());
        out.printNow(line);
        acked.incrementAndGet();
    }

    private static String sha256(byte[] body) throws NoSuchAlgorithmException {
        StringBuilder hex = new StringBuilder();
        for (byte octet : MessageDigest.getInstance("SHA-256").digest(body)) {
            hex.append(String.format("%02x", octet));
        }
        return hex.toString();
    }
}
