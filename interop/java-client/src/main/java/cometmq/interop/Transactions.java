package cometmq.interop;

import com.google.gson.JsonObject;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.producer.TransactionSendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Commands of producers whose messages count only once they say so.
 *
 * <p>A message says itself what becomes of it: the property "local" is the outcome of its local
 * transaction, "checks" are the answers to the broker's questions in turn, the last one for all
 * further questions.
 */
final class Transactions {
    private static final String LOCAL = "local";
    private static final String CHECKS = "checks";

    private final Lines lines;
    private final Named<TransactionMQProducer> producers = new Named<>();

    Transactions(Lines lines) {
        this.lines = lines;
    }

    void addTo(Map<String, Client.Operation> operations) {
        operations.put("transaction.start", this::start);
        operations.put("transaction.shutdown", this::shutdown);
        operations.put("transaction.send", this::send);
    }

    private Object start(Command command) throws Exception {
        TransactionMQProducer producer =
            Settings.apply(command, new TransactionMQProducer(command.text("group")));
        producer.setTransactionListener(new Decisions(command.name()));
        producer.start();
        producers.put(command.name(), producer);
        return null;
    }

    private Object shutdown(Command command) {
        producers.remove(command).shutdown();
        return null;
    }

    private Object send(Command command) throws Exception {
        TransactionMQProducer producer = producers.of(command);
        List<Object> results = new ArrayList<>();
        for (JsonObject wanted : command.objects("messages")) {
            TransactionSendResult sent =
                producer.sendMessageInTransaction(Producers.message(wanted), null);
            Map<String, Object> line = Producers.json(sent);
            line.put("transactionId", sent.getTransactionId());
            line.put("state", sent.getLocalTransactionState().name());
            results.add(line);
        }
        return results;
    }

    /** Does as the messages say, and tells the questions of the broker. */
    private final class Decisions implements TransactionListener {
        private final String name;
        private final Map<String, AtomicInteger> questions = new ConcurrentHashMap<>();

        Decisions(String name) {
            this.name = name;
        }

        @Override
        public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
            return LocalTransactionState.valueOf(message.getUserProperty(LOCAL));
        }

        @Override
        public LocalTransactionState checkLocalTransaction(MessageExt message) {
            String[] answers = message.getUserProperty(CHECKS).split(",");
            int number = questions
                .computeIfAbsent(message.getTransactionId(), id -> new AtomicInteger())
                .getAndIncrement();
            String answer = answers[Math.min(number, answers.length - 1)];
            Map<String, Object> content = new LinkedHashMap<>(MessageJson.full(message));
            content.put("transactionId", message.getTransactionId());
            content.put("answer", answer);
            content.put("receivedMs", System.currentTimeMillis());
            lines.event("question", name, content);
            return LocalTransactionState.valueOf(answer);
        }
    }
}
