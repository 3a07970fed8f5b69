package cometmq.interop;

import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;

/** An exception as a test sees it: its class, RocketMQ's response code if it has one, its text. */
final class Failure {
    private Failure() {
    }

    static Map<String, Object> describe(Throwable error) {
        Map<String, Object> described = new LinkedHashMap<>();
        described.put("type", error.getClass().getSimpleName());
        described.put("text", String.valueOf(error.getMessage()));
        if (error instanceof MQBrokerException) {
            described.put("code", ((MQBrokerException) error).getResponseCode());
        } else if (error instanceof MQClientException) {
            described.put("code", ((MQClientException) error).getResponseCode());
        }
        if (error.getCause() != null && error.getCause() != error) {
            described.put("cause", describe(error.getCause()));
        }
        return described;
    }
}
