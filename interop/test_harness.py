"""The harness against itself: what real RocketMQ acknowledged is what the peer reads back."""

from __future__ import annotations

import base64
import hashlib
import itertools
import time
from pathlib import Path

import pytest

from interop.conftest import StartBroker
from interop.rocketmq import (
    Broker,
    JsonObject,
    NameServer,
    Peer,
    RocketMQError,
    cluster_info,
    peer,
)

SMALL_COMMIT_LOG = 4 << 20
COMPRESSED_ABOVE_BYTES = 4096
DELIVERY_TIMEOUT_S = 30.0


def dump(namesrv: NameServer, *topics: str) -> list[JsonObject]:
    *messages, done = peer("dump", namesrv=namesrv.address, topic=topics)
    assert done == {"done": True, "count": len(messages)}
    return messages


def dump_when_complete(namesrv: NameServer, topic: str, count: int) -> list[JsonObject]:
    """Delayed messages reach their topic a second after they were acknowledged."""
    deadline = time.monotonic() + DELIVERY_TIMEOUT_S
    messages = dump(namesrv, topic)
    while len(messages) < count and time.monotonic() < deadline:
        messages = dump(namesrv, topic)
    return messages


def body_sha256(message: JsonObject) -> str:
    return hashlib.sha256(base64.b64decode(message["bodyBase64"])).hexdigest()


def test_what_was_produced_is_dumped_queried_and_viewed(
    namesrv: NameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "store", mappedFileSizeCommitLog=SMALL_COMMIT_LOG)
    address, topic = namesrv.address, "RoundTrip"

    *acked, done = peer("produce", namesrv=address, topic=topic, count=500, seed=7)
    assert done == {"done": True, "acked": 500}
    messages = dump_when_complete(namesrv, topic, 500)

    bodies = {message["uniqKey"]: body_sha256(message) for message in messages}
    assert bodies == {ack["msgId"]: ack["bodySha256"] for ack in acked}
    places = {(m["uniqKey"], m["queueId"], m["queueOffset"], m["msgId"]) for m in messages}
    direct = [ack for ack in acked if not ack["delayLevel"]]
    assert 0 < len(direct) < len(acked)
    assert places >= {
        (a["msgId"], a["queueId"], a["queueOffset"], a["offsetMsgId"]) for a in direct
    }
    assert all(message["storeHost"] == broker.address for message in messages)
    sizes = [len(base64.b64decode(message["bodyBase64"])) for message in messages]
    assert max(sizes) > COMPRESSED_ABOVE_BYTES

    keys = sorted({key for ack in acked for key in ack["keys"].split()})
    answers = peer("query", namesrv=address, topic=topic, lines=[*keys, "no-such-key"])
    found = {answer["key"]: {hit["msgId"] for hit in answer["found"]} for answer in answers}
    expected: dict[str, set[str]] = {"no-such-key": set()}
    for message in messages:
        for key in message["properties"]["KEYS"].split():
            expected.setdefault(key, set()).add(message["msgId"])
    assert found == expected

    wanted = messages[::50]
    ids = [f"{topic} {message['msgId']}" for message in wanted]
    assert peer("view", namesrv=address, lines=ids) == wanted


def test_the_same_seed_gives_the_same_messages(
    namesrv: NameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    start_broker(tmp_path / "store", mappedFileSizeCommitLog=SMALL_COMMIT_LOG)
    contents = []
    for topic in ("SeedA", "SeedB"):
        produced = peer("produce", namesrv=namesrv.address, topic=topic, count=100, seed=3)
        contents.append(sorted((a["keys"], a["bodySha256"]) for a in produced[:-1]))
    assert contents[0] == contents[1]


def test_a_killed_broker_keeps_what_was_acknowledged(
    namesrv: NameServer, start_broker: StartBroker, tmp_path: Path
) -> None:
    broker = start_broker(tmp_path / "store", mappedFileSizeCommitLog=SMALL_COMMIT_LOG)
    peer("produce", namesrv=namesrv.address, topic="Before", count=200, seed=1)
    before = dump_when_complete(namesrv, "Before", 200)

    with Peer("produce", namesrv=namesrv.address, topic="Torn", count=100_000, seed=2) as producer:
        acked = list(itertools.islice(producer, 100))
        broker.kill()
        *more, done = producer
        producer.finish()
    acked += more
    assert done["done"] is False
    assert done["acked"] == len(acked)
    assert not broker.stopped_in_order()

    broker.start()
    after = {message["msgId"]: message for message in dump(namesrv, "Before")}
    extra_keys = {after.pop(new)["uniqKey"] for new in after.keys() - {m["msgId"] for m in before}}
    assert list(after.values()) == before
    # Delay progress is written every 10 s only, so a crash delivers delayed messages again.
    assert extra_keys <= {m["uniqKey"] for m in before if "DELAY" in m["properties"]}
    kept = {message["msgId"] for message in dump(namesrv, "Torn")}
    assert kept >= {ack["offsetMsgId"] for ack in acked if not ack["delayLevel"]}


def test_an_orderly_stop_leaves_a_clean_store_that_opens_again(
    namesrv: NameServer, tmp_path: Path
) -> None:
    broker = Broker(tmp_path / "home", tmp_path / "store", namesrv.address)
    with broker:
        peer("produce", namesrv=namesrv.address, topic="Clean", count=100, seed=5)
        before = dump_when_complete(namesrv, "Clean", 100)
        assert not broker.stopped_in_order()
    assert broker.stopped_in_order()
    broker.start()
    try:
        assert dump(namesrv, "Clean") == before
    finally:
        broker.kill()


def test_a_broker_that_cannot_start_says_why(namesrv: NameServer, tmp_path: Path) -> None:
    config = {"brokerRole": "SLAVE"}
    broker = Broker(tmp_path / "home", tmp_path / "store", namesrv.address, config=config)
    with pytest.raises(RocketMQError, match="brokerId must be > 0"):
        broker.start()
    with pytest.raises(RocketMQError, match="not running"):
        _ = broker.pid


def test_files_of_another_size_are_refused_with_the_reason(
    namesrv: NameServer, tmp_path: Path
) -> None:
    commit_log = tmp_path / "store" / "commitlog"
    commit_log.mkdir(parents=True)
    (commit_log / "00000000000000000000").write_bytes(bytes(4096))
    broker = Broker(tmp_path / "home", tmp_path / "store", namesrv.address)
    with pytest.raises(RocketMQError, match="length not matched message store config value"):
        broker.start()


def test_a_failing_peer_says_why_in_one_line(namesrv: NameServer) -> None:
    with pytest.raises(RocketMQError, match=r"exited with 1: .*NoSuchTopic[^\n]*$"):
        dump(namesrv, "NoSuchTopic")


def test_a_peer_is_ended_when_its_time_is_over(namesrv: NameServer) -> None:
    with pytest.raises(RocketMQError, match="timed out"):
        peer("dump", namesrv=namesrv.address, topic="Any", timeout_s=0.1)


def test_a_name_server_that_is_gone_gives_no_cluster_info() -> None:
    assert cluster_info("127.0.0.1:1") is None
