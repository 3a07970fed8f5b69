package cometmq.interop;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * Commands of push consumers.
 *
 * <p>A message says itself how it is taken: with the property "fail" of n it is refused until it was
 * delivered n times; with "work" of n, a timed consumer takes so many milliseconds over it.
 */
@SuppressWarnings("deprecation") // The way to a consumer's rebalance state is called internal.
final class PushConsumers {
    private static final String FAIL = "fail";
    private static final String WORK = "work";
    private static final String HANDLED = ".handled";
    private static final int SHUTDOWN_WAIT_MS = 5_000;

    private final Lines lines;
    private final Named<Member> members = new Named<>();

    PushConsumers(Lines lines) {
        this.lines = lines;
    }

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("push.start", this::start);
        operations.put("push.shutdown", this::shutdown);
        operations.put("push.queues", command -> members.of(command).queues(command.text("topic")));
        operations.put("push.persist", command -> members.of(command).persist());
        operations.put("push.hold", command -> members.of(command).hold(true));
        operations.put("push.release", command -> members.of(command).hold(false));
    }

    private Object start(Command command) throws Exception {
        Member member = new Member(command);
        try {
            member.consumer.start();
        } catch (IllegalStateException unreachable) {
            // It says that it could not start and runs all the same.
            member.consumer.shutdown();
            throw unreachable;
        }
        members.put(command.name(), member);
        return null;
    }

    private Object shutdown(Command command) throws Exception {
        Member member = members.remove(command);
        member.hold(false);
        member.consumer.shutdown();
        return null;
    }

    /** One consumer with its listener. */
    private final class Member {
        final DefaultMQPushConsumer consumer;
        private final String name;
        private final boolean timed;
        private boolean held;

        Member(Command command) throws Exception {
            name = command.name();
            held = command.flag("held");
            timed = command.flag("timed");
            consumer = Settings.apply(command, new DefaultMQPushConsumer(
                command.text("group"), command.flag("traced"), null));
            // An orderly end persists offsets; it should not do so before listeners are done.
            consumer.setAwaitTerminationMillisWhenShutdown(SHUTDOWN_WAIT_MS);
            String expression = command.text("expression");
            consumer.subscribe(command.text("topic"), command.flag("sql")
                ? MessageSelector.bySql(expression) : MessageSelector.byTag(expression));
            if (command.flag("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) ->
                    take(messages) ? ConsumeOrderlyStatus.SUCCESS
                        : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT);
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                    take(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS
                        : ConsumeConcurrentlyStatus.RECONSUME_LATER);
            }
        }

        private boolean take(List<MessageExt> messages) {
            boolean taken = true;
            long beganNs = System.nanoTime();
            for (MessageExt message : messages) {
                Map<String, Object> content = new LinkedHashMap<>(MessageJson.full(message));
                content.put("brokerName", message.getBrokerName());
                content.put("receivedMs", System.currentTimeMillis());
                content.put("beganNs", beganNs);
                lines.event("message", name, content);
                String fail = message.getUserProperty(FAIL);
                taken &= fail == null || message.getReconsumeTimes() >= Integer.parseInt(fail);
            }
            waitWhileHeld();
            if (timed) {
                tellTimes(messages.get(0), beganNs, taken);
            }
            return taken;
        }

        /** When the call began and ended, by the clock that all processes of a machine share. */
        private void tellTimes(MessageExt message, long beganNs, boolean taken) {
            work(message);
            Map<String, Object> content = new LinkedHashMap<>(MessageJson.place(message));
            content.put("beganNs", beganNs);
            content.put("endedNs", System.nanoTime());
            content.put("taken", taken);
            lines.event("handled", name + HANDLED, content);
        }

        private void work(MessageExt message) {
            try {
                Thread.sleep(Long.parseLong(message.getUserProperty(WORK)));
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        private synchronized void waitWhileHeld() {
            try {
                while (held) {
                    wait();
                }
            } catch (InterruptedException ended) {
                Thread.currentThread().interrupt();
            }
        }

        synchronized Object hold(boolean hold) {
            held = hold;
            notifyAll();
            return null;
        }

        Object queues(String topic) {
            List<MessageQueue> queues = new ArrayList<>();
            for (MessageQueue queue : consumer.getDefaultMQPushConsumerImpl().getRebalanceImpl()
                .getProcessQueueTable().keySet()) {
                if (queue.getTopic().equals(topic)) {
                    queues.add(queue);
                }
            }
            return Queues.json(queues);
        }

        /** What the client does every five seconds, now. */
        Object persist() {
            consumer.getDefaultMQPushConsumerImpl().persistConsumerOffset();
            return null;
        }
    }
}
