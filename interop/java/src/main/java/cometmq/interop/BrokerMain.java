package cometmq.interop;

import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.remoting.protocol.route.BrokerData;

/**
 * RocketMQ's BrokerStartup, and then its registration again until the name server knows the broker.
 *
 * <p>A broker skips its first registration, saying nothing, when the connection to the name server
 * is not yet up at that moment; it would try again only ten seconds later.
 */
public final class BrokerMain {
    private static final int ATTEMPTS_MAX = 50;
    private static final int INTERVAL_MS = 100;

    private BrokerMain() {
    }

    public static void main(String[] args) throws Exception {
        BrokerController broker = BrokerStartup.start(BrokerStartup.createBrokerController(args));
        for (int i = 0; i < ATTEMPTS_MAX && !isRegistered(broker); i++) {
            Thread.sleep(INTERVAL_MS);
            broker.registerBrokerAll(true, false, true);
        }
    }

    private static boolean isRegistered(BrokerController broker) throws Exception {
        for (BrokerData known
            : broker.getBrokerOuterAPI().getBrokerClusterInfo().getBrokerAddrTable().values()) {
            if (known.getBrokerAddrs().containsValue(broker.getBrokerAddr())) {
                return true;
            }
        }
        return false;
    }
}
