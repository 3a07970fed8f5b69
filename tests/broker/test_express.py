"""The short way of sends: the same log, answers and figures as the general way, whatever comes.

Each stream of bytes goes three times through a broker that has no socket: the general way alone,
with the short way in plain Python, and with the compiled one.
"""

import asyncio
import json
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cometmq.broker.archive_gate import ArchiveGate
from cometmq.broker.config import BrokerConfig, BrokerRole
from cometmq.broker.parts import Parts
from cometmq.protocol import _reference, express
from cometmq.protocol.batch import encode_batch
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, FrameParser
from cometmq.protocol.host import Host
from cometmq.protocol.message import Message
from cometmq.protocol.topic_config import TopicConfig
from cometmq.store import commit_log
from cometmq.store.config import FlushMode
from cometmq.store.consume_queue import ConsumeQueue
from cometmq.store.disk import Disk
from cometmq.store.errors import WaitTimeout
from cometmq.store.message_store import MessageStore
from cometmq.testing.clock import ManualClock
from cometmq.transport.connection import Connection
from cometmq.transport.latencies import Latencies, Way
from cometmq.transport.limits import Limits

from ..protocol.captured_frames import BINARY_SEND, JSON_SEND
from ..store.stores import small_config

ADDRESS = Host("127.0.0.1", 10911)
PEER = ("192.0.2.7", 40_001)
TOPIC, OTHER, TAGGED = "orders", "payments", "tagged"
UNIQUE_ID = "7F0000010B6130946E094CEA932D0000"
WAYS = ["general", "plain"]
try:
    from cometmq.protocol import _compiled

    WAYS.append("compiled")
except ImportError:  # Built without a C compiler.
    pass


# -- frames ---------------------------------------------------------------------------------------


def frame(header: bytes, body: bytes, kind: int = 0) -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def properties(**changes: str | None) -> str:
    found = {"KEYS": "key-1", "UNIQ_KEY": UNIQUE_ID, "WAIT": "true", "TAGS": "red", **changes}
    return "".join(f"{name}\x01{value}\x02" for name, value in found.items() if value is not None)


def fields(**changes: object) -> dict[str, object]:
    usual: dict[str, object] = {
        "a": "producers", "b": TOPIC, "c": "TBW102", "d": "4", "e": "1", "f": "0",
        "g": "1794781641519", "h": "0", "i": properties(), "j": "0", "k": "false", "m": "false",
        "n": "broker-a",
    }  # fmt: skip
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def json_send(
    own: dict[str, object] | None = None, body: bytes = b"hello", **head: object
) -> bytes:
    header: dict[str, object] = {
        "code": 310, "extFields": fields() if own is None else own, "flag": 0, "language": "JAVA",
        "opaque": 5, "serializeTypeCurrentRPC": "JSON", "version": 513, **head,
    }  # fmt: skip
    told = {name: value for name, value in header.items() if value is not None}
    return frame(json.dumps(told, separators=(",", ":")).encode(), body)


def binary_send(own: dict[str, object] | None = None, body: bytes = b"hello", **head: int) -> bytes:
    encoded = b""
    for name, value in (own or fields()).items():
        text = str(value).encode()
        encoded += struct.pack(">H", len(name)) + name.encode()
        encoded += struct.pack(">i", len(text)) + text
    code, opaque, flag = head.get("code", 310), head.get("opaque", 9), head.get("flag", 0)
    start = struct.pack(">hBhiiii", code, 0, 513, opaque, flag, 0, len(encoded))
    return frame(start + encoded, body, kind=1)


def batch(count: int, **changes: str | None) -> bytes:
    own = properties(**changes).encode()
    return encode_batch(Message(TOPIC, 0, b"body %d" % n, own, flag=n) for n in range(count))


# -- a broker without a socket --------------------------------------------------------------------


class Wire(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__({"peername": PEER, "sockname": tuple(ADDRESS)})
        self.written = b""
        self._reads = True

    def write(self, data: Any) -> None:
        self.written += data

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def is_reading(self) -> bool:
        return self._reads

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass


class Outcome(NamedTuple):
    """All that somebody else can see of what a broker did."""

    answers: list[tuple[int, int, str | None, dict[str, str], int]]
    raw: list[bytes]
    log: bytes
    queues: dict[bytes, bytes]
    found: list[int]
    """Messages with the one unique id, by the index."""
    put: int
    put_bytes: int
    topic_puts: int
    topic_sizes: list[int]
    timed: dict[tuple[Way, int, int], int]
    """How many of each kind of request have been timed, by what they were answered."""


class Office:
    """The parts of a broker and a connection to them."""

    def __init__(self, root: Path, way: str, **settings: Any) -> None:
        random.seed(7)  # Unique ids and the choice of queues.
        clock, disk = ManualClock(), Disk()
        clock.now_ms = lambda: 1_800_000_000_000  # type: ignore[method-assign]
        config = BrokerConfig(name="broker-a", **settings.pop("broker", {}))
        gate = ArchiveGate(config, clock)
        self.store = MessageStore(small_config(root, **settings), host=ADDRESS, clock=clock)
        report = self.store.open()
        self.parts = Parts(config, self.store, ADDRESS, clock, disk, gate, report, None)
        topics = self.parts.context.topics
        for name in (TOPIC, OTHER, "wiretest", "wiretest2"):
            topics.update(TopicConfig(name, 4, 4))
        topics.update(TopicConfig(TAGGED, 2, 2, topic_filter_type="MULTI_TAG"))
        self.latencies = Latencies()
        self.short = self.parts.express(self.latencies)
        self.taken = 0
        self.connection = Connection(
            self.parts.handlers(),
            Limits(),
            express=None if way == "general" else self._take,
            latencies=self.latencies,
        )
        self.wire = Wire()
        self.connection.connection_made(self.wire)

    def _take(self, connection: Connection, data: bytes) -> int:
        assert self.short is not None
        end = self.short.take(connection, data)
        self.taken += end
        return end

    async def feed(self, *reads: bytes) -> None:
        for read in reads:
            self.connection.data_received(read)
            await asyncio.sleep(0)
            while self.parts.inbox.waiting:
                await asyncio.sleep(0)
            await asyncio.sleep(0)  # The answers of the general way leave.
        self.parts.context.turns.catch_up()

    def outcome(self) -> Outcome:
        frames = sorted(split_frames(self.wire.written), key=lambda f: (parsed(f).opaque, f))
        answers = [parsed(each) for each in frames]
        segment = self.store.commit_log.segments.first
        end = self.store.appended.value
        stats = self.parts.context.stats
        return Outcome(
            [(a.opaque, a.code, a.remark, a.text_fields(), int(a.kind)) for a in answers],
            frames,
            bytes(segment.view[: min(end, segment.size)]) if segment is not None else b"",
            {key: entries(queue) for key, queue in self.store.queues},
            self.store.index.lookup(TOPIC, UNIQUE_ID, 0, 1 << 62, 1000) if self.store.index else [],
            stats.put.total,
            stats.put_bytes.total,
            stats.topic(TOPIC).put.total,
            stats.topic(TOPIC).sizes,
            {(one.way, one.request, one.answer): sum(one.spread.counts) for one in self.latencies},
        )


def entries(queue: ConsumeQueue) -> bytes:
    window = queue.window(queue.min_offset, queue.max_offset - queue.min_offset)
    return b"" if window is None else bytes(window[0][window[1] : window[2]])


def parsed(each: bytes) -> Command:
    (command,) = FrameParser().feed(each)
    return command


def split_frames(data: bytes) -> Iterator[bytes]:
    while data:
        size = 4 + int.from_bytes(data[:4], "big")
        yield data[:size]
        data = data[size:]


Script = Callable[[Office], Any]


def plain_append(view: memoryview, position: int, *others: Any) -> express.Taken:
    """The plain short way, which foretells what a scan finds."""
    base = others[1]
    taken = express.append_sends(view, position, *others)
    if taken.scan is not None:
        scan = _reference.scan_records(view, position, taken.position, base, (1000,), True)
        assert taken.scan == scan
    assert (taken.scan is not None) == (taken.position > position)
    return taken


@pytest.fixture
def ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> "Ways":
    return Ways(tmp_path, monkeypatch)


class Ways:
    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root = root
        self._monkeypatch = monkeypatch
        self._number = 0

    def each(self, reads: Sequence[bytes], **settings: Any) -> dict[str, tuple[Outcome, int]]:
        return {way: self.one(way, reads, **settings) for way in WAYS}

    def one(self, way: str, reads: Sequence[bytes], **settings: Any) -> tuple[Outcome, int]:
        """What came of it, and how many bytes went the short way."""
        root = self.root(way)

        async def main() -> tuple[Outcome, int]:
            office = Office(root, way, **settings)
            try:
                await office.feed(*reads)
                return office.outcome(), office.taken
            finally:
                office.connection.connection_lost(None)
                office.store.close()

        return asyncio.run(main())

    def root(self, way: str) -> Path:
        """A place for a store of which the sends go that way."""
        if way != "general":
            hot = plain_append if way == "plain" else _compiled.append_sends
            self._monkeypatch.setattr(commit_log, "append_sends", hot)
        self._number += 1
        return self._root / str(self._number)

    def same(self, reads: Sequence[bytes], **settings: Any) -> dict[str, int]:
        """Demand that all do the same; how much went the short way."""
        found = self.each(reads, **settings)
        general, _ = found["general"]
        for way, (outcome, _) in found.items():
            assert outcome == general, way
        return {way: taken for way, (_, taken) in found.items()}


def opened() -> bytes:
    """The first messages of queues always go the general way: a read of its own opens them."""
    return b"".join(
        json_send(fields(b=topic, e=str(queue)), opaque=1000 + queue)
        for topic in (TOPIC, OTHER)
        for queue in range(4)
    )


# -- what goes the short way ----------------------------------------------------------------------


def test_usual_sends_of_one_read_go_the_short_way_and_are_the_same(ways: Ways) -> None:
    read = b"".join(json_send(fields(e=str(n % 4)), b"body %d" % n, opaque=n) for n in range(20))
    taken = ways.same([opened(), read])
    assert taken.pop("general") == 0
    assert all(size >= len(read) for size in taken.values())


def test_so_does_what_java_clients_send(ways: Ways) -> None:
    first = json_send(fields(b="wiretest", e="0")) + json_send(fields(b="wiretest2", e="0"))
    taken = ways.same([first, JSON_SEND, BINARY_SEND])
    assert taken["plain"] == len(JSON_SEND)
    assert taken.get("compiled", len(JSON_SEND + BINARY_SEND)) == len(JSON_SEND + BINARY_SEND)


@pytest.mark.parametrize("code", [310, 320])
def test_batches_and_binary_headers_go_the_compiled_short_way(ways: Ways, code: int) -> None:
    told = fields(m="true", e="2")
    read = json_send(told, batch(32), code=code) + binary_send(told, batch(3), code=code)
    read += binary_send(fields(e="2"), b"alone", opaque=77) + json_send(told, batch(1), code=code)
    taken = ways.same([opened(), read])
    if "compiled" in taken:
        assert taken["compiled"] >= len(read)


def test_messages_of_all_sizes_are_counted_each_in_its_range(ways: Ways) -> None:
    sizes = (10, 20, 5000, 30, 1500, 1600, 900, 4000, 40)
    read = b"".join(json_send(fields(e="0"), b"x" * size) for size in sizes)
    taken = ways.same([opened(), read])
    assert all(size >= len(read) for way, size in taken.items() if way != "general")


async def test_a_broker_that_may_take_none_has_no_short_way(tmp_path: Path) -> None:
    slave = {"role": BrokerRole.SLAVE, "broker_id": 1, "name_servers": "127.0.0.1:1"}
    office = Office(tmp_path, "compiled", broker=slave)
    assert office.short is None


def test_a_one_way_send_has_no_answer(ways: Ways) -> None:
    read = json_send(flag=2) + json_send(opaque=6) + binary_send(flag=2)
    ways.same([opened(), read])
    outcome, _ = ways.one(WAYS[-1], [opened(), read])
    assert [answer[0] for answer in outcome.answers if answer[0] < 1000] == [6]


def test_frames_may_be_cut_anywhere_by_reads(ways: Ways) -> None:
    stream = b"".join(json_send(opaque=n, body=b"x" * n) for n in range(40))
    chance = random.Random(3)
    reads, at = [opened()], 0
    while at < len(stream):
        size = chance.choice((1, 7, 100, 900, 3000))
        reads.append(stream[at : at + size])
        at += size
    ways.same(reads)


@pytest.mark.parametrize("between", [b"", "no unique id", "a new topic"])
def test_all_that_came_in_one_turn_is_readable_after_it(between: bytes | str, ways: Ways) -> None:
    """Whether its parts went one way or both."""
    other = UNUSUAL[between] if isinstance(between, str) else between
    turn = [json_send(opaque=1) + json_send(fields(e="2"), opaque=2), other, json_send(opaque=3)]

    async def main(way: str) -> Outcome:
        office = Office(ways.root(way), way)
        try:
            await office.feed(opened())
            for read in turn:
                office.connection.data_received(read)
            await office.feed(b"")
            return office.outcome()
        finally:
            office.connection.connection_lost(None)
            office.store.close()

    outcomes = [asyncio.run(main(way)) for way in WAYS]
    assert all(outcome == outcomes[0] for outcome in outcomes)
    assert len(outcomes[0].found) == 4 + 3


def test_where_a_file_ends_the_general_way_goes_on_in_the_next(ways: Ways) -> None:
    read = b"".join(json_send(body=b"x" * 1000, opaque=n) for n in range(150))
    outcome, _ = ways.one(WAYS[-1], [opened(), read])
    assert outcome.put == 158
    ways.same([opened(), read])


@pytest.mark.parametrize("way", WAYS)
def test_after_a_restart_sends_go_on_where_the_log_ends(way: str, tmp_path: Path) -> None:
    """The rest of the file has no blocks yet then, and is not mapped for writing."""

    async def served(opaque: int) -> Outcome:
        office = Office(tmp_path, way)
        try:
            await office.feed(json_send(opaque=opaque), json_send(opaque=opaque + 1))
            return office.outcome()
        finally:
            office.connection.connection_lost(None)
            office.store.close()

    before, after = asyncio.run(served(1)), asyncio.run(served(3))
    assert [answer[:2] for answer in before.answers] == [(1, 0), (2, 0)]
    assert [answer[:2] for answer in after.answers] == [(3, 0), (4, 0)]
    assert after.answers[1][3]["queueOffset"] == "3"
    assert after.log.startswith(before.log)


def test_a_full_waiting_room_refuses_as_ever(ways: Ways) -> None:
    settings = {"broker": {"sends_waiting_max": 12}, "flush": FlushMode.SYNC}
    read = b"".join(json_send(opaque=n) for n in range(40))
    for way in WAYS:
        outcome, _ = ways.one(way, [opened(), read], **settings)
        codes = [answer[1] for answer in outcome.answers if answer[0] < 1000]
        assert codes.count(ResponseCode.SUCCESS) == 12, way
        assert codes.count(ResponseCode.SYSTEM_BUSY) == 28, way


def test_a_flush_that_takes_too_long_is_told_with_all_that_is_known(
    ways: Ways, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(_: object, offset: int, __: int, future: "asyncio.Future[None]") -> None:
        future.set_exception(WaitTimeout(f"flushed did not reach {offset} in time"))

    monkeypatch.setattr("cometmq.store.watermark.Watermark.when_reached", late)
    read = (
        json_send(opaque=1)
        + binary_send(opaque=2)
        + json_send(fields(m="true"), batch(3), code=320, opaque=3)
    )
    ways.same([opened(), read], flush=FlushMode.SYNC)
    outcome, _ = ways.one(WAYS[-1], [opened(), read], flush=FlushMode.SYNC)
    told = [answer for answer in outcome.answers if answer[0] < 1000]
    assert [answer[1] for answer in told] == [ResponseCode.FLUSH_DISK_TIMEOUT] * 3
    assert all("did not reach" in str(answer[2]) for answer in told)
    assert told[0][3]["transactionId"] == UNIQUE_ID
    assert told[2][3]["msgId"].count(",") == 2


def test_a_topic_that_changes_is_known_as_it_is_now(ways: Ways, tmp_path: Path) -> None:
    async def main() -> None:
        office = Office(tmp_path / "changing", WAYS[-1])
        try:
            await office.feed(opened(), json_send(fields(e="3"), opaque=1))
            office.parts.context.topics.update(TopicConfig(TOPIC, 2, 2))
            await office.feed(json_send(fields(e="3"), opaque=2))
            codes = {answer[0]: answer[1] for answer in office.outcome().answers}
            assert codes[1] == ResponseCode.SUCCESS
            assert codes[2] == ResponseCode.INVALID_PARAMETER
        finally:
            office.connection.connection_lost(None)
            office.store.close()

    asyncio.run(main())


# -- what does not ---------------------------------------------------------------------------------

OLD_FIELDS: dict[str, object] = {
    "producerGroup": "p", "topic": TOPIC, "queueId": "1", "sysFlag": "0", "bornTimestamp": "5",
    "flag": "0", "properties": properties(),
}  # fmt: skip
UNUSUAL: dict[str, bytes] = {
    "no unique id": json_send(fields(i=properties(UNIQ_KEY=None))),
    "two unique ids": json_send(fields(i=properties() + "UNIQ_KEY\x017F01\x02")),
    "an empty unique id": json_send(fields(i="UNIQ_KEY\x01\x02")),
    "a unique id to be escaped": json_send(fields(i=properties(UNIQ_KEY='a"b\\c'))),
    "no properties": json_send(fields(i="")),
    "no field of properties": json_send(fields(i=None)),
    "no end of the last property": json_send(fields(i=properties()[:-1])),
    "letters beyond ASCII": json_send(fields(i=properties(KEYS="文"))),
    "a delay": json_send(fields(i=properties(DELAY="1"))),
    "a time of its own": json_send(fields(i=properties(TIMER_DELAY_SEC="10"))),
    "half of a transaction": json_send(fields(i=properties(TRAN_MSG="true", PGROUP="p"))),
    "a flag of a transaction": json_send(fields(f="4")),
    "no waiting for the disk": json_send(fields(i=properties(WAIT="false"))),
    "waiting, said differently": json_send(fields(i=properties(WAIT="yes"))),
    "a cluster": json_send(fields(i=properties(CLUSTER="other"))),
    "a pop checkpoint": json_send(fields(i=properties(POP_CK="1 2 3"))),
    "a seal": json_send(fields(i=properties(**{"__CRC32#": "0123456789"}))),
    "a mark of a seal": json_send(fields(i=properties(**{"colour#": "red"}))),
    "a retry": json_send(fields(b="%RETRY%billing")),
    "retried before": json_send(fields(j="3")),
    "a forbidden topic": json_send(fields(b="SCHEDULE_TOPIC_XXXX")),
    "a topic of several tags": json_send(fields(b=TAGGED)),
    "a new topic": json_send(fields(b="brand-new")),
    "a new topic without a pattern": json_send(fields(b="brand-new", c="nothing")),
    "a topic that cannot be": json_send(fields(b="../x")),
    "a topic with a NUL": json_send(fields(b="a\x00b")),
    "an empty topic": json_send(fields(b="")),
    "any queue": json_send(fields(e="-1")),
    "a queue too many": json_send(fields(e="4")),
    "a queue that is no number": json_send(fields(e="one")),
    "a number with a zero in front": json_send(fields(e="01")),
    "a number with a sign": json_send(fields(e="+1")),
    "a number of 64 bits": json_send(fields(h="9999999999")),
    "a negative flag": json_send(fields(h="-7")),
    "an early birth": json_send(fields(g="-1")),
    "numbers that are bare": json_send(fields(e=1, f=0, g=1794781641519, h=0)),
    "a bare group": json_send(fields(a=1)),
    "nothing as group": json_send({**fields(), "a": None}),
    "no group": json_send(fields(a=None)),
    "no born time": json_send(fields(g=None)),
    "a batch that says so oddly": json_send(fields(m="1")),
    "compressed": json_send(fields(f="257")),
    "a host of the sixth version": json_send(fields(f="16")),
    "other fields, too": json_send({**fields(), "more": {"nested": [1, 2]}, "z": None, "x": 1.5}),
    "a field twice": json_send(fields(e="1")).replace(b'"e":"1"', b'"e":"1","e":"2"', 1)[:-5],
    "spaces": frame(json.dumps({"code": 310, "extFields": fields(), "opaque": 3}).encode(), b"x"),
    "a code as text": json_send(code="310"),
    "a code with a fraction": json_send(code=310.0),
    "the old form": json_send(OLD_FIELDS, code=RequestCode.SEND_MESSAGE),
    "a response": json_send(flag=1),
    "an odd flag": json_send(flag=4),
    "a negative opaque": json_send(opaque=-5),
    "a remark": json_send(remark="so"),
    "no language": json_send(language=None),
    "an empty body": json_send(body=b""),
    "a large body": json_send(body=b"x" * 5000),
    "many properties": json_send(fields(i=properties(LONG="x" * 32_600))),
    "too many properties": json_send(fields(i=properties(LONG="x" * 32_760))),
    "an empty batch": json_send(fields(m="true"), b"", code=320),
    "a batch that breaks off": json_send(fields(m="true"), batch(4)[:-3], code=320),
    "a batch with a delay": json_send(fields(m="true"), batch(4, DELAY="2"), code=320),
    "a batch of a transaction": json_send(fields(m="true"), batch(2, TRAN_MSG="true"), code=320),
    "a batch with a seal": json_send(fields(m="true"), batch(2, **{"__CRC32#": "1"}), code=320),
    "a batch without properties": json_send(
        fields(m="true"), encode_batch([Message(TOPIC, 0, b"a"), Message(TOPIC, 0, b"")]), code=320
    ),
    "a batch with open properties": json_send(
        fields(m="true"), encode_batch([Message(TOPIC, 0, b"a", b"K\x01v")]), code=320
    ),
    "binary, with an empty field": binary_send(fields(c="")),
    "binary, beyond ASCII": binary_send(fields(i=properties(KEYS="文"))),
    "a heartbeat": json_send({}, b'{"clientID":"x"}', code=34),
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_unusual_ends_as_it_does_on_the_general_way(ways: Ways, what: str) -> None:
    around = json_send(opaque=801) + UNUSUAL[what] + json_send(fields(e="2"), opaque=802)
    ways.same([opened(), around, UNUSUAL[what]])


@pytest.mark.parametrize("sealed", [True, False])
def test_records_are_sealed_or_not_as_ever(ways: Ways, sealed: bool) -> None:
    read = json_send() + json_send(fields(m="true"), UNUSUAL["a batch with open properties"][-30:])
    read += UNUSUAL["a batch with open properties"] + json_send(fields(m="true"), batch(3))
    ways.same([opened(), read], seal_records=sealed)


def test_a_refused_batch_leaves_nothing_behind_the_end_of_the_log(tmp_path: Path) -> None:
    """Whole records there would come back with recovery after a crash."""

    async def main() -> None:
        office = Office(tmp_path / "x", WAYS[-1])
        try:
            await office.feed(opened(), UNUSUAL["a batch that breaks off"])
            end = office.store.appended.value
            segment = office.store.commit_log.segments.first
            assert segment is not None
            assert not any(segment.view[end:])
        finally:
            office.connection.connection_lost(None)
            office.store.close()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(12))
def test_damaged_and_mixed_streams_end_alike(ways: Ways, seed: int) -> None:
    """Bytes of headers are changed at random; lengths stay, so that the stream goes on."""
    chance = random.Random(seed)
    usual = [json_send(), binary_send(), json_send(fields(m="true"), batch(3), code=320)]
    reads = [opened()]
    for _ in range(40):
        picked = bytearray(chance.choice([*usual, *UNUSUAL.values()]))
        for _ in range(chance.randrange(3)):
            at = chance.randrange(8, len(picked))
            picked[at] = chance.choice((picked[at] ^ 1, 0x22, 0x5C, 0x31, 0x2D, 0x80, 2, 0x7D))
        reads.append(bytes(picked) + chance.choice(usual))
    ways.same([reads[0], *reads[1:]])
