"""What tests of message kinds need beside plain producers and consumers.

Producers of transactions, requests and their answers, traces, and the judgement whether orderly
consumers kept the order.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from interop.java_client import FAST_ROUTES, Events, JavaClient, Message, Part, PushConsumer, body
from interop.rocketmq import JsonObject

TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACE_FIELD, TRACE_RECORD = "\x01", "\x02"


class State(enum.StrEnum):
    """What a producer may say about a transaction, in the client's own words."""

    COMMIT = "COMMIT_MESSAGE"
    ROLLBACK = "ROLLBACK_MESSAGE"
    UNKNOWN = "UNKNOW"


def in_transaction(topic: str, text: bytes, local: State, *checks: State) -> Message:
    """A message whose producer says `local` first, and then `checks` in turn when asked."""
    return Message(
        topic, text, "T", "K", properties={"local": local, "checks": ",".join(checks or [local])}
    )


class TransactionProducer(Part):
    sort = "transaction"

    def __init__(self, client: JavaClient, namesrv: str, group: str) -> None:
        super().__init__(client, namesrv, group=group, options=FAST_ROUTES)

    def send(self, *messages: Message) -> list[JsonObject]:
        results: list[JsonObject] = self._call(
            "send", messages=[message.json() for message in messages]
        )
        return results

    def questions(self) -> Events:
        """The broker's questions, with what was answered."""
        return self.client.events(self.name)


class Requester(Part):
    sort = "requester"

    def __init__(self, client: JavaClient, namesrv: str, group: str) -> None:
        super().__init__(client, namesrv, group=group, options=FAST_ROUTES)

    def request(self, message: Message, timeout_ms: int) -> JsonObject:
        answer: JsonObject = self._call("request", message=message.json(), timeoutMs=timeout_ms)
        return answer

    def request_async(self, messages: Iterable[Message], timeout_ms: int) -> list[JsonObject]:
        """All at once; the answers in the order of the messages."""
        answers: list[JsonObject] = self._call(
            "requestAsync", messages=[message.json() for message in messages], timeoutMs=timeout_ms
        )
        return answers


class Answerer(Part):
    """Answers each message of a topic with `answer to ` and its body."""

    sort = "answerer"

    def __init__(self, client: JavaClient, namesrv: str, group: str, topic: str) -> None:
        super().__init__(client, namesrv, group=group, topic=topic, options=FAST_ROUTES)


def trace_records(messages: Iterable[JsonObject]) -> list[list[str]]:
    """The records in the messages of a trace topic; the first field says what each is about."""
    texts = (body(message).decode() for message in messages)
    return [
        record.split(TRACE_FIELD) for text in texts for record in text.split(TRACE_RECORD) if record
    ]


@dataclass(frozen=True)
class Call:
    """One call of a listener: of which consumer, for which message, when, and how it ended."""

    consumer: str
    queue: int
    offset: int
    began_ns: int
    ended_ns: int
    taken: bool


def calls_of(consumer: PushConsumer, killed_ns: int = 0) -> list[Call]:
    """The calls that returned and, of a consumer that was killed, those that did not."""
    ended = [
        _call(consumer, line, line["endedNs"], line["taken"])
        for line in consumer.handled().so_far()
    ]
    if not killed_ns:
        return ended
    returned = {call.began_ns for call in ended}
    begun = [line for line in consumer.received() if line["beganNs"] not in returned]
    return ended + [_call(consumer, line, killed_ns, taken=False) for line in begun]


def _call(consumer: PushConsumer, line: JsonObject, ended_ns: int, taken: bool) -> Call:
    return Call(
        consumer.name, line["queueId"], line["queueOffset"], line["beganNs"], ended_ns, taken
    )


def taken(calls: Iterable[Call]) -> set[tuple[int, int]]:
    """The messages, by queue and offset, that were consumed."""
    return {(call.queue, call.offset) for call in calls if call.taken}


def assert_order_was_kept(calls: Sequence[Call]) -> None:
    """Each queue had one consumer at a time, and its messages were first taken in their order.

    A consumer that takes over a queue may get again what the one before it had taken and not yet
    committed; that is no inversion.
    """
    by_queue = itertools.groupby(
        sorted(calls, key=lambda call: (call.queue, call.began_ns)), key=lambda call: call.queue
    )
    for queue, group in by_queue:
        in_time = list(group)
        for earlier, later in itertools.pairwise(in_time):
            assert later.began_ns >= earlier.ended_ns, f"both at queue {queue}: {earlier}, {later}"
        first_taken = list(dict.fromkeys(call.offset for call in in_time if call.taken))
        assert first_taken == list(range(len(first_taken)))


def with_settings(topic: str, text: bytes, **settings: Any) -> Message:
    """A message on which the client's own setters are called, as in `delayTimeLevel=2`."""
    return Message(topic, text, settings=settings)
