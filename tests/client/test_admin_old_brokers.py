"""What brokers before 5.0 do not have, or answer in another way; and answers that make no sense.

The brokers are ours, with those requests taken away or answered as the 4.9 source does.
"""

from collections.abc import Callable
from typing import Any

import pytest

from cometmq.client.admin import offsets
from cometmq.client.admin.topics import Permission
from cometmq.client.errors import BadAnswer, NotSupported
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.transport.connection import Connection, Refusal
from tests.client.shop import BROKERS, IN_EACH, OFFLINE, QUEUES, TOPIC, Shop, open_shop


def not_online(_: Connection, __: Command) -> Response:
    raise Refusal(ResponseCode.CONSUMER_NOT_ONLINE, "Consumer not online, so can not reset offset")


def replace(shop: Shop, code: int, handler: Callable[..., Any] | None) -> None:
    """Have all brokers answer a request with this handler, or not know it."""
    for place in shop.embedded._places:
        assert place.broker is not None
        assert place.broker._server is not None
        handlers: dict[int, Any] = place.broker._server._handlers  # type: ignore[assignment]
        del handlers[code]
        if handler is not None:
            handlers[code] = handler


async def test_a_topics_settings_are_found_among_all() -> None:
    async with open_shop(online=False) as shop:
        replace(shop, RequestCode.GET_TOPIC_CONFIG, None)
        await shop.admin.topics.update(TOPIC, permission=Permission.READ)
        configs = await shop.admin.topics.config(TOPIC)
        found = {name: (c.read_queue_nums, c.perm) for name, c in configs.items()}
        assert found == dict.fromkeys(BROKERS, (2, 4))


async def test_a_group_that_is_offline_is_moved_by_commits() -> None:
    async with open_shop(online=False) as shop:
        replace(shop, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, not_online)
        for to, wanted in (("latest", IN_EACH), ("earliest", 0)):
            moved = await shop.admin.offsets.reset(OFFLINE, TOPIC, to)  # type: ignore[arg-type]
            assert moved == dict.fromkeys(QUEUES, wanted)
            assert await shop.admin.offsets.committed(OFFLINE, TOPIC) == moved


async def test_a_single_queue_is_moved_by_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_shop(online=False) as shop:
        # They would move all queues.
        replace(shop, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, None)
        monkeypatch.setattr(offsets, "_RESETS_ONE_QUEUE", 10**6)
        await shop.admin.offsets.set(OFFLINE, {QUEUES[1]: 3})
        wanted = {**dict.fromkeys(QUEUES, 1), QUEUES[1]: 3}
        assert await shop.admin.offsets.committed(OFFLINE, TOPIC) == wanted


async def test_the_topics_of_a_group_are_found_in_its_progress() -> None:
    async with open_shop(online=False) as shop:
        replace(shop, RequestCode.QUERY_TOPICS_BY_CONSUMER, None)
        assert await shop.admin.groups.topics(OFFLINE) == [TOPIC]


async def test_offsets_of_a_deleted_group_go_by_either_name() -> None:
    asked: list[dict[str, str]] = []

    def delete(_: Connection, command: Command) -> Response:
        asked.append(command.text_fields())
        return Response()

    async with open_shop(online=False) as shop:
        replace(shop, RequestCode.DELETE_SUBSCRIPTIONGROUP, delete)
        await shop.admin.groups.delete(OFFLINE)
        wanted = {"groupName": OFFLINE, "cleanOffset": "true", "removeOffset": "true"}
        assert asked == [wanted] * len(BROKERS)


async def test_what_they_do_not_have_is_said_so() -> None:
    async with open_shop(online=False) as shop:
        replace(shop, RequestCode.GET_ALL_PRODUCER_INFO, None)
        with pytest.raises(NotSupported, match="request type 328 not supported"):
            await shop.admin.members.producers()


async def test_an_answer_that_makes_no_sense_is_said_so() -> None:
    async with open_shop(online=False) as shop:
        for code in (
            RequestCode.GET_TOPIC_STATS_INFO,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            RequestCode.GET_MAX_OFFSET,
            RequestCode.QUERY_MESSAGE,
            RequestCode.PULL_MESSAGE,
        ):
            replace(shop, code, lambda *_: Response(body=b'{"offsetTable":{{"a":1}:{}}'))
        with pytest.raises(BadAnswer, match="the topic's stats cannot be read"):
            await shop.admin.topics.stats(TOPIC)
        with pytest.raises(BadAnswer, match="the groups cannot be read"):
            await shop.admin.groups.names()
        with pytest.raises(BadAnswer, match="an answer without an offset"):
            await shop.admin.offsets.max(QUEUES[0])
        with pytest.raises(BadAnswer, match="broker broker-a at"):
            await shop.admin.messages.by_key(TOPIC, "all")
        with pytest.raises(BadAnswer, match="broker broker-a at"):
            await shop.admin.messages.at(QUEUES[0], 0)


async def test_a_queue_that_goes_on_where_it_was_is_not_read_for_ever() -> None:
    async with open_shop(online=False) as shop:
        again = Response(ResponseCode.PULL_RETRY_IMMEDIATELY, fields={"nextBeginOffset": "0"})
        replace(shop, RequestCode.PULL_MESSAGE, lambda *_: again)
        with pytest.raises(BadAnswer, match="goes on at 0 after 0"):
            _ = [message async for message in shop.admin.messages.read(QUEUES[0])]
