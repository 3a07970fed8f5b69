"""Members of one group that subscribe differently: each is served as it asked, and it is said."""

from pathlib import Path

import msgspec
import pytest

from cometmq.broker.broker import Broker
from tests.broker.brokers import GROUP, TOPIC, Client, bodies_in, bounded, context_of, serving


async def members(broker: Broker) -> tuple[Client, Client]:
    red, blue = await Client.to(broker), await Client.to(broker)
    await red.heartbeat("red", GROUP, topics={TOPIC: "red"}, version=1)
    await blue.heartbeat("blue", GROUP, topics={TOPIC: "blue", "other": "*"}, version=2)
    return red, blue


@bounded
async def test_each_member_gets_what_it_subscribed_to_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        red, blue = await members(broker)
        for color in ("red", "blue"):
            await red.send(body=color.encode(), properties={"TAGS": color})
        await red.send("other")
        await red.heartbeat("red", GROUP, topics={TOPIC: "red"}, version=1)
        assert bodies_in(await red.pull(flag=0)) == [b"red"]
        assert bodies_in(await blue.pull(flag=0)) == [b"blue"]
        assert (await blue.pull("other", flag=0)).code == 0
        assert (await red.pull("other", flag=0)).code == 24


@bounded
async def test_the_broker_says_which_group_and_which_topics(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as broker:
        red, blue = await members(broker)
        assert f"the members of group {GROUP} subscribe differently to orders, other" in caplog.text
        answer = await red.ask(203, {"consumerGroup": GROUP})
        assert msgspec.json.decode(answer.body)["subscriptionConflicts"] == ["orders", "other"]
        info = msgspec.json.decode((await red.ask(28)).body)["table"]
        assert info[f"subscriptionConflicts_{GROUP}"] == "orders, other"

        caplog.clear()
        await blue.heartbeat("blue", GROUP, topics={TOPIC: "blue", "other": "*"}, version=2)
        assert "differently" not in caplog.text  # Once is enough.
        await blue.heartbeat("blue", GROUP, topics={TOPIC: "red"}, version=3)
        group = context_of(broker).clients.consumer_group(GROUP)
        assert group is not None
        assert group.conflicts == ()


@bounded
async def test_a_conflict_ends_with_the_member_that_made_it(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        red, blue = await members(broker)
        await blue.ask(35, {"clientID": "blue", "consumerGroup": GROUP})
        group = context_of(broker).clients.consumer_group(GROUP)
        assert group is not None
        assert (group.conflicts, list(group.subscriptions)) == ((), [TOPIC])
        red.close()
