"""The same measurements of the Python client that wraps the C++ library, `rocketmq` 0.4.4.

It is the forerunner of `rocketmq-client-python`, whose library has to be installed by hand, and
brings its own along; both run with these. Their packages come by PYTHONPATH (see peers.py). Bodies
end at the first zero byte there, so numbers are sent in hexadecimal.
"""

import threading
from collections.abc import Callable

from rocketmq.client import Message, Producer  # type: ignore[import-not-found]

from .child import Measurement, serve
from .meter import BODY_BYTES, DRAIN_TIMEOUT_S, IN_FLIGHT, Meter
from .report import Figures

GROUP = "bench"
TIMEOUT_MS = 30_000


def _message(topic: str, number: int) -> object:
    message = Message(topic)
    message.set_body(f"{number:016x}" * (BODY_BYTES // 16))
    return message


def _one_by_one(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers:
        producer.send_sync(_message(topic, number))


def _together(producer: Producer, topic: str, numbers: range) -> None:
    room = threading.Semaphore(IN_FLIGHT)
    failed: list[object] = []

    def fail(error: object) -> None:
        failed.append(error)
        room.release()

    for number in numbers:
        room.acquire()
        producer.send_async(_message(topic, number), lambda _: room.release(), fail)
    for _ in range(IN_FLIGHT):
        assert room.acquire(timeout=DRAIN_TIMEOUT_S), "no answer"
    assert not failed, failed[0]


def _oneway(producer: Producer, topic: str, numbers: range) -> None:
    for number in numbers[:-1]:
        producer.send_oneway(_message(topic, number))
    # The last one is answered: by then the broker has taken all the others.
    producer.send_sync(_message(topic, numbers[-1]))


def _set_address(producer: Producer, namesrv: str) -> None:
    """The later package renamed it."""
    if hasattr(producer, "set_name_server_address"):
        producer.set_name_server_address(namesrv)
    else:
        producer.set_namesrv_addr(namesrv)


def _sending(send: Callable[[Producer, str, range], None]) -> Measurement:
    def measure(namesrv: str, topic: str, warm: int, count: int) -> Figures:
        producer = Producer(GROUP, timeout=TIMEOUT_MS)
        _set_address(producer, namesrv)
        producer.start()
        send(producer, topic, range(warm))
        meter = Meter(count)
        send(producer, topic, range(warm, warm + count))
        return meter.figures()

    return measure


if __name__ == "__main__":
    serve(
        {
            "sync": _sending(_one_by_one),
            "in_flight": _sending(_together),
            "one_way": _sending(_oneway),
        }
    )
