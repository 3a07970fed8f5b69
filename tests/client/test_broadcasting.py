"""Broadcasting: every member gets everything, and keeps its own progress in a file."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cometmq.client.consumer import progress
from cometmq.client.consumer.handling import Later
from cometmq.client.consumer.options import PushOptions
from cometmq.client.consumer.push import PushConsumer
from cometmq.client.consumer.subscriptions import Model
from cometmq.client.errors import IllegalArgument
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue
from cometmq.testing import EmbeddedBroker
from tests.broker.brokers import until

from .consumption import GROUP, TOPIC, Heard, numbered, shop

QUICK = PushOptions(commit_interval_s=0.05, suspend_s=0.01, stop_timeout_s=5.0)


def member_of(broker: EmbeddedBroker, heard: Any, file: Path, **how: Any) -> PushConsumer:
    given = {"group": GROUP, "topics": TOPIC, "options": QUICK, **how}
    return PushConsumer(
        broker.namesrv, model=Model.BROADCASTING, handler=heard, offsets_file=file, **given
    )


async def test_every_member_gets_every_message(tmp_path: Path) -> None:
    one, other = Heard(), Heard()
    async with (
        shop(3) as (broker, sender),
        member_of(broker, one, tmp_path / "one.json") as first,
        member_of(broker, other, tmp_path / "other.json") as second,
    ):
        assert len(first.queues) == len(second.queues) == 3
        # Members of a broadcasting group begin at the end: be sure that they know it.
        await until(lambda: all(f.window for f in [*first._reader.feeds.values()]))
        await until(lambda: all(f.window for f in [*second._reader.feeds.values()]))
        for number, body in enumerate(numbered(9)):
            await sender.send(body, queue_id=number % 3)
        await one.has(*numbered(9))
        await other.has(*numbered(9))
    assert len(one.messages) == len(other.messages) == 9


async def test_a_member_goes_on_where_its_file_says(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "offsets.json"
    heard, later = Heard(), Heard()
    async with shop() as (broker, sender):
        async with member_of(broker, heard, file) as consumer:
            await until(lambda: all(f.window for f in consumer._reader.feeds.values()))
            await sender.send(b"first")
            await heard.has(b"first")
        await sender.send(b"while away")
        async with member_of(broker, later, file):
            await later.has(b"while away")
        assert await sender.committed() == -1  # The broker keeps nothing for it.
    assert later.bodies == [b"while away"]
    kept = msgspec.json.decode(file.read_bytes())
    assert kept == [
        {"queue": {"topic": TOPIC, "brokerName": "broker-a", "queueId": 0}, "offset": 2}
    ]
    assert [path.name for path in file.parent.iterdir()] == ["offsets.json"]


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b'[{"queue":', b"\xff\xfe", b'[{"queue":{},"offset":"x"}]']
)
async def test_a_damaged_file_is_refused_at_the_start(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "offsets.json"
    file.write_bytes(content)
    async with shop() as (broker, _):
        consumer = member_of(broker, Heard(), file)
        with pytest.raises(IllegalArgument, match=r"offsets\.json cannot be read .* remove"):
            await consumer.start()
    assert file.read_bytes() == content


async def test_a_file_that_cannot_be_written_stops_nothing_and_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "offsets.json"
    heard = Heard()
    async with shop() as (broker, sender), member_of(broker, heard, file):
        await until(file.exists)
        file.unlink()
        file.mkdir()  # Nothing can take its name now.
        await sender.send(b"one")
        await heard.has(b"one")
        await until(lambda: "offsets.json cannot be written" in caplog.text)
        file.rmdir()
        await until(lambda: file.exists() and b'"offset":1' in file.read_bytes())


async def test_a_message_that_fails_is_told_of_and_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later:
        await heard(message)
        return Later()

    async with (
        shop() as (broker, sender),
        member_of(broker, handle, tmp_path / "o.json") as consumer,
    ):
        await until(lambda: all(f.window for f in consumer._reader.feeds.values()))
        with caplog.at_level(logging.WARNING):
            await sender.send(b"fails")
            await until(lambda: "failed and are dropped" in caplog.text)
        await broker.advance(3600)
        await asyncio.sleep(0.1)
    assert heard.bodies == [b"fails"]


async def test_an_orderly_member_tries_in_place_until_it_gives_up(tmp_path: Path) -> None:
    heard = Heard()

    async def handle(message: ReceivedMessage) -> Later | None:
        await heard(message)
        return Later() if message.body == b"0" else None

    options = PushOptions(max_reconsume_times=2, suspend_s=0.01, commit_interval_s=0.05)
    how: dict[str, Any] = {"orderly": True, "options": options}
    async with (
        shop() as (broker, sender),
        member_of(broker, handle, tmp_path / "o.json", **how) as consumer,
    ):
        await until(lambda: all(f.window for f in consumer._reader.feeds.values()))
        await sender.send(*numbered(2))
        await heard.has(b"1")
    assert heard.bodies == [b"0", b"0", b"0", b"1"]


async def test_commits_that_meet_write_one_whole_file(tmp_path: Path) -> None:
    file = progress.FileProgress(tmp_path / "offsets.json")
    file.open()
    queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(40)]
    await asyncio.gather(*(file.write({queue: queue.queue_id}) for queue in queues))
    again = progress.FileProgress(tmp_path / "offsets.json")
    again.open()
    for queue in queues:
        assert await again.read(queue, exact=True) == queue.queue_id
