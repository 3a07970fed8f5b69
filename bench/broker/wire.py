"""Bare requests to a broker, of either kind, without a client in between."""

import contextlib
import socket
import struct
import time
from typing import Final

from cometmq.protocol.command import Command, FrameParser, Request, encode_request

UNIQUE_ID: Final = "7F0000010B6130946E094CEA932D0000"
CONNECT_TIMEOUT_S: Final = 2.0
_RETRY_S: Final = 0.005


def split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


def send_frame(topic: str, queue_id: int, body: bytes, opaque: int = 1) -> bytes:
    """A send as a Java client makes it."""
    fields = {
        "a": "bench", "b": topic, "c": "TBW102", "d": "4", "e": str(queue_id), "f": "0",
        "g": "1794781641519", "h": "0", "i": f"UNIQ_KEY\x01{UNIQUE_ID}\x02WAIT\x01true\x02",
        "j": "0", "k": "false", "m": "false", "n": "broker-a",
    }  # fmt: skip
    return b"".join(encode_request(Request(310, fields, body), opaque))


def pull_frame(topic: str, queue_id: int, offset: int, opaque: int, suspend_ms: int) -> bytes:
    """A pull that waits for a message, and says itself what it wants."""
    fields = {
        "consumerGroup": "bench-waiting", "topic": topic, "queueId": str(queue_id),
        "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
        "suspendTimeoutMillis": str(suspend_ms), "subscription": "*", "subVersion": "0",
        "expressionType": "TAG",
    }  # fmt: skip
    return b"".join(encode_request(Request(11, fields), opaque))


def ask(address: str, frame: bytes) -> Command:
    """One request on a connection of its own, and its answer."""
    with socket.create_connection(split(address), CONNECT_TIMEOUT_S) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as answer:
            head = answer.read(4)
            if len(head) < 4:
                raise ConnectionError("no answer")
            (size,) = struct.unpack(">I", head)
            (command,) = FrameParser().feed(head + answer.read(size))
            return command


def wait_until_acknowledged(address: str, topic: str, timeout_s: float) -> None:
    """Try again and again until a message has been taken."""
    deadline = time.monotonic() + timeout_s
    frame = send_frame(topic, 0, b"first")
    while True:
        with contextlib.suppress(OSError):
            if ask(address, frame).code == 0:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"{address} acknowledges nothing")
        time.sleep(_RETRY_S)
