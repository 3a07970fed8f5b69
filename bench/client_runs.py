"""The Python client's measurements, each of which runs in a child process (see child.py).

Before the messages that count come others, by which connections are made and code gets warm. A run
that loses, repeats or fails a message has no figures. `bench/java/ClientRuns.java` and the runs of
the other peers do the same with their clients.
"""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator

from cometmq.client import (
    BatchHandler,
    ConsumeFrom,
    Handler,
    Message,
    Producer,
    ProducerOptions,
    PullConsumer,
    PushConsumer,
    ReceivedMessage,
    SendResult,
    SendStatus,
)
from cometmq.transport import loop

from .child import Measurement, serve
from .meter import BATCH, DRAIN_TIMEOUT_S, IN_FLIGHT, Drain, Meter, body, latency_figures
from .report import Figures

GROUP = "bench"
LINGER_S = 0.005
LINGERING_MAX = 4096
"""Messages that may linger or be under way when batches make themselves."""
TIMEOUT_S = 30.0
"""For a send, on a machine that has other work to do."""
LATENCY_INTERVAL_S = 0.001


def messages(topic: str, count: int, start: int = 0) -> Iterator[Message]:
    for number in range(start, start + count):
        yield Message(topic, body(number))


def _measurement(work: Callable[[str, str, int, int], Awaitable[Figures]]) -> Measurement:
    def measure(namesrv: str, topic: str, warm: int, count: int, uvloop: bool = True) -> Figures:
        async def main() -> Figures:
            return await work(namesrv, topic, warm, count)

        return loop.run(main()) if uvloop else asyncio.run(main())

    return measure


# -- sending --------------------------------------------------------------------------------------


class Tally:
    """Sends that ended as they should; the parent looks whether the broker has as many."""

    def __init__(self) -> None:
        self.stored = 0

    def one(self, result: SendResult) -> None:
        assert result.status is SendStatus.OK, result
        self.stored += 1

    def future(self, future: "asyncio.Future[SendResult]") -> None:
        self.one(future.result())


Sender = Callable[[Producer, Iterator[Message], Tally], Awaitable[None]]


async def _one_by_one(producer: Producer, given: Iterator[Message], tally: Tally) -> None:
    for message in given:
        tally.one(await producer.send(message))


async def _nowait(producer: Producer, given: Iterator[Message], tally: Tally) -> None:
    most = producer.options.max_in_flight
    for message in given:
        if producer.in_flight >= most:
            await producer.ready()
        producer.send_nowait(message, callback=tally.future)
    await producer.flush()


async def _in_tasks(producer: Producer, given: Iterator[Message], tally: Tally) -> None:
    await asyncio.gather(*(_one_by_one(producer, given, tally) for _ in range(IN_FLIGHT)))


async def _in_batches(producer: Producer, given: Iterator[Message], tally: Tally) -> None:
    while batch := list(itertools.islice(given, BATCH)):
        for result in await producer.send_batch(batch):
            tally.one(result)


async def _oneway(producer: Producer, given: Iterator[Message], tally: Tally) -> None:
    message = next(given)
    for following in given:
        await producer.send_oneway(message)
        tally.stored += 1
        message = following
    # The last one is answered: by then the broker has taken all the others.
    tally.one(await producer.send(message))


def _sending(send: Sender, *, max_in_flight: int = IN_FLIGHT, linger_s: float = 0.0) -> Measurement:
    options = ProducerOptions(timeout_s=TIMEOUT_S, max_in_flight=max_in_flight, linger_s=linger_s)

    async def work(namesrv: str, topic: str, warm: int, count: int) -> Figures:
        tally = Tally()
        async with Producer(namesrv, group=GROUP, options=options) as producer:
            await send(producer, messages(topic, warm), tally)
            meter = Meter(count)
            await send(producer, messages(topic, count, start=warm), tally)
            figures = meter.figures()
        assert tally.stored == warm + count, tally.stored
        return figures

    return _measurement(work)


# -- consuming ------------------------------------------------------------------------------------


class Consuming:
    """A drain with the handlers that a user may write; a group of its own, from the beginning."""

    def __init__(self, warm: int, count: int) -> None:
        loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._drain = Drain(warm, count, lambda: loop.call_soon_threadsafe(self._ended.set))
        self.figures = self._drain.figures
        self.left = warm + count
        self.group = f"{GROUP}-{time.time_ns()}"

    def plain(self, message: ReceivedMessage) -> None:
        self._drain.take(message.body)

    async def one(self, message: ReceivedMessage) -> None:
        self._drain.take(message.body)

    async def batch(self, given: list[ReceivedMessage]) -> None:
        for message in given:
            self._drain.take(message.body)

    async def until_drained(self) -> None:
        await asyncio.wait_for(self._ended.wait(), DRAIN_TIMEOUT_S)


Handlers = Callable[[Consuming], tuple[Handler | None, BatchHandler | None]]


def _pushed(handlers: Handlers) -> Measurement:
    async def work(namesrv: str, topic: str, warm: int, count: int) -> Figures:
        consuming = Consuming(warm, count)
        handler, batch_handler = handlers(consuming)
        async with PushConsumer(
            namesrv, group=consuming.group, topics=topic, consume_from=ConsumeFrom.FIRST,
            handler=handler, batch_handler=batch_handler,
        ):  # fmt: skip
            await consuming.until_drained()
        return consuming.figures()

    return _measurement(work)


async def _polled(consumer: PullConsumer, consuming: Consuming) -> None:
    while consuming.left:
        given = await consumer.poll(DRAIN_TIMEOUT_S)
        await consuming.batch(given)
        consuming.left -= len(given)


async def _iterated(consumer: PullConsumer, consuming: Consuming) -> None:
    async for message in consumer:
        consuming.plain(message)
        consuming.left -= 1
        if not consuming.left:
            return


def _pulled(consume: Callable[[PullConsumer, Consuming], Awaitable[None]]) -> Measurement:
    async def work(namesrv: str, topic: str, warm: int, count: int) -> Figures:
        consuming = Consuming(warm, count)
        async with PullConsumer(
            namesrv, group=consuming.group, topics=topic, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            await consume(consumer, consuming)
        return consuming.figures()

    return _measurement(work)


# -- latency --------------------------------------------------------------------------------------


async def _latency(namesrv: str, topic: str, warm: int, count: int) -> Figures:
    """From the call of `send_nowait` to that of the handler, at a rate that nobody minds."""
    took_ns: list[int] = []
    arrived = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        took_ns.append(time.monotonic_ns() - int.from_bytes(message.body[:8], "big"))
        if len(took_ns) == warm + count:
            arrived.set()

    group = f"{GROUP}-{time.time_ns()}"
    async with (
        PushConsumer(namesrv, group=group, topics=topic, handler=handler),
        Producer(namesrv, group=GROUP, timeout_s=TIMEOUT_S) as producer,
    ):
        began = time.monotonic()
        for number in range(warm + count):
            await asyncio.sleep(began + number * LATENCY_INTERVAL_S - time.monotonic())
            producer.send_nowait(Message(topic, body(time.monotonic_ns())))
        await asyncio.wait_for(arrived.wait(), DRAIN_TIMEOUT_S)
    return latency_figures(took_ns[warm:])


MEASUREMENTS = {
    "sync": _sending(_one_by_one),
    "in_flight": _sending(_nowait),
    "in_tasks": _sending(_in_tasks),
    "auto_batch": _sending(_nowait, linger_s=LINGER_S, max_in_flight=LINGERING_MAX),
    "batch_32": _sending(_in_batches),
    "one_way": _sending(_oneway),
    "push": _pushed(lambda consuming: (consuming.one, None)),
    "push_batch": _pushed(lambda consuming: (None, consuming.batch)),
    "push_plain": _pushed(lambda consuming: (consuming.plain, None)),
    "pull_poll": _pulled(_polled),
    "pull_for": _pulled(_iterated),
    "latency": _measurement(_latency),
}

if __name__ == "__main__":
    serve(MEASUREMENTS)
