"""What a broker tells Prometheus: RocketMQ 5's names and labels where it has them, ours begin with
`cometmq_`. Everything is read from what the broker keeps anyway, when somebody asks.
"""

import asyncio
import shutil
from collections import Counter
from typing import Final

from cometmq.broker.broker import Broker
from cometmq.broker.context import Context
from cometmq.broker.groups import is_system_group
from cometmq.broker.lag import Lag, lags
from cometmq.broker.parts import Parts
from cometmq.broker.stats import (
    COMMITTED_NUMS,
    GROUP_GET_NUMS,
    GROUP_GET_SIZE,
    ROLLED_BACK_NUMS,
    TOPIC_PUT_NUMS,
)
from cometmq.broker.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC, group_of
from cometmq.protocol.codes import version_name
from cometmq.protocol.names import DEAD_LETTER_PREFIX

from .exposition import Family, Labels, counter, flag, gauge
from .readiness import broker_troubles
from .request_metrics import latency_family

LAGS_A_TURN: Final = 50
"""Looking at one takes some 10 µs a queue; others want answers meanwhile."""
_TYPE_ATTRIBUTE: Final = "message.type"
_STORAGE: Final = {"storage_type": "local", "storage_medium": "disk"}
"""RocketMQ tells its own store from a tiered one so."""


def broker_labels(broker: Broker) -> Labels:
    config = broker.parts.context.config
    return {
        **config.metrics_labels(),
        "node_type": "broker",
        "cluster": config.cluster,
        "node_id": config.name,
        "broker_id": str(config.broker_id),
    }


async def broker_families(broker: Broker) -> list[Family]:
    parts, context = broker.parts, broker.parts.context
    context.turns.catch_up()
    return [
        *_traffic(context),
        latency_family(broker.latencies),
        *_clients(broker),
        *await _lags(context),
        *_waiting(parts),
        *_storage(context),
        *_disk(context),
        *_replication(context),
        *_group(context),
        gauge("cometmq_ready", "1 when /ready says so", int(not broker_troubles(broker))),
    ]


# -- traffic -------------------------------------------------------------------------------------


def _traffic(context: Context) -> list[Family]:
    stats = context.stats
    into = [(_topic_labels(context, name), traffic) for name, traffic in stats.topics.items()]
    return [
        Family(
            "rocketmq_messages_in_total", "counter", "Messages taken",
            [(labels, traffic.put.total) for labels, traffic in into],
        ),
        Family(
            "rocketmq_throughput_in_total", "counter", "Bytes of messages taken, as stored",
            [(labels, traffic.put_bytes.total) for labels, traffic in into],
        ),
        Family(
            "rocketmq_message_size", "histogram", "Bytes of a message taken, as stored",
            [(labels, traffic.size_histogram()) for labels, traffic in into],
        ),
        Family(
            "rocketmq_messages_out_total", "counter", "Messages handed out",
            [(_reader_labels(context, key), n) for key, n in stats.totals(GROUP_GET_NUMS)],
        ),
        Family(
            "rocketmq_throughput_out_total", "counter", "Bytes of messages handed out",
            [(_reader_labels(context, key), n) for key, n in stats.totals(GROUP_GET_SIZE)],
        ),
        Family(
            "rocketmq_send_to_dlq_messages_total", "counter", "Messages put to the dead letters",
            [
                ({"consumer_group": name.removeprefix(DEAD_LETTER_PREFIX)}, total)
                for name, total in stats.totals(TOPIC_PUT_NUMS)
                if name.startswith(DEAD_LETTER_PREFIX)
            ],
        ),
        Family(
            "rocketmq_commit_messages_total", "counter", "Transactions committed",
            [({"topic": topic}, total) for topic, total in stats.totals(COMMITTED_NUMS)],
        ),
        Family(
            "rocketmq_rollback_messages_total", "counter", "Transactions rolled back",
            [({"topic": topic}, total) for topic, total in stats.totals(ROLLED_BACK_NUMS)],
        ),
        counter("cometmq_sends_failed_total", "Messages refused", stats.put_failed.total),
        Family(
            "cometmq_pulls_total", "counter", "Pulls answered",
            [
                ({"result": "found"}, stats.pulls_found.total),
                ({"result": "empty"}, stats.pulls_missed.total),
            ],
        ),
        Family(
            "cometmq_send_latency_seconds", "histogram",
            "Time from the append of a send until it may be acknowledged",
            [({}, context.turns.latency)],
        ),
    ]  # fmt: skip


def _topic_labels(context: Context, name: str) -> Labels:
    return {
        "topic": name,
        "message_type": _message_type(context, name),
        "is_system": flag(context.topics.is_system(name)),
    }


def _message_type(context: Context, name: str) -> str:
    """By the topic: to look at each message would cost more than it tells."""
    if name in (SCHEDULE_TOPIC, TIMER_TOPIC):
        return "delay"
    if name == HALF_TOPIC:
        return "transaction"
    topic = context.topics.get(name)
    return topic.attributes.get(_TYPE_ATTRIBUTE, "NORMAL").lower() if topic else "normal"


def _reader_labels(context: Context, key: str) -> Labels:
    topic, _, group = key.rpartition("@")
    return _group_labels(context, topic, group)


def _group_labels(context: Context, topic: str, group: str) -> Labels:
    return {
        "topic": topic,
        "consumer_group": group,
        "is_retry": flag(group_of(topic) is not None),
        "is_system": flag(context.topics.is_system(topic) or is_system_group(group)),
    }


# -- clients and groups --------------------------------------------------------------------------


def _clients(broker: Broker) -> list[Family]:
    context = broker.parts.context
    producers = Counter(
        (member.language.name.lower(), version_name(member.version).lower())
        for members in context.clients.producer_groups().values()
        for member in members
    )
    consumers = Counter(
        (group.name, group.consume_type, member.language.name.lower(),
         version_name(member.version).lower())
        for group in context.clients.consumer_groups()
        for member in group.members.values()
    )  # fmt: skip
    return [
        Family(
            "rocketmq_producer_connections", "gauge", "Producers that are online",
            [
                ({"language": language, "version": version, "protocol_type": "remoting"}, count)
                for (language, version), count in producers.items()
            ],
        ),
        Family(
            "rocketmq_consumer_connections", "gauge", "Consumers that are online",
            [
                (
                    {
                        "consumer_group": group, "consume_mode": _mode(mode),
                        "language": language, "version": version, "protocol_type": "remoting",
                        "is_system": flag(is_system_group(group)),
                    },
                    count,
                )
                for (group, mode, language, version), count in consumers.items()
            ],
        ),
        gauge("cometmq_connections", "Open connections of all kinds", broker.connections),
        gauge("rocketmq_topic_number", "Topics", len(context.topics)),
        gauge("rocketmq_consumer_group_number", "Consumer groups", len(list(context.groups))),
        gauge("rocketmq_broker_permission", "brokerPermission", context.config.permission),
    ]  # fmt: skip


def _mode(consume_type: str) -> str:
    """`CONSUME_PASSIVELY` is what a push consumer calls itself."""
    return "push" if consume_type == "CONSUME_PASSIVELY" else "pull"


async def _lags(context: Context) -> list[Family]:
    found: list[tuple[Labels, Lag]] = []
    for lag in lags(context):
        found.append((_group_labels(context, lag.topic, lag.group), lag))
        if len(found) % LAGS_A_TURN == 0:
            await asyncio.sleep(0)
    now_ms = context.clock.now_ms()
    return [
        Family(
            "rocketmq_consumer_lag_messages", "gauge", "Messages that a group has not consumed",
            [(labels, lag.unconsumed) for labels, lag in found],
        ),
        Family(
            "rocketmq_consumer_lag_latency_milliseconds", "gauge",
            "How long the first message that a group has not consumed has been there",
            [(labels, _age(lag.unconsumed_since_ms, now_ms)) for labels, lag in found],
        ),
        Family(
            "rocketmq_consumer_inflight_messages", "gauge",
            "Messages handed out to a group and not committed yet",
            [(labels, lag.in_flight) for labels, lag in found],
        ),
        Family(
            "rocketmq_consumer_ready_messages", "gauge", "Messages not handed out to a group yet",
            [(labels, lag.unpulled) for labels, lag in found],
        ),
        Family(
            "rocketmq_consumer_queueing_latency_milliseconds", "gauge",
            "How long the first message not handed out to a group has been there",
            [(labels, _age(lag.unpulled_since_ms, now_ms)) for labels, lag in found],
        ),
    ]  # fmt: skip


def _age(since_ms: int | None, now_ms: int) -> int:
    return max(now_ms - since_ms, 0) if since_ms is not None else 0


# -- what waits ----------------------------------------------------------------------------------


def _waiting(parts: Parts) -> list[Family]:
    context, timers = parts.context, parts.duties.timers
    timed = [] if timers is None else [timers]
    return [
        Family(
            "rocketmq_processor_watermark", "gauge", "Requests that wait, by kind",
            [({"processor": "send"}, parts.inbox.waiting)],
        ),
        gauge(
            "cometmq_long_polls_held", "Pulls that wait for a message", len(context.waiting_pulls)
        ),
        gauge(
            "rocketmq_half_messages", "Transactions not decided",
            len(parts.duties.transactions.halves),
        ),
        Family(
            "rocketmq_timing_messages", "gauge", "Messages that wait for a time of their own",
            [({}, timer.waiting) for timer in timed],
        ),
        Family(
            "rocketmq_timer_enqueue_lag", "gauge",
            "Messages with a time of their own that are not in the wheel yet",
            [({}, timer.behind) for timer in timed],
        ),
    ]  # fmt: skip


# -- store and slaves ----------------------------------------------------------------------------


def _storage(context: Context) -> list[Family]:
    store = context.store
    first = store.message_at(store.commit_log.start_offset)
    ages = [] if first is None else [_age(first.store_timestamp, context.clock.now_ms())]
    return [
        gauge(
            "rocketmq_storage_flush_behind_bytes", "Log not on disk yet",
            max(store.appended.value - store.flushed.value, 0), **_STORAGE,
        ),
        gauge(
            "rocketmq_storage_dispatch_behind_bytes", "Log not readable yet",
            max(store.appended.value - store.dispatched.value, 0), **_STORAGE,
        ),
        Family(
            "rocketmq_storage_message_reserve_time_milliseconds", "gauge",
            "Age of the oldest message", [(_STORAGE, age) for age in ages],
        ),
        gauge(
            "cometmq_storage_log_bytes", "From the oldest message to the end of the log",
            store.appended.value - store.commit_log.start_offset,
        ),
        gauge("cometmq_storage_queues", "ConsumeQueues", len(store.queues)),
    ]  # fmt: skip


def _disk(context: Context) -> list[Family]:
    config = context.store.config
    usage = shutil.disk_usage(config.root)
    # As everywhere here: the root user's reserve is nobody's space.
    whole = usage.used + usage.free
    refused_at = whole * config.disk_full_percent // 100
    return [
        gauge(
            "rocketmq_storage_size_bytes", "Space used on the store's disk", usage.used, **_STORAGE
        ),
        gauge("cometmq_storage_disk_free_bytes", "Space left on the store's disk", usage.free),
        gauge(
            "cometmq_storage_disk_headroom_bytes",
            "Space left until messages are refused (diskSpaceWarningLevelRatio)",
            max(refused_at - usage.used, 0),
        ),
        gauge(
            "cometmq_storage_writable", "1 when the store takes messages",
            int(context.store.trouble is None),
        ),
    ]  # fmt: skip


def _replication(context: Context) -> list[Family]:
    end, slaves, follower = context.store.appended.value, context.slaves, context.follower
    links = [] if slaves is None else [({"slave": str(link.peer)}, link) for link in slaves]
    behind = None if follower is None else follower.behind
    return [
        Family(
            "cometmq_replication_lag_bytes", "gauge",
            "Log that a slave has not acknowledged, told by its master",
            [(labels, end - max(link.acknowledged, 0)) for labels, link in links],
        ),
        Family(
            "cometmq_replication_in_sync", "gauge", "1 when a slave is in sync",
            [
                (labels, int(slaves is not None and slaves.is_in_sync(link)))
                for labels, link in links
            ],
        ),
        Family(
            "cometmq_replication_following", "gauge", "1 when this slave follows its master",
            [] if follower is None else [({}, int(follower.is_following))],
        ),
        Family(
            "cometmq_replication_behind_bytes", "gauge",
            "Log that this slave lacks, by the last its master told",
            [] if behind is None else [({}, behind)],
        ),
    ]  # fmt: skip


def _group(context: Context) -> list[Family]:
    """Of a member of a Raft group."""
    quorum, end = context.quorum, context.store.appended.value
    if quorum is None:
        return []
    others = quorum.others() if quorum.serves else []
    return [
        gauge("cometmq_raft_epoch", "The epoch of this member's group", quorum.epoch),
        gauge("cometmq_raft_leading", "1 when this member leads", int(quorum.serves)),
        gauge(
            "cometmq_raft_unconfirmed_bytes", "Log that a majority has not stored, as known here",
            max(end - context.store.confirmed.value, 0),
        ),
        Family(
            "cometmq_raft_member_behind_bytes", "gauge",
            "Log that another member has not stored, told by the leader",
            [({"member": member}, max(end - quorum.stored_by(member), 0)) for member in others],
        ),
    ]  # fmt: skip
