"""The same measurements of RocketMQ's newer Python client, `rocketmq-python-client`.

It speaks gRPC with RocketMQ's proxy, whose address comes as `namesrv`. It runs with its own
packages on PYTHONPATH (see peers.py).
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future

from rocketmq import (  # type: ignore[import-not-found]
    ClientConfiguration,
    Credentials,
    Message,
    Producer,
)

from .child import Measurement, serve
from .meter import DRAIN_TIMEOUT_S, IN_FLIGHT, Meter, body
from .report import Figures

TIMEOUT_S = 30


def _message(topic: str, number: int) -> object:
    message = Message()
    message.topic = topic
    message.body = body(number)
    return message


def _one_by_one(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        producer.send(_message(topic, number))


def _together(producer: Producer, topic: str, numbers: range) -> None:
    room = threading.Semaphore(IN_FLIGHT)
    failed: list[BaseException] = []

    def ended(future: "Future[object]") -> None:
        error = future.exception()
        if error is not None:
            failed.append(error)
        room.release()

    for number in numbers:
        room.acquire()
        producer.send_async(_message(topic, number)).add_done_callback(ended)
    for _ in range(IN_FLIGHT):
        assert room.acquire(timeout=DRAIN_TIMEOUT_S), "no answer"
    assert not failed, failed[0]


def _sending(send: Callable[[Producer, str, range], None]) -> Measurement:
    def measure(namesrv: str, topic: str, warm: int, count: int) -> Figures:
        configuration = ClientConfiguration(namesrv, Credentials(), request_timeout=TIMEOUT_S)
        producer = Producer(configuration, (topic,))
        producer.startup()
        send(producer, topic, range(warm))
        meter = Meter(count)
        send(producer, topic, range(warm, warm + count))
        return meter.figures()

    return measure


if __name__ == "__main__":
    serve({"sync": _sending(_one_by_one), "in_flight": _sending(_together)})
