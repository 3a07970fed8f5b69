"""What a NameServer tells Prometheus; RocketMQ's has no metrics, so all names are ours."""

from collections import Counter

from cometmq.namesrv.server import NameServer

from .exposition import Family, Labels, gauge
from .readiness import namesrv_troubles
from .request_metrics import latency_family


def namesrv_labels(server: NameServer) -> Labels:
    return {
        **server.state.config.metrics_labels(),
        "node_type": "nameserver",
        "node_id": str(server.address),
    }


async def namesrv_families(server: NameServer) -> list[Family]:
    routes = server.state.routes
    brokers = Counter(endpoint.cluster for endpoint in routes.broker_live_table)
    return [
        gauge(
            "cometmq_namesrv_topics", "Topics with a route", len(routes.topic_queue_table)
        ),
        gauge(
            "cometmq_namesrv_routes", "Pairs of topic and broker",
            sum(map(len, routes.topic_queue_table.values())),
        ),
        gauge("cometmq_namesrv_broker_names", "Broker names", len(routes.broker_addr_table)),
        Family(
            "cometmq_namesrv_brokers", "gauge", "Brokers that are alive, slaves included",
            [({"cluster": cluster}, count) for cluster, count in brokers.items()],
        ),
        gauge("cometmq_namesrv_connections", "Open connections", server.connections),
        latency_family(server.latencies),
        gauge("cometmq_namesrv_ready", "1 when /ready says so", int(not namesrv_troubles(server))),
    ]  # fmt: skip
