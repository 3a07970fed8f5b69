package cometmq.interop;

import java.lang.reflect.InvocationTargetException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;

/** Takes delayed messages back. By reflection: clients of the 4.x line do not know this. */
final class Recalls {
    private Recalls() {
    }

    /** What a recall has to name; null where there is nothing to take back. */
    static Object handle(SendResult sent) throws ReflectiveOperationException {
        try {
            return SendResult.class.getMethod("getRecallHandle").invoke(sent);
        } catch (NoSuchMethodException older) {
            return null;
        }
    }

    /** Returns the id of the message that was taken back. */
    static Object recall(DefaultMQProducer producer, String topic, String handle)
        throws Exception {
        try {
            return DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
        } catch (InvocationTargetException refused) {
            throw (Exception) refused.getCause();
        }
    }
}
