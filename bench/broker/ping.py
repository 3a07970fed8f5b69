"""One send at a time on a bare connection: what a broker and the kernel take, without a client.

Runs as a process of its own (`python -m bench.broker.ping '{"address": …}'`), and prints the same
as the load generator, with latencies.
"""

import socket
import sys
import time

import msgspec

from .cases import P50, P99, P999, SPEED
from .load import READ_BYTES, SUCCESS, Load
from .wire import send_frame, split


def run(load: Load) -> dict[str, float]:
    frames = [send_frame(load.topic, n, b"x" * load.body) for n in range(load.queues)]
    with socket.create_connection(split(load.address)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for number in range(load.warm):
            _ping(connection, frames[number % load.queues])
        print("begin", flush=True)
        took_s = sorted(
            _ping(connection, frames[number % load.queues]) for number in range(load.count)
        )
    figures = {SPEED: load.count / sum(took_s)}
    for unit, share in ((P50, 0.5), (P99, 0.99), (P999, 0.999)):
        figures[unit] = took_s[int(load.count * share)] * 1e6
    return figures


def _ping(connection: socket.socket, frame: bytes) -> float:
    """How long a message took until it was acknowledged."""
    began = time.perf_counter()
    connection.sendall(frame)
    answer = connection.recv(READ_BYTES)
    took_s = time.perf_counter() - began
    if SUCCESS not in answer:
        raise ConnectionError(f"a message was refused: {answer[:600]!r}")
    return took_s


if __name__ == "__main__":
    print(msgspec.json.encode(run(msgspec.json.decode(sys.argv[1], type=Load))).decode())
