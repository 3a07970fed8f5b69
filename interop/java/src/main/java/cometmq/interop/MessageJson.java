package cometmq.interop;

import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.common.message.MessageClientIDSetter;
import org.apache.rocketmq.common.message.MessageConst;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;

/** What the client decoded of a stored message, field by field. */
final class MessageJson {
    private MessageJson() {
    }

    static Map<String, Object> full(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", message.getTopic());
        line.putAll(place(message));
        line.put("uniqKey", MessageClientIDSetter.getUniqID(message));
        line.put("bornTimestamp", message.getBornTimestamp());
        line.put("storeTimestamp", message.getStoreTimestamp());
        line.put("bornHost", hostAndPort(message.getBornHost()));
        line.put("storeHost", hostAndPort(message.getStoreHost()));
        line.put("flag", message.getFlag());
        line.put("sysFlag", message.getSysFlag());
        line.put("reconsumeTimes", message.getReconsumeTimes());
        line.put("preparedTransactionOffset", message.getPreparedTransactionOffset());
        line.put("bodyBase64", base64(message.getBody()));
        line.put("storeSize", message.getStoreSize());
        line.put("bodyCRC", message.getBodyCRC());
        line.put("properties", storedProperties(message));
        return line;
    }

    static Map<String, Object> place(MessageExt message) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("queueId", message.getQueueId());
        line.put("queueOffset", message.getQueueOffset());
        line.put("commitLogOffset", message.getCommitLogOffset());
        // getMsgId() is the offset id or the unique key, depending on which call decoded it.
        line.put("msgId", MessageDecoder.createMessageId(
            message.getStoreHost(), message.getCommitLogOffset()));
        return line;
    }

    /**
     * The properties as stored. A pull adds the queue's MIN_OFFSET and MAX_OFFSET to every message
     * on the client's side (and adds nothing else); these two do not come from the log.
     */
    private static Map<String, String> storedProperties(MessageExt message) {
        Map<String, String> stored = new LinkedHashMap<>(message.getProperties());
        stored.remove(MessageConst.PROPERTY_MIN_OFFSET);
        stored.remove(MessageConst.PROPERTY_MAX_OFFSET);
        return stored;
    }

    private static String base64(byte[] body) {
        return body == null ? "" : Base64.getEncoder().encodeToString(body);
    }

    private static String hostAndPort(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }
}
