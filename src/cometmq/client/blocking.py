"""The clients with calls that block, for scripts and threads: the same classes, without `await`.

Made by tools/blocking_twin.py out of the asyncio clients, which say what everything does: change
those and run `make twin`. All clients of a process share one event loop in a background thread. A
call takes as long as the asyncio one, its errors are raised here, and Ctrl-C cancels it.
"""

import datetime as dt
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

from cometmq.client.admin import admin as admin_admin
from cometmq.client.admin import brokers as admin_brokers
from cometmq.client.admin import groups as admin_groups
from cometmq.client.admin import members as admin_members
from cometmq.client.admin import messages as admin_messages
from cometmq.client.admin import namesrvs as admin_namesrvs
from cometmq.client.admin import offsets as admin_offsets
from cometmq.client.admin import topics as admin_topics
from cometmq.client.admin.brokers import BrokerStats, RuntimeInfo
from cometmq.client.admin.groups import TimeSpan
from cometmq.client.admin.members import GroupMembers, Member, OnlineProducer, RunningInfo
from cometmq.client.admin.messages import _TIME_MAX, RESULTS_MAX, Consumed
from cometmq.client.admin.moments import Moment
from cometmq.client.admin.offsets import Place
from cometmq.client.admin.progress import BrokerProgress, GroupProgress, TopicStats
from cometmq.client.admin.reach import BrokerNode
from cometmq.client.admin.topics import QUEUES, Permission
from cometmq.client.admin.traces import TRACE_TOPIC, Trace
from cometmq.client.allocation import Allocation
from cometmq.client.cluster import Cluster
from cometmq.client.consumer import pull as consumer_pull
from cometmq.client.consumer import push as consumer_push
from cometmq.client.consumer.handling import BatchHandler, Handler
from cometmq.client.consumer.options import (
    PullConsumerOptions,
    PullKeywords,
    PushKeywords,
    PushOptions,
)
from cometmq.client.consumer.pull import POLL_MESSAGES
from cometmq.client.consumer.subscriptions import ConsumeFrom, Filter, Model, Wanted
from cometmq.client.message import Message
from cometmq.client.producer import producer as producer_producer
from cometmq.client.producer import transactions as producer_transactions
from cometmq.client.producer.options import ProducerKeywords, ProducerOptions
from cometmq.client.producer.results import SendResult
from cometmq.client.producer.transactions import Check, LocalTransaction, TransactionResult
from cometmq.client.received import ReceivedMessage
from cometmq.client.selectors import Selector
from cometmq.client.shared_loop import Home
from cometmq.clock import Clock
from cometmq.protocol.group_config import GroupConfig
from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.raft_group import GroupStatus
from cometmq.protocol.routes import ClusterInfo, TopicRoute
from cometmq.protocol.subscription import ALL, SubscriptionData
from cometmq.protocol.topic_config import TopicConfig

__all__ = [
    "Admin",
    "Brokers",
    "Groups",
    "Members",
    "Messages",
    "Namesrvs",
    "Offsets",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "Topics",
    "TransactionProducer",
]


class Brokers:
    _inner: admin_brokers.Brokers

    def __init__(self, inner: admin_brokers.Brokers, home: Home) -> None:
        self._inner = inner
        self._home = home

    def nodes(self, *, cluster: str = "") -> list[BrokerNode]:
        """All brokers, slaves too."""
        return self._home.call(self._inner.nodes(cluster=cluster))

    def cluster_info(self) -> ClusterInfo:
        return self._home.call(self._inner.cluster_info())

    def runtime_info(
        self, *, cluster: str = "", brokers: Collection[str] = (), skip_unreachable: bool = False
    ) -> dict[str, RuntimeInfo]:
        return self._home.call(
            self._inner.runtime_info(
                cluster=cluster, brokers=brokers, skip_unreachable=skip_unreachable
            )
        )

    def config(
        self, *, cluster: str = "", brokers: Collection[str] = (), skip_unreachable: bool = False
    ) -> dict[str, dict[str, str]]:
        return self._home.call(
            self._inner.config(cluster=cluster, brokers=brokers, skip_unreachable=skip_unreachable)
        )

    def progress(
        self,
        *,
        ordered_only: bool = False,
        cluster: str = "",
        brokers: Collection[str] = (),
        skip_unreachable: bool = False,
    ) -> dict[str, BrokerProgress]:
        """How far all groups are in all topics, or in those whose order matters."""
        return self._home.call(
            self._inner.progress(
                ordered_only=ordered_only,
                cluster=cluster,
                brokers=brokers,
                skip_unreachable=skip_unreachable,
            )
        )

    def stats(self, broker: str, name: str, key: str) -> BrokerStats:
        """One of a broker's counters, as `TOPIC_PUT_NUMS` of a topic or `GROUP_GET_NUMS` of
        `topic@group`. BrokerFailed when nothing has been counted under that key yet.
        """
        return self._home.call(self._inner.stats(broker, name, key))

    def update_config(
        self, changes: Mapping[str, object], *, cluster: str = "", brokers: Collection[str] = ()
    ) -> None:
        """Change settings of running brokers."""
        return self._home.call(self._inner.update_config(changes, cluster=cluster, brokers=brokers))

    def forbid_writes(self, broker: str) -> dict[str, int]:
        """Take the permission to write from all topics of a broker, so that producers leave it.
        How many topics that were, by NameServer.
        """
        return self._home.call(self._inner.forbid_writes(broker))

    def allow_writes(self, broker: str) -> dict[str, int]:
        """Undo `forbid_writes`."""
        return self._home.call(self._inner.allow_writes(broker))

    def clean_expired_queues(self, *, cluster: str = "", brokers: Collection[str] = ()) -> None:
        """Delete files of queues and index whose messages are gone."""
        return self._home.call(self._inner.clean_expired_queues(cluster=cluster, brokers=brokers))

    def clean_unused_topics(self, *, cluster: str = "", brokers: Collection[str] = ()) -> None:
        """Delete queues of topics that are no more."""
        return self._home.call(self._inner.clean_unused_topics(cluster=cluster, brokers=brokers))

    def delete_expired_log(self, *, cluster: str = "", brokers: Collection[str] = ()) -> None:
        """Delete files of the CommitLog that are over their time, now instead of at their hour."""
        return self._home.call(self._inner.delete_expired_log(cluster=cluster, brokers=brokers))

    def raft_status(self, broker: str) -> GroupStatus:
        """A Raft group as one of its members sees it: the leader, for a broker's name; or the one
        at an address.
        """
        return self._home.call(self._inner.raft_status(broker))

    def transfer(self, broker: str, to: str = "") -> GroupStatus:
        """Let another member of a broker's Raft group lead: `n1`, or whoever has most of the log.
        The group when it is led again, also where that is another member than was wished.
        """
        return self._home.call(self._inner.transfer(broker, to))

    def add_member(self, broker: str, member: str) -> GroupStatus:
        """Let a broker join a Raft group: `n3-host:port`, which runs with `raft.join=true`."""
        return self._home.call(self._inner.add_member(broker, member))

    def remove_member(self, broker: str, member: str) -> GroupStatus:
        """Let a member leave its Raft group; its id is not to be used again."""
        return self._home.call(self._inner.remove_member(broker, member))


class Groups:
    _inner: admin_groups.Groups

    def __init__(self, inner: admin_groups.Groups, home: Home) -> None:
        self._inner = inner
        self._home = home

    def names(
        self, *, cluster: str = "", internal: bool = False, skip_unreachable: bool = False
    ) -> list[str]:
        """The names of all consumer groups that have settings. `internal`: the system's, too."""
        return self._home.call(
            self._inner.names(cluster=cluster, internal=internal, skip_unreachable=skip_unreachable)
        )

    def config(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> dict[str, GroupConfig]:
        """The settings at every broker that has the group, by broker name."""
        return self._home.call(self._inner.config(group, cluster=cluster, brokers=brokers))

    def progress(
        self, group: str, topic: str = "", *, skip_unreachable: bool = False
    ) -> GroupProgress:
        """How far the group is in every queue of its topics, or of one; its lag, and its rate."""
        return self._home.call(
            self._inner.progress(group, topic, skip_unreachable=skip_unreachable)
        )

    def topics(self, group: str, *, skip_unreachable: bool = False) -> list[str]:
        """The topics in which the group has offsets."""
        return self._home.call(self._inner.topics(group, skip_unreachable=skip_unreachable))

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """What the group, if it is online, wants of a topic."""
        return self._home.call(self._inner.subscription(group, topic))

    def time_spans(self, group: str, topic: str) -> list[TimeSpan]:
        """By queue: from when to when messages are, and where the group is."""
        return self._home.call(self._inner.time_spans(group, topic))

    def create(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = (), **settings: Any
    ) -> None:
        """Create a group; one that is there gets these settings, and the defaults of all others.
        Settings are the fields of `GroupConfig`, as in `retry_max_times=3`.
        """
        return self._home.call(
            self._inner.create(group, cluster=cluster, brokers=brokers, **settings)
        )

    def update(
        self, group: str, *, cluster: str = "", brokers: Collection[str] = (), **settings: Any
    ) -> None:
        """Change some settings of a group and leave the others."""
        return self._home.call(
            self._inner.update(group, cluster=cluster, brokers=brokers, **settings)
        )

    def delete(
        self,
        group: str,
        *,
        cluster: str = "",
        keep_offsets: bool = False,
        keep_topics: bool = False,
    ) -> None:
        """Delete a group, its offsets, and its topics for retries and dead letters."""
        return self._home.call(
            self._inner.delete(
                group, cluster=cluster, keep_offsets=keep_offsets, keep_topics=keep_topics
            )
        )


class Members:
    _inner: admin_members.Members

    def __init__(self, inner: admin_members.Members, home: Home) -> None:
        self._inner = inner
        self._home = home

    def of_group(self, group: str, *, skip_unreachable: bool = False) -> GroupMembers:
        """The members of a consumer group and what they subscribe to; ConsumerNotOnline when
        there are none.
        """
        return self._home.call(self._inner.of_group(group, skip_unreachable=skip_unreachable))

    def running_info(self, group: str, client_id: str, *, stacks: bool = False) -> RunningInfo:
        """What a member of a group is doing, told by itself; its threads, too, if asked."""
        return self._home.call(self._inner.running_info(group, client_id, stacks=stacks))

    def producers_of(self, group: str, *, skip_unreachable: bool = False) -> list[Member]:
        """The members of a producer group; none when nobody is there."""
        return self._home.call(self._inner.producers_of(group, skip_unreachable=skip_unreachable))

    def producers(self, *, skip_unreachable: bool = False) -> dict[str, list[OnlineProducer]]:
        """All producers by their groups."""
        return self._home.call(self._inner.producers(skip_unreachable=skip_unreachable))


class Messages:
    _inner: admin_messages.Messages

    def __init__(self, inner: admin_messages.Messages, home: Home) -> None:
        self._inner = inner
        self._home = home

    def view(self, offset_message_id: str, *, topic: str = "") -> ReceivedMessage:
        """The message at a place, which the id tells together with its broker."""
        return self._home.call(self._inner.view(offset_message_id, topic=topic))

    def at(self, queue: MessageQueue, offset: int) -> ReceivedMessage:
        """The message at an offset of a queue; NotFound when there is none."""
        return self._home.call(self._inner.at(queue, offset))

    def by_id(self, topic: str, message_id: str) -> list[ReceivedMessage]:
        """The messages of a topic with this unique id, oldest first. What was sent again after an
        answer that never came is there twice.
        """
        return self._home.call(self._inner.by_id(topic, message_id))

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        begin: Moment = 0,
        end: Moment = _TIME_MAX,
        limit: int = RESULTS_MAX,
    ) -> list[ReceivedMessage]:
        """The messages of a topic with this key that were stored from `begin` on and before `end`,
        oldest first; of each broker the newest, up to the limit.
        """
        return self._home.call(self._inner.by_key(topic, key, begin=begin, end=end, limit=limit))

    def trace(self, message_id: str, *, trace_topic: str = TRACE_TOPIC) -> list[Trace]:
        """What producers and consumers that trace have reported about a message, in order."""
        return self._home.call(self._inner.trace(message_id, trace_topic=trace_topic))

    def read(
        self,
        queue: MessageQueue,
        *,
        start: int | None = None,
        stop: int | None = None,
        tags: str = ALL,
    ) -> Generator[ReceivedMessage, None, None]:
        """The messages of a queue from offset `start` up to but not including `stop`; without
        them, all that are there now.
        """
        return self._home.iterate(self._inner.read(queue, start=start, stop=stop, tags=tags))

    def follow(
        self, queue: MessageQueue, *, start: int, tags: str = ALL
    ) -> Generator[ReceivedMessage, None, None]:
        """The messages of a queue from offset `start` on, as they come, without end. Raises when
        the broker is away; who wants to go on follows from the next offset.
        """
        return self._home.iterate(self._inner.follow(queue, start=start, tags=tags))

    def read_topic(
        self, topic: str, *, begin: Moment | None = None, end: Moment | None = None, tags: str = ALL
    ) -> Generator[ReceivedMessage, None, None]:
        """The messages of a topic, queue by queue: those stored from `begin` on and before `end`;
        without them, all that are there now.
        """
        return self._home.iterate(self._inner.read_topic(topic, begin=begin, end=end, tags=tags))

    def consume_directly(
        self, group: str, client_id: str, offset_message_id: str, *, topic: str = ""
    ) -> Consumed:
        """Have one member of a group consume a message now, whatever its place in the queue."""
        return self._home.call(
            self._inner.consume_directly(group, client_id, offset_message_id, topic=topic)
        )


class Namesrvs:
    _inner: admin_namesrvs.Namesrvs

    def __init__(self, inner: admin_namesrvs.Namesrvs, home: Home) -> None:
        self._inner = inner
        self._home = home

    def config(self) -> dict[str, dict[str, str]]:
        """The settings of every NameServer, by its address."""
        return self._home.call(self._inner.config())

    def update_config(self, changes: Mapping[str, object]) -> None:
        """Change settings of all running NameServers."""
        return self._home.call(self._inner.update_config(changes))

    def get(self, namespace: str, key: str) -> str | None:
        return self._home.call(self._inner.get(namespace, key))

    def put(self, namespace: str, key: str, value: str) -> None:
        return self._home.call(self._inner.put(namespace, key, value))

    def get_from_most(self, namespace: str, key: str) -> list[str]:
        """What more than half of the NameServers have, those left out that have nothing. Which one
        is right, the value itself must tell.
        """
        return self._home.call(self._inner.get_from_most(namespace, key))

    def put_to_most(self, namespace: str, key: str, value: str) -> None:
        """To all of them; done when more than half have it."""
        return self._home.call(self._inner.put_to_most(namespace, key, value))

    def delete(self, namespace: str, key: str) -> None:
        """A value that is not there counts as deleted."""
        return self._home.call(self._inner.delete(namespace, key))

    def values(self, namespace: str) -> dict[str, str]:
        """Everything in a namespace; nothing when there is no such namespace."""
        return self._home.call(self._inner.values(namespace))


class Offsets:
    _inner: admin_offsets.Offsets

    def __init__(self, inner: admin_offsets.Offsets, home: Home) -> None:
        self._inner = inner
        self._home = home

    def min(self, queue: MessageQueue) -> int:
        """The offset of the first message that the queue still has."""
        return self._home.call(self._inner.min(queue))

    def max(self, queue: MessageQueue) -> int:
        """The offset that the queue's next message will get."""
        return self._home.call(self._inner.max(queue))

    def search(self, queue: MessageQueue, when: Place) -> int:
        return self._home.call(self._inner.search(queue, when))

    def search_topic(self, topic: str, when: Place) -> dict[MessageQueue, int]:
        """The offsets of a moment in all queues of a topic."""
        return self._home.call(self._inner.search_topic(topic, when))

    def committed(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Where a group will go on; queues of which it has no offset are left out, or at 0 where
        brokers before 5.0 tell it so.
        """
        return self._home.call(self._inner.committed(group, topic))

    def commit(self, group: str, offsets: Mapping[MessageQueue, int]) -> frozenset[MessageQueue]:
        """Commit as a member of the group would. The answer has the queues in which that counts
        for nothing, since a reset stands: the group's next pull there takes it (`take_reset`),
        `set` moves it.
        """
        return self._home.call(self._inner.commit(group, offsets))

    def take_reset(self, group: str, queue: MessageQueue) -> None:
        """Have the broker know that the group has heard of a reset there, if one stands: from now
        on commits count. A pull in its name does that; what it brings is left alone.
        """
        return self._home.call(self._inner.take_reset(group, queue))

    def reset(self, group: str, topic: str, to: Place) -> dict[MessageQueue, int]:
        """Have a group go on at a moment, at the beginning (`"earliest"`) or the end (`"latest"`)
        of every queue. The answer says where that is. Brokers before 5.2 move only groups that
        have offsets there already.
        """
        return self._home.call(self._inner.reset(group, topic, to))

    def skip(self, group: str, topic: str) -> dict[MessageQueue, int]:
        """Have a group leave out all messages that are there now."""
        return self._home.call(self._inner.skip(group, topic))

    def set(self, group: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Have a group go on at these offsets. At brokers before 5.2 that is a commit."""
        return self._home.call(self._inner.set(group, offsets))

    def clone(self, source: str, target: str, topic: str, *, offline: bool = True) -> None:
        """Have one group go on where another one is. Without `offline` only in topics that the
        source, if it is online, subscribes to.
        """
        return self._home.call(self._inner.clone(source, target, topic, offline=offline))


class Topics:
    _inner: admin_topics.Topics

    def __init__(self, inner: admin_topics.Topics, home: Home) -> None:
        self._inner = inner
        self._home = home

    def names(self, *, cluster: str = "", internal: bool = False) -> list[str]:
        """The names of all topics. `internal`: also those of the system, and those of groups for
        retries and dead letters.
        """
        return self._home.call(self._inner.names(cluster=cluster, internal=internal))

    def route(self, topic: str) -> TopicRoute:
        """The brokers and queues of a topic as the NameServer has them."""
        return self._home.call(self._inner.route(topic))

    def clusters(self, topic: str) -> list[str]:
        """The clusters that have the topic."""
        return self._home.call(self._inner.clusters(topic))

    def stats(self, topic: str, route: TopicRoute | None = None) -> TopicStats:
        """What every queue has, and how fast messages come in; as the brokers of a route tell it,
        if one is given.
        """
        return self._home.call(self._inner.stats(topic, route))

    def config(
        self, topic: str, *, cluster: str = "", brokers: Collection[str] = ()
    ) -> dict[str, TopicConfig]:
        """The settings at every broker that has the topic, by broker name."""
        return self._home.call(self._inner.config(topic, cluster=cluster, brokers=brokers))

    def groups(self, topic: str) -> list[str]:
        """The groups that read the topic or have offsets in it, online or not."""
        return self._home.call(self._inner.groups(topic))

    def create(
        self,
        topic: str,
        *,
        queues: int = QUEUES,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int = Permission.READ_WRITE,
        ordered: bool = False,
        attributes: Mapping[str, str] | None = None,
        cluster: str = "",
        brokers: Collection[str] = (),
    ) -> None:
        """Create a topic; one that is there gets these settings. `ordered`: producers that go by
        the order of queues keep it when a broker is away. `attributes` as in
        `{"message.type": "FIFO"}`.
        """
        return self._home.call(
            self._inner.create(
                topic,
                queues=queues,
                read_queues=read_queues,
                write_queues=write_queues,
                permission=permission,
                ordered=ordered,
                attributes=attributes,
                cluster=cluster,
                brokers=brokers,
            )
        )

    def update(
        self,
        topic: str,
        *,
        read_queues: int | None = None,
        write_queues: int | None = None,
        permission: int | None = None,
        attributes: Mapping[str, str | None] | None = None,
        cluster: str = "",
        brokers: Collection[str] = (),
    ) -> None:
        """Change some settings of a topic and leave the others; an attribute that is None is
        removed.
        """
        return self._home.call(
            self._inner.update(
                topic,
                read_queues=read_queues,
                write_queues=write_queues,
                permission=permission,
                attributes=attributes,
                cluster=cluster,
                brokers=brokers,
            )
        )

    def delete(self, topic: str, *, cluster: str = "") -> None:
        """Delete a topic with its messages and its order; one that is not there, or only in part,
        counts as deleted after it.
        """
        return self._home.call(self._inner.delete(topic, cluster=cluster))

    def order(self, topic: str) -> dict[str, int]:
        """The number of queues at each broker of a topic whose order matters; else nothing."""
        return self._home.call(self._inner.order(topic))

    def set_order(self, topic: str, queues: Mapping[str, int] | None) -> None:
        """Say how many queues of a topic each broker has, by name; None: order does not matter."""
        return self._home.call(self._inner.set_order(topic, queues))


class Producer:
    """Sends messages to a cluster.

    with Producer("127.0.0.1:9876", group="orders") as producer:
        producer.send(Message("topic", b"body"))

    `ProducerOptions` has the other options: by their names, or several together as `options`.
    Ids and times of birth go by `clock`.
    """

    _inner: producer_producer.Producer

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        client_id: str = "",
        clock: Clock | None = None,
        options: ProducerOptions | None = None,
        **more: Unpack[ProducerKeywords],
    ) -> None:
        self._inner = producer_producer.Producer(
            cluster, group=group, client_id=client_id, clock=clock, options=options, **more
        )
        self._home = Home(self._inner)
        self.group = self._inner.group

    def __enter__(self) -> Self:
        self._home.call(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return self._home.call(self._inner.__aexit__(kind, error, trace))

    def start(self) -> None:
        """Connections are made when they are needed."""
        return self._home.call(self._inner.start())

    def stop(self) -> None:
        """Send what lingers, wait for answers as long as a send may take, and leave the cluster."""
        return self._home.call(self._inner.stop())

    @property
    def client_id(self) -> str:
        return self._home.run(lambda: self._inner.client_id)

    @property
    def in_flight(self) -> int:
        """Messages that linger or wait for their answers."""
        return self._home.run(lambda: self._inner.in_flight)

    def flush(self) -> None:
        """Send what lingers, and wait until everything sent so far has its answer or its error."""
        return self._home.call(self._inner.flush())

    def ready(self) -> None:
        """Wait until `send_nowait` has room for another message."""
        return self._home.call(self._inner.ready())

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout_s: float | None = None,
    ) -> SendResult:
        """Send and wait until it is stored; in `queue`, or the one that `selector` picks by `key`.

        Waits for room first if too much is in flight. Raises what the broker answered, SendFailed
        when several attempts failed, or another ClientError.
        """
        return self._home.call(
            self._inner.send(message, queue=queue, selector=selector, key=key, timeout_s=timeout_s)
        )

    def send_nowait(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
        timeout_s: float | None = None,
        callback: Callable[[Future[SendResult]], object] | None = None,
    ) -> Future[SendResult]:
        """Send without waiting. TooManyInFlight when there is no room: then `ready()`.

        The future gets the result or the error; `callback` is called with it when it is done.
        """
        return self._home.future(
            lambda: self._inner.send_nowait(
                message, queue=queue, selector=selector, key=key, timeout_s=timeout_s
            ),
            callback,
        )

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> None:
        """Send without an answer: nobody hears of it when it is lost. Waits for the network."""
        return self._home.call(
            self._inner.send_oneway(message, queue=queue, selector=selector, key=key)
        )

    def send_batch(
        self,
        messages: Sequence[Message],
        *,
        queue: MessageQueue | None = None,
        timeout_s: float | None = None,
    ) -> list[SendResult]:
        """Send messages of one topic in one request, to be stored one behind the other.

        `split_batches` makes batches that are small enough out of any number of messages.
        """
        return self._home.call(self._inner.send_batch(messages, queue=queue, timeout_s=timeout_s))

    def request(
        self,
        message: Message,
        *,
        timeout_s: float | None = None,
        queue: MessageQueue | None = None,
        selector: Selector | None = None,
        key: object = None,
    ) -> ReceivedMessage:
        """Send a message and wait for the reply of whoever consumes it (see `reply`)."""
        return self._home.call(
            self._inner.request(
                message, timeout_s=timeout_s, queue=queue, selector=selector, key=key
            )
        )

    def reply(self, request: ReceivedMessage, body: bytes) -> SendResult:
        """Answer a request that a consumer got; the broker hands it to the one who asked."""
        return self._home.call(self._inner.reply(request, body))

    def recall(self, topic: str, recall_handle: str) -> str:
        """Take a message back that waits for its time; its unique id.

        The handle is in its SendResult. IllegalOperation or NoPermission if it cannot be done.
        """
        return self._home.call(self._inner.recall(topic, recall_handle))


class TransactionProducer(Producer):
    """A producer whose messages may depend on work of its own.

    `check` is asked about transactions without a decision: an async function, or a plain one, which
    runs in a thread. Up to `checks_at_once` run at the same time.
    """

    _inner: producer_transactions.TransactionProducer

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        check: Check,
        checks_at_once: int = 16,
        client_id: str = "",
        clock: Clock | None = None,
        options: ProducerOptions | None = None,
        **more: Unpack[ProducerKeywords],
    ) -> None:
        self._inner = producer_transactions.TransactionProducer(
            cluster,
            group=group,
            check=check,
            checks_at_once=checks_at_once,
            client_id=client_id,
            clock=clock,
            options=options,
            **more,
        )
        self._home = Home(self._inner)
        self.group = self._inner.group

    def send_in_transaction(
        self, message: Message, local_transaction: LocalTransaction
    ) -> TransactionResult:
        """Store a message, do the work, and commit or roll back as the work decides.

        The work is not done when the message could not be stored safely; then it is rolled back.
        What the work raises is raised here; the broker will ask `check` what became of it.
        """
        return self._home.call(self._inner.send_in_transaction(message, local_transaction))


class PushConsumer:
    """Calls a handler for each message.

    with PushConsumer("127.0.0.1:9876", group="billing", topics="orders", handler=bill):
        asyncio.Event().wait()

    A handler returns None when it has consumed its message, `Later` when it is to come again.
    `PushOptions` has the other options: by their names, or several together as `options`.
    """

    _inner: consumer_push.PushConsumer

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        topics: Wanted,
        handler: Handler | None = None,
        batch_handler: BatchHandler | None = None,
        orderly: bool = False,
        model: Model = Model.CLUSTERING,
        consume_from: ConsumeFrom | dt.datetime = ConsumeFrom.LAST,
        allocation: Allocation | None = None,
        offsets_file: str | Path | None = None,
        client_id: str = "",
        options: PushOptions | None = None,
        **more: Unpack[PushKeywords],
    ) -> None:
        """`offsets_file` keeps the progress of a member of a broadcasting group."""
        self._inner = consumer_push.PushConsumer(
            cluster,
            group=group,
            topics=topics,
            handler=handler,
            batch_handler=batch_handler,
            orderly=orderly,
            model=model,
            consume_from=consume_from,
            allocation=allocation,
            offsets_file=offsets_file,
            client_id=client_id,
            options=options,
            **more,
        )
        self._home = Home(self._inner)

    def start(self) -> None:
        """Returns when this member has its queues. A filter that cannot be read is refused."""
        return self._home.call(self._inner.start())

    def stop(self) -> None:
        """Let handlers that have begun end, commit, leave the group."""
        return self._home.call(self._inner.stop())

    def __enter__(self) -> Self:
        self._home.call(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return self._home.call(self._inner.__aexit__(kind, error, traceback))

    @property
    def client_id(self) -> str:
        return self._home.run(lambda: self._inner.client_id)

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that this member has now."""
        return self._home.run(lambda: self._inner.queues)

    def subscribe(self, topic: str, wanted: Filter = "*") -> None:
        """Add a topic, or change what is wanted of it."""
        return self._home.call(self._inner.subscribe(topic, wanted))

    def unsubscribe(self, topic: str) -> None:
        return self._home.call(self._inner.unsubscribe(topic))

    def pause(self) -> None:
        """Read no further, until `resume`. What was read already is still handled."""
        return self._home.run(self._inner.pause)

    def resume(self) -> None:
        return self._home.run(self._inner.resume)


class PullConsumer:
    """Takes messages when it likes.

    with PullConsumer("127.0.0.1:9876", group="audit", topics="orders") as consumer:
        for message in consumer:
            ...

    `PullConsumerOptions` has the other options: by their names, or several together as `options`.
    """

    _inner: consumer_pull.PullConsumer

    def __init__(
        self,
        cluster: str | Cluster,
        *,
        group: str,
        topics: Wanted = (),
        model: Model = Model.CLUSTERING,
        consume_from: ConsumeFrom | dt.datetime = ConsumeFrom.LAST,
        allocation: Allocation | None = None,
        offsets_file: str | Path | None = None,
        client_id: str = "",
        options: PullConsumerOptions | None = None,
        **more: Unpack[PullKeywords],
    ) -> None:
        self._inner = consumer_pull.PullConsumer(
            cluster,
            group=group,
            topics=topics,
            model=model,
            consume_from=consume_from,
            allocation=allocation,
            offsets_file=offsets_file,
            client_id=client_id,
            options=options,
            **more,
        )
        self._home = Home(self._inner)

    def start(self) -> None:
        return self._home.call(self._inner.start())

    def stop(self) -> None:
        """Commit what was consumed, unless that is left to `commit()`, and leave the group."""
        return self._home.call(self._inner.stop())

    def __enter__(self) -> Self:
        self._home.call(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return self._home.call(self._inner.__aexit__(kind, error, traceback))

    def poll(
        self, timeout_s: float = 5.0, messages_max: int = POLL_MESSAGES
    ) -> list[ReceivedMessage]:
        """The next messages, at least one unless the time is up. Those before are consumed now."""
        return self._home.call(self._inner.poll(timeout_s, messages_max))

    def __iter__(self) -> Iterator[ReceivedMessage]:
        """Messages without end, until the consumer is stopped."""
        return self._home.iterate(self._inner.__aiter__())

    @property
    def client_id(self) -> str:
        return self._home.run(lambda: self._inner.client_id)

    @property
    def queues(self) -> list[MessageQueue]:
        """Those that this consumer reads now."""
        return self._home.run(lambda: self._inner.queues)

    def queues_of(self, topic: str) -> list[MessageQueue]:
        """All queues of a topic that can be read."""
        return self._home.call(self._inner.queues_of(topic))

    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read exactly these queues, whoever else reads them."""
        return self._home.call(self._inner.assign(queues))

    def subscribe(self, topic: str, wanted: Filter = "*") -> None:
        """Add a topic, or change what is wanted of it."""
        return self._home.call(self._inner.subscribe(topic, wanted))

    def unsubscribe(self, topic: str) -> None:
        return self._home.call(self._inner.unsubscribe(topic))

    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Read these no further. What was read already is still given out."""
        return self._home.run(lambda: self._inner.pause(queues))

    def resume(self, queues: Iterable[MessageQueue]) -> None:
        return self._home.run(lambda: self._inner.resume(queues))

    def seek(self, queue: MessageQueue, offset: int) -> None:
        """Go on with the message at this offset."""
        return self._home.run(lambda: self._inner.seek(queue, offset))

    def seek_to_beginning(self, queue: MessageQueue) -> None:
        return self._home.call(self._inner.seek_to_beginning(queue))

    def seek_to_end(self, queue: MessageQueue) -> None:
        return self._home.call(self._inner.seek_to_end(queue))

    def commit(self) -> None:
        """Write down that everything given out so far is consumed. Raises when that fails."""
        return self._home.call(self._inner.commit())

    def committed(self, queue: MessageQueue) -> int | None:
        """Where the group is; None when it has read nothing of this queue."""
        return self._home.call(self._inner.committed(queue))

    def position(self, queue: MessageQueue) -> int | None:
        """What would be committed now; None while it is not known where to begin."""
        return self._home.run(lambda: self._inner.position(queue))

    def min_offset(self, queue: MessageQueue) -> int:
        return self._home.call(self._inner.min_offset(queue))

    def max_offset(self, queue: MessageQueue) -> int:
        """The offset of the next message that will come."""
        return self._home.call(self._inner.max_offset(queue))

    def offset_at(self, queue: MessageQueue, time: dt.datetime) -> int:
        """The first message that was stored at that time or after it."""
        return self._home.call(self._inner.offset_at(queue, time))


class Admin:
    """`with Admin("127.0.0.1:9876") as admin:`"""

    _inner: admin_admin.Admin

    def __init__(self, cluster: str | Cluster, *, client_id: str = "") -> None:
        self._inner = admin_admin.Admin(cluster, client_id=client_id)
        self._home = Home(self._inner)
        self.brokers = Brokers(self._inner.brokers, self._home)
        self.namesrvs = Namesrvs(self._inner.namesrvs, self._home)
        self.topics = Topics(self._inner.topics, self._home)
        self.members = Members(self._inner.members, self._home)
        self.groups = Groups(self._inner.groups, self._home)
        self.offsets = Offsets(self._inner.offsets, self._home)
        self.messages = Messages(self._inner.messages, self._home)

    def start(self) -> None:
        """Connections are made when they are first needed."""
        return self._home.call(self._inner.start())

    def stop(self) -> None:
        return self._home.call(self._inner.stop())

    def __enter__(self) -> Self:
        self._home.call(self._inner.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return self._home.call(self._inner.__aexit__(kind, error, trace))
