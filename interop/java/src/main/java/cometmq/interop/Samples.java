package cometmq.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import org.apache.rocketmq.common.message.Message;

/**
 * The messages of a seed: the same seed, topic and index always give the same message.
 *
 * <p>Bodies are never empty, since the Java client refuses to send an empty body.
 */
final class Samples {
    private static final int SMALL_BODY_BYTES_MAX = 2048;
    private static final int LARGE_BODY_BYTES_MIN = 4097; // The client compresses above 4096.
    private static final int LARGE_BODY_BYTES_SPAN = 16384;
    private static final int BATCH_MAX = 16;
    private static final String[] TAGS = {"alpha", "beta", "gamma", "značka"};

    private final String topic;
    private final long seed;

    Samples(String topic, long seed) {
        this.topic = topic;
        this.seed = seed;
    }

    /** Splits {@code count} messages into sends; about one in twenty is a batch. */
    List<int[]> sends(int count) {
        Random random = new Random(seed);
        List<int[]> sends = new ArrayList<>();
        for (int first = 0; first < count; ) {
            int wanted = random.nextInt(20) == 0 ? 2 + random.nextInt(BATCH_MAX - 1) : 1;
            int size = Math.min(wanted, count - first);
            sends.add(new int[] {first, size});
            first += size;
        }
        return sends;
    }

    /** A batch must not hold delayed messages, so these get no delay and a body of small size. */
    Message message(int index, boolean inBatch) {
        Random random = new Random(seed * 1_000_003L + index);
        Message message = new Message(topic, body(random, inBatch));
        if (random.nextInt(8) != 0) {
            message.setTags(TAGS[random.nextInt(TAGS.length)]);
        }
        String ownKey = "key-" + seed + "-" + index;
        message.setKeys(random.nextBoolean() ? ownKey : ownKey + " group-" + seed + "-" + index / 10);
        message.setFlag(random.nextInt(1000));
        message.putUserProperty("index", Integer.toString(index));
        message.putUserProperty("größe", "žluťoučký kůň 火星 🚀 " + random.nextInt(100));
        if (!inBatch && random.nextInt(20) == 0) {
            message.setDelayTimeLevel(1);
        }
        return message;
    }

    private static byte[] body(Random random, boolean small) {
        boolean large = random.nextInt(50) == 0 && !small;
        byte[] body = new byte[large
            ? LARGE_BODY_BYTES_MIN + random.nextInt(LARGE_BODY_BYTES_SPAN)
            : 1 + random.nextInt(SMALL_BODY_BYTES_MAX)];
        random.nextBytes(body);
        for (int i = 0; i < body.length; i++) {
            body[i] &= 0x3f; // Six bits of eight, so that compression has something to gain.
        }
        return body;
    }
}
