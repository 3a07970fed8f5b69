"""Our NameServer under a real RocketMQ broker and real clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Request
from cometmq.protocol.routes import ClusterInfo, TopicRoute
from cometmq.transport import dial
from interop import comet, rocketmq
from interop.rocketmq import Broker, peer

WAIT_S = 30.0
POLL_S = 0.05


@pytest.fixture
def our_namesrv(tmp_path: Path) -> Iterator[comet.NameServer]:
    with comet.NameServer(tmp_path / "namesrv") as server:
        yield server


def ask(namesrv: str, code: RequestCode, **fields: str) -> tuple[int, bytes]:
    async def answer() -> tuple[int, bytes]:
        connection = await dial.connect(namesrv)
        response = await connection.request(Request(code, fields), timeout_s=5.0)
        connection.close()
        return response.code, response.body

    return asyncio.run(answer())


def route(namesrv: str, topic: str) -> TopicRoute:
    code, body = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic)
    assert code == 0, topic
    return msgspec.json.decode(body, type=TopicRoute)


def brokers(namesrv: str) -> list[str]:
    _, body = ask(namesrv, RequestCode.GET_BROKER_CLUSTER_INFO)
    return list(msgspec.json.decode(body, type=ClusterInfo).broker_addr_table)


def wait_until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not fact():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(POLL_S)


@pytest.mark.parametrize("compressed", [False, True], ids=["plain", "compressed"])
def test_a_real_broker_registers_and_real_clients_find_it(
    our_namesrv: comet.NameServer, tmp_path: Path, compressed: bool
) -> None:
    address = our_namesrv.address
    config: dict[str, rocketmq.ConfigValue] = {
        "compressedRegister": compressed,
        "mappedFileSizeCommitLog": 4 << 20,
    }
    broker = Broker(tmp_path / "home", tmp_path / "store", address, config=config)
    try:
        broker.start()
        found = route(address, "TBW102")
        assert [data.broker_addrs for data in found.broker_datas] == [{0: broker.address}]
        assert [(q.read_queue_nums, q.write_queue_nums, q.perm) for q in found.queue_datas] == [
            (8, 8, 7)
        ]

        *acked, done = peer("produce", namesrv=address, topic="Orders", count=50, seed=3)
        assert done == {"done": True, "acked": 50}
        assert route(address, "Orders").queue_datas[0].broker_name == "broker-a"
        direct = {ack["msgId"]: ack["bodySha256"] for ack in acked if not ack["delayLevel"]}
        *messages, _ = peer("dump", namesrv=address, topic="Orders")
        read = {
            m["uniqKey"]: hashlib.sha256(base64.b64decode(m["bodyBase64"])).hexdigest()
            for m in messages
        }
        assert direct.items() <= read.items()
    finally:
        broker.kill()
    wait_until(lambda: brokers(address) == [])
    our_namesrv.stop()


def test_a_real_broker_that_stops_in_order_is_gone_from_the_routes(
    our_namesrv: comet.NameServer, tmp_path: Path
) -> None:
    address = our_namesrv.address
    with Broker(tmp_path / "home", tmp_path / "store", address):
        assert brokers(address) == ["broker-a"]
    assert brokers(address) == []
    code, _ = ask(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, topic="TBW102")
    assert code == 17
