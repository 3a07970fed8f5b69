"""One store, two brokers: a real RocketMQ opens what we wrote, and we open what it wrote.

With `COMETMQ_INTEROP_SET=short` the large store has 40,000 messages instead of 200,000.
"""

from __future__ import annotations

import base64
import hashlib
import os
import random
import shutil
import signal
from pathlib import Path

import pytest

from cometmq.protocol import compression, flags
from cometmq.protocol.host import Host, pack_host
from cometmq.protocol.message import Message, StoredMessage
from cometmq.protocol.message_id import offset_id
from cometmq.protocol.properties import encode_properties
from cometmq.protocol.record import iter_records
from cometmq.protocol.scan import split_queue_key
from cometmq.store.config import MIB, StoreConfig
from cometmq.store.config_file import ConfigFile
from cometmq.store.message_store import MessageStore
from interop import systems
from interop.rocketmq import Broker, JsonObject, NameServer, Peer, free_port, peer

MESSAGES = 40_000 if systems.IS_SHORT else 200_000
TOPICS = ("TradeOrders", "TradePayments", "TradeAudit")
QUEUES = 8
LOG_FILE_BYTES = 16 * MIB
SEED = 2026
Place = tuple[str, int, int]


def config(root: Path, *, seal_records: bool = True) -> StoreConfig:
    return StoreConfig(root=root, commit_log_file_bytes=LOG_FILE_BYTES, seal_records=seal_records)


def message(number: int, chance: random.Random) -> Message:
    """Messages of every shape that a record can have."""
    properties = {
        "UNIQ_KEY": f"7F00000100002A139A1E{number:012X}",
        "KEYS": f"order-{number} customer-{number % 5000}",
        "TAGS": f"tag-{number % 5}",
        "WAIT": "true",
        "城市": "杭州",
    }
    body, sys_flag = chance.randbytes(chance.randint(1, 200)), 0
    if number % 50 == 0:
        kinds = (flags.COMPRESSION_ZLIB, flags.COMPRESSION_LZ4, flags.COMPRESSION_ZSTD)
        body, sys_flag = compression.compress(b"packed %d " % number * 500, kinds[number // 50 % 3])
    host = pack_host("fe80::1", 5000) if number % 3 == 0 else pack_host("127.0.0.1", 40000)
    return Message(
        topic=TOPICS[number % len(TOPICS)],
        queue_id=number % QUEUES,
        body=body,
        properties=encode_properties(properties),
        flag=number % 7,
        sys_flag=sys_flag,
        born_timestamp=1_700_000_000_000 + number,
        born_host=host,
        reconsume_times=number % 3,
    )


def write_store(root: Path, port: int, *, clean: bool) -> int:
    """Fill a store in a child process, one half with sealed records and one without.

    Not clean: the child dies before it can close the store.
    """
    pid = os.fork()
    if pid == 0:
        try:
            _write(root, port, clean=clean)
        except BaseException:  # noqa: BLE001 - the child must not run the parent's tests
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    return MESSAGES


def _write(root: Path, port: int, *, clean: bool) -> None:
    chance = random.Random(SEED)
    for sealed, first in ((True, 0), (False, MESSAGES // 2)):
        store = MessageStore(config(root, seal_records=sealed), host=Host("127.0.0.1", port))
        store.open()
        for number in range(first, first + MESSAGES // 2):
            store.append(message(number, chance))
            if number % 64 == 0:
                store.dispatch()
        store.dispatch()
        if clean or sealed:
            store.close()
    write_topics(root)


def write_topics(root: Path) -> None:
    table = {
        topic: {"topicName": topic, "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6}
        for topic in TOPICS
    }
    ConfigFile(root / "config" / "topics.json").save({"topicConfigTable": table})


def our_messages(store: MessageStore) -> dict[Place, StoredMessage]:
    found = {}
    for key, queue in store.queues:
        topic, queue_id = split_queue_key(key)
        offset = queue.min_offset
        while offset < queue.max_offset:
            result = store.read(topic, queue_id, offset, count_max=1000, bytes_max=4 * MIB)
            assert not result.damaged
            for piece in result.slices:
                for read in iter_records(piece):
                    found[topic, queue_id, read.queue_offset] = read
            offset = result.next_offset
    return found


def as_java_shows_it(stored: StoredMessage) -> JsonObject:
    """The dump's line for a message of ours. The client unpacks bodies and clears that flag."""
    properties = stored.property_map()
    if seal := dict(_raw_properties(stored)).get("__CRC32#"):
        properties["__CRC32#"] = seal
    return {
        "topic": stored.topic,
        "queueId": stored.queue_id,
        "queueOffset": stored.queue_offset,
        "commitLogOffset": stored.physical_offset,
        "msgId": offset_id(pack_host(*stored.store_host), stored.physical_offset),
        "bornTimestamp": stored.born_timestamp,
        "storeTimestamp": stored.store_timestamp,
        "storeHost": str(stored.store_host),
        "flag": stored.flag,
        "reconsumeTimes": stored.reconsume_times,
        "preparedTransactionOffset": stored.prepared_transaction_offset,
        "bodyBase64": base64.b64encode(
            compression.decompress(stored.body, stored.sys_flag)
        ).decode(),
        "storeSize": stored.size,
        "bodyCRC": stored.body_crc,
        "properties": properties,
    }


def _raw_properties(stored: StoredMessage) -> list[tuple[str, str]]:
    entries = stored.properties.decode().split("\x02")
    return [(name, value) for name, _, value in (e.partition("\x01") for e in entries)]


def java_dump(namesrv: NameServer, *topics: str) -> dict[Place, JsonObject]:
    *lines, done = peer("dump", namesrv=namesrv.address, topic=topics)
    assert done["count"] == len(lines)
    return {(m["topic"], m["queueId"], m["queueOffset"]): m for m in lines}


def assert_same(ours: dict[Place, StoredMessage], theirs: dict[Place, JsonObject]) -> None:
    assert ours.keys() == theirs.keys()
    for place, stored in ours.items():
        shown = as_java_shows_it(stored)
        assert {name: theirs[place][name] for name in shown} == shown


@pytest.mark.parametrize("clean", [True, False], ids=["closed", "crashed"])
def test_a_real_broker_serves_our_store(
    namesrv: NameServer, tmp_path: Path, *, clean: bool
) -> None:
    root, port = tmp_path / "store", free_port(-2, 1)
    count = write_store(root, port, clean=clean)
    with Broker(
        tmp_path / "broker", root, namesrv.address, port=port,
        config={"mappedFileSizeCommitLog": LOG_FILE_BYTES},
    ) as broker:  # fmt: skip
        theirs = java_dump(namesrv, *TOPICS)
        assert len(theirs) == count
        numbers = random.Random(SEED).sample(range(count), 1500)
        # After a crash the real broker makes its index anew, and only from the last files.
        for topic_number, topic in enumerate(TOPICS if clean else ()):
            wanted = [f"order-{n}" for n in numbers if n % len(TOPICS) == topic_number]
            answers = peer("query", namesrv=namesrv.address, topic=topic, lines=wanted)
            assert [len(answer["found"]) for answer in answers] == [1] * len(wanted)
        sample = [theirs[place] for place in sorted(theirs)[:: count // 500]]
        seen = peer(
            "view", namesrv=namesrv.address, lines=[f"{m['topic']} {m['msgId']}" for m in sample]
        )
        assert [m["bodyBase64"] for m in seen] == [m["bodyBase64"] for m in sample]
        # It goes on where we stopped: the same queues, the next offsets.
        *more, _ = peer("produce", namesrv=namesrv.address, topic=TOPICS[0], count=200, seed=1)
        after = java_dump(namesrv, TOPICS[0])
        assert len([place for place in after if place not in theirs]) >= len(
            [ack for ack in more if not ack["delayLevel"]]
        )
        broker.stop()
    with MessageStore(config(root)) as store:
        ours = our_messages(store)
        assert_same({p: m for p, m in ours.items() if p in theirs}, theirs)
        assert ours.keys() >= after.keys()
        for number in numbers[:300]:
            topic = TOPICS[number % len(TOPICS)]
            assert len(store.query(topic, f"order-{number}")) == 1
    shutil.rmtree(root)


def test_we_serve_a_store_that_a_real_broker_closed(namesrv: NameServer, tmp_path: Path) -> None:
    root, topic = tmp_path / "store", "FromJava"
    sizes = {"mappedFileSizeCommitLog": LOG_FILE_BYTES}
    with Broker(tmp_path / "broker", root, namesrv.address, config=sizes) as broker:
        *acked, _ = peer("produce", namesrv=namesrv.address, topic=topic, count=3000, seed=11)
        theirs = java_dump(namesrv, topic)
        broker.stop()
    java_queues, java_index = tree(root / "consumequeue"), tree(root / "index")
    with MessageStore(config(root)) as store:
        ours = our_messages(store)
        mine = {place: m for place, m in ours.items() if place in theirs}
        assert_same(mine, theirs)
        for ack in acked[::10]:
            key = ack["keys"].split()[0]
            assert any(m.has_key(key) for m in store.query(topic, key))
            assert store.query(topic, ack["msgId"]) or ack["delayLevel"]
    assert tree(root / "consumequeue") == java_queues
    # What is a function of the log for us is one for RocketMQ, too: the same bytes.
    for directory in ("consumequeue", "index"):
        shutil.rmtree(root / directory)
    with MessageStore(config(root)) as store:
        assert our_messages(store) == ours
    assert tree(root / "consumequeue") == java_queues
    assert list(tree(root / "index").values()) == list(java_index.values())


def tree(root: Path) -> dict[str, str]:
    """Digests of all files below a directory that hold anything."""
    digests = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and (content := path.read_bytes()).strip(b"\0"):
            digests[str(path.relative_to(root))] = hashlib.sha256(content).hexdigest()
    return digests


def test_we_serve_a_store_whose_real_broker_was_killed(namesrv: NameServer, tmp_path: Path) -> None:
    root, topic = tmp_path / "store", "Killed"
    acked: list[JsonObject] = []
    with Broker(
        tmp_path / "broker", root, namesrv.address, config={"mappedFileSizeCommitLog": MIB}
    ) as broker, Peer(
        "produce", namesrv=namesrv.address, topic=topic, count=50_000, seed=5
    ) as producer:  # fmt: skip
        for line in producer:
            if "done" in line:
                break
            acked.append(line)
            if len(acked) == 4000:
                os.kill(broker.pid, signal.SIGKILL)
        broker.kill()
    assert (root / "abort").exists()
    small = StoreConfig(root=root, commit_log_file_bytes=MIB)
    store = MessageStore(small)
    report = store.open()
    assert not report.clean
    assert report.damaged == []
    stored = {(m.property_map()["UNIQ_KEY"], digest(m)) for m in our_messages(store).values()}
    assert stored >= {(ack["msgId"], ack["bodySha256"]) for ack in acked}
    # The real broker forgets most of its index when killed; we make it complete again.
    for ack in acked[::20]:
        where = "SCHEDULE_TOPIC_XXXX" if ack["delayLevel"] else topic
        assert store.query(where, ack["msgId"]), ack
    store.close()


def digest(stored: StoredMessage) -> str:
    return hashlib.sha256(compression.decompress(stored.body, stored.sys_flag)).hexdigest()
