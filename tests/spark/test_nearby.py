"""Ranges read out of the files of a broker on the same machine: the same rows, without pulls."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cometmq.protocol.hot import ColumnBuilder
from cometmq.protocol.layout import ENTRY
from cometmq.protocol.message_queue import MessageQueue
from cometmq.spark.errors import DataLost
from cometmq.spark.topic.nearby import ENTRIES_MAX, NearbyQueue, nearby_queue
from cometmq.spark.topic.pulls import Pulls
from cometmq.testing import BlockingEmbeddedBroker, EmbeddedBroker

from .test_ranges import TOPIC, batches, expected, filled, rows

COUNT = 12_000
SMALL_FILES = {
    "mappedFileSizeCommitLog": 256 * 1024,
    "mappedFileSizeConsumeQueue": 1000 * ENTRY.size,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 4000,
}
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


@pytest.fixture(scope="module")
def many_files() -> Iterator[BlockingEmbeddedBroker]:
    """A broker whose store has many files of each kind."""
    pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'cometmq[spark]'")
    with EmbeddedBroker(settings=SMALL_FILES) as broker:
        filled(broker, COUNT)
        yield broker


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The offsets from which messages were pulled."""
    asked: list[int] = []
    ask = Pulls.ask

    def noted(self: Pulls, offset: int, messages_max: int) -> object:
        asked.append(offset)
        return ask(self, offset, messages_max)

    monkeypatch.setattr(Pulls, "ask", noted)
    return asked


def root_of(broker: BlockingEmbeddedBroker) -> Path:
    [log] = broker.directory.rglob("commitlog")
    return log.parent


def store_told(monkeypatch: pytest.MonkeyPatch, root: Path | str) -> None:
    """Have brokers say that their store is there."""

    async def told(_: Pulls) -> dict[str, str]:
        return {"storePathRootDir": str(root)}

    monkeypatch.setattr(Pulls, "broker_settings", told)


def test_rows_come_out_of_files_without_pulls(
    many_files: BlockingEmbeddedBroker, pulls: list[int]
) -> None:
    assert len(list((root_of(many_files) / "commitlog").iterdir())) > 5
    assert rows(many_files, 0, COUNT, localFiles=True) == expected(0, COUNT)
    assert rows(many_files, 7, 10_100, localFiles=True) == expected(7, 10_100)
    assert pulls == [0, 7]  # One message each, to see that it is the same store.


def test_every_column_is_the_same(many_files: BlockingEmbeddedBroker) -> None:
    columns = (
        "topic", "brokerName", "queueId", "queueOffset", "msgId", "bornTimestamp",
        "storeTimestamp", "keys", "tags", "body", "bornHost", "storeHost", "physicalOffset",
        "properties",
    )  # fmt: skip
    near = rows(many_files, 0, COUNT, columns, localFiles=True)
    assert near == rows(many_files, 0, COUNT, columns)


def test_nothing_is_read_so_unless_it_is_asked_for(
    many_files: BlockingEmbeddedBroker, pulls: list[int]
) -> None:
    assert rows(many_files, 0, COUNT) == expected(0, COUNT)
    assert len(pulls) > 2


def test_who_filters_leaves_it_to_the_broker(
    many_files: BlockingEmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pulls, "broker_settings", None)  # Whoever asks for them fails.
    assert rows(many_files, 0, COUNT, localFiles=True, tags="none") == []


def test_duplicates_are_looked_for_either_way(
    many_files: BlockingEmbeddedBroker, pulls: list[int]
) -> None:
    found = rows(many_files, 0, COUNT, localFiles=True, dropDuplicates=True)
    assert found == expected(0, COUNT)
    assert pulls == [0]


def test_a_small_range_is_pulled(many_files: BlockingEmbeddedBroker, pulls: list[int]) -> None:
    assert rows(many_files, 5, 500, localFiles=True) == expected(5, 500)
    assert pulls[0] == 5


def test_another_store_of_the_same_name_is_not_taken_for_the_brokers(
    many_files: BlockingEmbeddedBroker, pulls: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    with EmbeddedBroker(settings=SMALL_FILES) as other:
        filled(other, COUNT)
        store_told(monkeypatch, root_of(many_files))
        assert rows(other, 0, COUNT, localFiles=True) == expected(0, COUNT)
    assert len(pulls) > 2


@pytest.mark.parametrize("root", ["", "store", "/no/such/store"])
def test_a_store_that_is_elsewhere_is_pulled_from(
    many_files: BlockingEmbeddedBroker,
    pulls: list[int],
    monkeypatch: pytest.MonkeyPatch,
    root: str,
) -> None:
    store_told(monkeypatch, root)
    assert rows(many_files, 0, COUNT, localFiles=True) == expected(0, COUNT)
    assert len(pulls) > 2


def test_rows_come_also_when_the_broker_goes_away_meanwhile() -> None:
    count = 40_000  # More than one batch of rows.
    with EmbeddedBroker() as broker:
        filled(broker, count)
        found = batches(broker, TOPIC, 0, count, ("queueOffset", "body"), localFiles=True)
        seen = next(found).to_pylist()
        broker.stop_broker(abrupt=True)
        seen += [row for batch in found for row in batch.to_pylist()]
    assert seen == expected(0, count)


def test_damage_is_told_as_it_is_by_pulls(caplog: pytest.LogCaptureFixture) -> None:
    with EmbeddedBroker(settings=SMALL_FILES) as broker:
        filled(broker, COUNT)
        damage(root_of(broker), 6000)
        with pytest.raises(DataLost, match="6000"):
            rows(broker, 0, COUNT, localFiles=True)
        found = rows(broker, 0, COUNT, localFiles=True, failOnDataLoss=False)
    assert found == [*expected(0, 6000), *expected(6001, COUNT)]
    assert "messages are lost" in caplog.text


def test_files_that_are_gone_are_told_as_they_are_by_pulls() -> None:
    with EmbeddedBroker(settings=SMALL_FILES) as broker:
        filled(broker, COUNT)
        root = root_of(broker)
        sorted((root / "consumequeue" / TOPIC / "0").iterdir())[3].unlink()
        # The broker still has it mapped.
        assert rows(broker, 0, COUNT, localFiles=True) == expected(0, COUNT)


def test_a_record_must_be_the_same_to_the_letter(many_files: BlockingEmbeddedBroker) -> None:
    root = root_of(many_files)
    told = {"storePathRootDir": str(root)}
    record = NearbyQueue(root, QUEUE).record(17)
    assert record is not None
    assert nearby_queue(told, QUEUE, 17, record) is not None
    assert nearby_queue(told, QUEUE, 17, record[:-1] + b"\x03") is None
    assert nearby_queue(told, QUEUE, 18, record) is None
    assert nearby_queue(told, QUEUE, COUNT, record) is None
    assert nearby_queue(told, MessageQueue(TOPIC, "broker-a", 1), 17, record) is None


def test_one_step_takes_no_more_than_it_may(many_files: BlockingEmbeddedBroker) -> None:
    queue, builder = NearbyQueue(root_of(many_files), QUEUE), ColumnBuilder(["body"])
    size = len(queue.record(100) or b"")
    assert queue.take(builder, 100, 10, 1 << 20) == 10
    assert queue.take(builder, 100, 10, 3 * size) == 3
    assert queue.take(builder, 100, 10, 1) == 1  # One in any case, however large.
    assert queue.take(builder, 1, COUNT, 1 << 30) <= ENTRIES_MAX
    assert queue.take(builder, COUNT, 10, 1 << 20) == 0
    assert queue.take(builder, 10 * COUNT, 10, 1 << 20) == 0


def damage(root: Path, offset: int) -> None:
    """Turn a bit of a message's body over, where the broker has it mapped."""
    path = sorted((root / "consumequeue" / TOPIC / "0").iterdir())[offset // 1000]
    physical, _, _ = ENTRY.unpack_from(path.read_bytes(), offset % 1000 * ENTRY.size)
    segment = max(p for p in (root / "commitlog").iterdir() if int(p.name) <= physical)
    with segment.open("r+b") as file:
        file.seek(physical - int(segment.name) + 88)
        byte = file.read(1)[0]
        file.seek(-1, 1)
        file.write(bytes([byte ^ 1]))
