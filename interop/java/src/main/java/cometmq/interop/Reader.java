package cometmq.interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.protocol.ResponseCode;

/** Commands that read: whole queues, messages by key, messages by offset id. */
@SuppressWarnings("deprecation") // The pull consumer is deprecated, but alone reads raw queues.
final class Reader {
    private static final String GROUP = "cometmq_interop_reader";
    private static final int MESSAGES_PER_PULL = 1024;
    private static final int MESSAGES_PER_KEY = 64;

    private final JsonLines out;
    private final DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(GROUP);

    Reader(Flags flags, JsonLines out) throws MQClientException {
        this.out = out;
        consumer.setNamesrvAddr(flags.one("namesrv"));
        consumer.start();
    }

    void dump(List<String> topics) throws Exception {
        long count = 0;
        for (String topic : topics) {
            for (MessageQueue queue : new TreeSet<>(consumer.fetchSubscribeMessageQueues(topic))) {
                count += dumpQueue(queue);
            }
        }
        Map<String, Object> done = new LinkedHashMap<>();
        done.put("done", true);
        done.put("count", count);
        out.print(done);
    }

    private long dumpQueue(MessageQueue queue) throws Exception {
        long count = 0;
        long end = consumer.maxOffset(queue);
        long next = consumer.minOffset(queue);
        while (next < end) {
            PullResult pulled = consumer.pull(queue, "*", next, MESSAGES_PER_PULL);
            if (pulled.getPullStatus() == PullStatus.FOUND) {
                count += printUpTo(end, pulled.getMsgFoundList());
            }
            // A queue that stands still before its own end would keep us here for ever.
            if (pulled.getNextBeginOffset() <= next) {
                throw new IllegalStateException(queue + " ends at " + end + " but a pull at " + next
                    + " says " + pulled);
            }
            next = pulled.getNextBeginOffset();
        }
        return count;
    }

    private long printUpTo(long end, List<MessageExt> messages) throws IOException {
        long count = 0;
        for (MessageExt message : messages) {
            if (message.getQueueOffset() < end) {
                out.print(MessageJson.full(message));
                count++;
            }
        }
        return count;
    }

    void query(String topic) throws Exception {
        for (String key : standardInput()) {
            List<Map<String, Object>> found = new ArrayList<>();
            for (MessageExt message : byKey(topic, key)) {
                found.add(MessageJson.place(message));
            }
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("key", key);
            line.put("found", found);
            out.print(line);
        }
    }

    private List<MessageExt> byKey(String topic, String key) throws Exception {
        try {
            return consumer.queryMessage(topic, key, MESSAGES_PER_KEY, 0, Long.MAX_VALUE)
                .getMessageList();
        } catch (MQClientException error) {
            if (error.getResponseCode() == ResponseCode.NO_MESSAGE) {
                return Collections.emptyList();
            }
            throw error;
        }
    }

    void view() throws Exception {
        for (String line : standardInput()) {
            String[] topicAndId = line.split(" ");
            // The consumer's own viewMessage would hide an error and query by unique key instead.
            out.print(MessageJson.full(
                consumer.getDefaultMQPullConsumerImpl().viewMessage(topicAndId[0], topicAndId[1])));
        }
    }

    private static List<String> standardInput() throws IOException {
        List<String> lines = new ArrayList<>();
        BufferedReader reader =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = reader.readLine(); line != null; line = reader.readLine()) {
            lines.add(line);
        }
        return lines;
    }
}
