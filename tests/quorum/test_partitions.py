"""Members that do not hear one another."""

import asyncio
import time
from pathlib import Path
from typing import Any

from cometmq.protocol.codes import ResponseCode
from tests.broker.brokers import SUBSCRIPTION, SUSPEND, Client, context_of, until
from tests.quorum.groups import group_of, read_all, send_all, store_of

LOOPS = ["uvloop"]


async def test_an_isolated_leader_acknowledges_nothing_and_gives_up_what_it_took(
    tmp_path: Path,
) -> None:
    async with group_of(tmp_path, proxied=True) as group:
        await group.start()
        first = await group.leader()
        sent = await send_all(group.up[first], 100)
        group.isolate(first)
        alone = await Client.to(group.up[first])
        lost = await asyncio.gather(*(alone.send("orders", b"lost %d" % n) for n in range(50)))
        assert {answer.code for answer in lost} == {ResponseCode.SERVICE_NOT_AVAILABLE}
        # Whoever comes later is refused at once.
        refused = await alone.send("orders", b"refused")
        assert refused.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await until(lambda: group.serving() and first not in group.serving())
        second = await group.leader()
        sent += await send_all(group.up[second], 100, first=100)
        assert len(sent) == 200
        # It goes on to serve what was confirmed.
        assert await read_all(group.up[first]) == sent[:100]
        group.heal()
        await group.in_step()
        group.assert_same()
        assert await read_all(group.up[first]) == sent
        alone.close()


async def test_readers_of_an_isolated_leader_may_look_elsewhere_soon(tmp_path: Path) -> None:
    """What they wait for comes at the next leader, however long they want to wait."""
    async with group_of(tmp_path, proxied=True) as group:
        await group.start()
        first = await group.leader()
        sent = await send_all(group.up[first], 4)
        reader = await Client.to(group.up[first])
        patient: dict[str, Any] = {"flag": SUBSCRIPTION | SUSPEND, "suspendTimeoutMillis": 15_000}
        waiting = asyncio.create_task(reader.pull("orders", 0, 1, **patient))
        await until(lambda: len(context_of(group.up[first]).waiting_pulls) == 1)
        group.isolate(first)
        async with asyncio.timeout(8):
            assert (await waiting).code == ResponseCode.PULL_NOT_FOUND
        # Who stays is not sent away all the time, either.
        began_s = time.monotonic()
        async with asyncio.timeout(5):
            assert (
                await reader.pull("orders", 0, 1, **patient)
            ).code == ResponseCode.PULL_NOT_FOUND
        assert time.monotonic() - began_s > 0.5
        await until(lambda: group.serving() and first not in group.serving())
        second = await group.leader()
        sent += await send_all(group.up[second], 1, first=4)
        elsewhere = await Client.to(group.up[second])
        assert [m.body for m in await elsewhere.arrival("orders", 0, 1)] == sent[4:]
        reader.close()
        elsewhere.close()


async def test_a_leader_that_nobody_hears_is_replaced(tmp_path: Path) -> None:
    """One way only: it hears the others, and must not hold on to its place by that."""
    async with group_of(tmp_path, proxied=True) as group:
        await group.start()
        first = await group.leader()
        sent = await send_all(group.up[first], 50)
        for other in group.followers():
            group.lose(first, other)
        await until(lambda: group.serving() not in ([], [first]))
        second = next(member for member in group.serving() if member != first)
        sent += await send_all(group.up[second], 50, first=50)
        group.heal()
        await group.in_step()
        assert await read_all(group.up[first]) == sent


async def test_a_member_that_hears_nobody_does_not_disturb(tmp_path: Path) -> None:
    async with group_of(tmp_path, proxied=True) as group:
        await group.start()
        leader = await group.leader()
        deaf = group.followers()[0]
        for other in group.up:
            if other != deaf:
                group.lose(other, deaf)
        epoch = group.quorum(leader).epoch
        sent = []
        for start in range(0, 100, 20):
            sent += await send_all(group.up[leader], 20, first=start)
            await asyncio.sleep(0.4)
        assert len(sent) == 100
        assert (group.quorum(leader).epoch, group.serving()) == (epoch, [leader])
        group.heal()
        await group.in_step()
        assert group.quorum(leader).epoch == epoch
        assert await read_all(group.up[deaf]) == sent


async def test_two_of_three_go_on_and_one_alone_does_not(tmp_path: Path) -> None:
    async with group_of(tmp_path) as group:
        await group.start()
        leader = await group.leader()
        await group.kill(group.followers()[0])
        sent = await send_all(group.up[leader], 20)
        assert len(sent) == 20
        await group.kill(next(member for member in group.up if member != leader))
        assert await send_all(group.up[leader], 5, first=20) == []
        await until(lambda: group.serving() == [])
        assert (
            store_of(group.up[leader]).confirmed.value < store_of(group.up[leader]).appended.value
        )
        assert await read_all(group.up[leader]) == sent
