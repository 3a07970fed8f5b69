"""Where groups are, and where queues begin and end."""

import json
from pathlib import Path

import msgspec
import pytest

from cometmq.broker import offsets as offsets_module
from cometmq.broker.offsets import ConsumerOffsets
from cometmq.protocol.codes import ResponseCode
from cometmq.store.config_file import ConfigFile
from cometmq.testing.clock import ManualClock

from .brokers import (
    COMMIT,
    GROUP,
    SUBSCRIPTION,
    TOPIC,
    Client,
    bounded,
    context_of,
    number,
    serving,
)

QUEUE = {"topic": TOPIC, "queueId": 0}
ASKED = {"consumerGroup": GROUP, **QUEUE}


async def known(client: Client) -> None:
    """Make the topic and the group."""
    await client.send()
    await client.pull()


# -- what groups tell ----------------------------------------------------------------------------


@bounded
async def test_an_offset_is_what_was_last_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        for offset in (7, 9, 3):
            assert (await client.commit(offset)).code == 0
            assert await client.offset_of() == offset
        assert await client.offset_of(queue_id=1) == -1
        assert await client.offset_of(group="others") == -1


@bounded
async def test_a_one_way_commit_counts(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        client.tell(15, {**ASKED, "commitOffset": 4})
        assert await client.offset_of() == 4


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"consumerGroup": "stranger"}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "stranger"}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queueId": 4}, ResponseCode.INVALID_PARAMETER),
        ({"queueId": -1}, ResponseCode.INVALID_PARAMETER),
    ],
)
@bounded
async def test_a_commit_that_means_nothing_here_is_refused(
    tmp_path: Path, changes: dict[str, object], code: int
) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        answer = await client.ask(15, {**ASKED, "commitOffset": 4, **changes})
        assert answer.code == code


@bounded
async def test_a_client_that_got_nothing_yet_may_say_so(tmp_path: Path) -> None:
    """As clients in Go and Node do, with -1."""
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        await client.commit(4)
        assert (await client.commit(-1)).code == 0
        assert await client.offset_of() == 4


@bounded
async def test_a_group_that_is_new_begins_at_the_queues_beginning(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        for queue_id in (0, 1):
            answer = await client.ask(14, {**ASKED, "queueId": queue_id})
            assert (answer.code, number(answer, "offset")) == (0, 0)
        not_zero = await client.ask(14, {**ASKED, "setZeroIfNotFound": False})
        assert not_zero.code == ResponseCode.QUERY_NOT_FOUND
        unknown = await client.ask(14, {**ASKED, "topic": "stranger"})
        assert unknown.code == ResponseCode.QUERY_NOT_FOUND


@bounded
async def test_a_queue_that_lost_its_beginning_lets_the_client_choose(tmp_path: Path) -> None:
    how = {"mappedFileSizeCommitLog": 8192, "fileReservedTime": 0}
    async with serving(tmp_path, **how) as broker:
        client = await Client.to(broker)
        for _ in range(100):
            await client.send()
        assert context_of(broker).store.clean() > 0
        assert (await client.ask(14, ASKED)).code == ResponseCode.QUERY_NOT_FOUND


@bounded
async def test_all_offsets_are_told_as_rocketmq_keeps_them(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        await client.commit(5)
        await client.commit(6, queue_id=3)
        tables = [json.loads((await client.ask(43)).body) for _ in range(2)]
        assert tables[0]["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 5, "3": 6}}
        assert tables[0]["dataVersion"] == tables[1]["dataVersion"], "asking is no change"


# -- across restarts -----------------------------------------------------------------------------


@bounded
async def test_offsets_survive_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        await client.commit(5)
    file = json.loads((tmp_path / "config" / "consumerOffset.json").read_bytes())
    assert file["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 5}}
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert await client.offset_of() == 5


@bounded
async def test_offsets_are_saved_while_the_broker_runs(tmp_path: Path) -> None:
    file = tmp_path / "config" / "consumerOffset.json"
    async with serving(tmp_path, flushConsumerOffsetInterval=20) as broker:
        client = await Client.to(broker)
        await known(client)
        for offset in (5, 6):
            await client.commit(offset)
            while not file.exists() or b'"0": %d' % offset not in file.read_bytes():
                await client.offset_of()


@bounded
async def test_a_file_of_rocketmqs_is_read(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "consumerOffset.json").write_bytes(
        b'{"dataVersion":{"counter":9,"stateVersion":0,"timestamp":1},'
        b'"offsetTable":{"orders@billing":{0:11,3:12}},"pullOffsetTable":{},"resetOffsetTable":{}}'
    )
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert await client.offset_of() == 11
        assert await client.offset_of(queue_id=3) == 12


# -- resets --------------------------------------------------------------------------------------


@bounded
async def test_a_reset_stands_until_the_group_takes_notice(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, offsets = await Client.to(broker), context_of(broker).offsets
        for _ in range(8):
            await client.send()
        await client.pull()
        await client.commit(8)
        assert (await client.commit(8)).remark is None
        offsets.reset(GROUP, TOPIC, 0, 3)

        ignored = await client.commit(8)
        assert (ignored.code, ignored.remark) == (0, "Offset has been previously reset")
        assert await client.offset_of() == 3
        moved = await client.pull(offset=8, flag=COMMIT | SUBSCRIPTION, commitOffset=8)
        assert (moved.code, moved.remark) == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET")
        assert number(moved, "nextBeginOffset") == 3
        assert await client.offset_of() == 3
        assert (await client.pull(offset=3)).code == 0
        assert (await client.commit(4)).remark is None
        assert await client.offset_of() == 4


@bounded
async def test_a_reset_concerns_one_group_and_one_queue(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client, offsets = await Client.to(broker), context_of(broker).offsets
        await known(client)
        offsets.reset(GROUP, TOPIC, 0, 0)
        assert (await client.pull(queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        assert (await client.pull(group="others")).code == 0
        assert (await client.pull()).code == ResponseCode.PULL_OFFSET_MOVED


@bounded
async def test_a_reset_survives_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)
        context_of(broker).offsets.reset(GROUP, TOPIC, 0, 1)
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        moved = await client.pull()
        assert (moved.code, number(moved, "nextBeginOffset")) == (21, 1)
        assert (await client.pull()).code == 0


# -- queues --------------------------------------------------------------------------------------


@bounded
async def test_a_queue_tells_where_it_begins_and_ends(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for _ in range(3):
            await client.send()
            clock.advance(1000)
        assert number(await client.ask(30, QUEUE), "offset") == 3
        assert number(await client.ask(31, QUEUE), "offset") == 0
        assert number(await client.ask(32, QUEUE), "timestamp") == 1_700_000_000_000


@bounded
async def test_a_queue_that_does_not_exist_begins_and_ends_at_zero(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for fields in ({**QUEUE, "queueId": 3}, {"topic": "stranger", "queueId": 0}):
            assert number(await client.ask(30, fields), "offset") == 0
            assert number(await client.ask(31, fields), "offset") == 0
            assert number(await client.ask(32, fields), "timestamp") == -1
            assert number(await client.ask(29, {**fields, "timestamp": 5}), "offset") == 0


@pytest.mark.parametrize(
    ("after_ms", "boundary", "offset"),
    [
        (-1, "lower", 0), (0, "lower", 0), (1, "lower", 2), (10, "lower", 2), (11, "lower", 3),
        (99, "lower", 4), (0, "upper", 1), (9, "upper", 1), (10, "upper", 2), (99, "UPPER", 3),
        (10, "anything", 2),
    ],
)  # fmt: skip
@bounded
async def test_a_time_means_an_offset(
    tmp_path: Path, after_ms: int, boundary: str, offset: int
) -> None:
    clock = ManualClock()
    began = clock.now_ms()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        for wait in (0, 10, 10, 0):
            await client.send()
            clock.advance(wait)
        fields = {**QUEUE, "timestamp": began + after_ms, "boundaryType": boundary}
        assert number(await client.ask(29, fields), "offset") == offset


@pytest.mark.parametrize("code", [14, 15, 29, 30, 31, 32])
@bounded
async def test_numbers_that_cannot_be_are_refused(tmp_path: Path, code: int) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        for queue_id in (2**31, "x", ""):
            fields = {**ASKED, "queueId": queue_id, "timestamp": 0, "commitOffset": 0}
            assert (await client.ask(code, fields)).code == ResponseCode.SYSTEM_ERROR
        assert (await client.ask(code, {})).code == ResponseCode.SYSTEM_ERROR


# -- bounds --------------------------------------------------------------------------------------


@bounded
async def test_there_are_no_more_offsets_than_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offsets_module, "OFFSETS_MAX", 3)
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        await known(client)  # One place for what was pulled.
        assert [(await client.commit(1, queue_id=n)).code for n in range(4)] == [0, 0, 2, 2]
        assert (await client.commit(9)).code == 0
        assert await client.offset_of() == 9
        assert (await client.pull(queue_id=1)).code == ResponseCode.PULL_NOT_FOUND
        context_of(broker).offsets.forget_group(GROUP)
        assert (await client.commit(1, queue_id=3)).code == 0


def test_the_count_of_offsets_follows_what_operators_do(tmp_path: Path) -> None:
    clock, file = ManualClock(), ConfigFile(tmp_path / "consumerOffset.json")
    offsets = ConsumerOffsets(file, clock)
    offsets.commit("one", TOPIC, 0, 5)
    offsets.commit("one", TOPIC, 0, 6)
    offsets.pulled("one", TOPIC, 0, 6)
    offsets.reset("one", TOPIC, 0, 2)
    offsets.reset("one", TOPIC, 1, 2)
    offsets.copy("one", "two", [TOPIC])
    assert offsets._count == 5
    offsets.save()
    again = ConsumerOffsets(file, clock)
    assert again._count == 5
    again.forget_topic(TOPIC)
    assert again._count == 0


def test_a_version_grows_with_changes_only(tmp_path: Path) -> None:
    file = ConfigFile(tmp_path / "consumerOffset.json")
    offsets = ConsumerOffsets(file, ManualClock())
    offsets.commit(GROUP, TOPIC, 0, 5)
    for _ in range(3):
        offsets.save()
    assert msgspec.json.decode(file.path.read_bytes())["dataVersion"]["counter"] == 1
