package cometmq.interop;

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/** Commands of producers that wait for an answer, and of consumers that give one. */
final class Requests {
    private static final String ANSWER = "answer to ";

    private final Named<DefaultMQProducer> requesters = new Named<>();
    private final Named<Answerer> answerers = new Named<>();

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("requester.start", this::startRequester);
        operations.put("requester.shutdown", this::shutdownRequester);
        operations.put("requester.request", command -> json(requesters.of(command).request(
            Producers.message(command.object("message")), command.number("timeoutMs"))));
        operations.put("requester.requestAsync", this::requestAsync);
        operations.put("answerer.start", this::startAnswerer);
        operations.put("answerer.shutdown", this::shutdownAnswerer);
    }

    private Object startRequester(Command command) throws Exception {
        DefaultMQProducer producer =
            Settings.apply(command, new DefaultMQProducer(command.text("group")));
        producer.start();
        requesters.put(command.name(), producer);
        return null;
    }

    private Object shutdownRequester(Command command) {
        requesters.remove(command).shutdown();
        return null;
    }

    /** All at once; returns the answers in the order of the questions, or the first failure. */
    private Object requestAsync(Command command) throws Exception {
        List<CompletableFuture<Message>> asked = new ArrayList<>();
        for (var wanted : command.objects("messages")) {
            CompletableFuture<Message> answer = new CompletableFuture<>();
            requesters.of(command).request(
                Producers.message(wanted), completing(answer), command.number("timeoutMs"));
            asked.add(answer);
        }
        List<Object> answers = new ArrayList<>();
        for (CompletableFuture<Message> answer : asked) {
            answers.add(json(answer.get()));
        }
        return answers;
    }

    private static RequestCallback completing(CompletableFuture<Message> answer) {
        return new RequestCallback() {
            @Override
            public void onSuccess(Message message) {
                if (message != null) { // The client also calls it when the question was sent.
                    answer.complete(message);
                }
            }

            @Override
            public void onException(Throwable error) {
                answer.completeExceptionally(error);
            }
        };
    }

    private static Map<String, Object> json(Message answer) {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", answer.getTopic());
        line.put("bodyBase64", Base64.getEncoder().encodeToString(answer.getBody()));
        line.put("properties", answer.getProperties());
        return line;
    }

    private Object startAnswerer(Command command) throws Exception {
        answerers.put(command.name(), new Answerer(command));
        return null;
    }

    private Object shutdownAnswerer(Command command) {
        answerers.remove(command).shutdown();
        return null;
    }

    /** A consumer that answers each message, and the producer through which it does. */
    private static final class Answerer {
        private final DefaultMQPushConsumer consumer;
        private final DefaultMQProducer producer;

        Answerer(Command command) throws Exception {
            String group = command.text("group");
            producer = Settings.apply(command, new DefaultMQProducer(group));
            producer.start();
            consumer = Settings.apply(command, new DefaultMQPushConsumer(group));
            consumer.subscribe(command.text("topic"), "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                answer(messages));
            consumer.start();
        }

        private ConsumeConcurrentlyStatus answer(List<MessageExt> messages) {
            try {
                for (MessageExt message : messages) {
                    String body = ANSWER + new String(message.getBody(), StandardCharsets.UTF_8);
                    Message answer = MessageUtil.createReplyMessage(
                        message, body.getBytes(StandardCharsets.UTF_8));
                    answer.putUserProperty("asked", message.getUserProperty("asked"));
                    producer.send(answer);
                }
            } catch (Exception error) {
                throw new IllegalStateException("not answered", error);
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        }

        void shutdown() {
            consumer.shutdown();
            producer.shutdown();
        }
    }
}
