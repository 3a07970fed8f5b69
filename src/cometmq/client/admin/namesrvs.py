"""NameServers: their settings, and the values that they keep by namespace and key.

Changes go to every NameServer, since they do not tell each other; reads of values ask one. What
must not be forgotten goes to more than half of them, and is read from more than half: one that is
away or new hinders nobody then.
"""

import asyncio
from collections.abc import Collection, Mapping

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command
from cometmq.protocol.routes import KvTable

from ..errors import AnswerTimedOut, ConnectionLost, NotFound, Unreachable
from ..link import SUCCESS
from .reach import Reach, decoded
from .settings_text import settings_in, settings_text

ORDER_TOPICS = "ORDER_TOPIC_CONFIG"
"""The namespace that says how many queues each broker has of a topic whose order matters."""


class Namesrvs:
    def __init__(self, reach: Reach) -> None:
        self._reach = reach

    async def config(self) -> dict[str, dict[str, str]]:
        """The settings of every NameServer, by its address."""
        answers = await self._reach.ask_namesrvs(RequestCode.GET_NAMESRV_CONFIG)
        return {address: settings_in(answer) for address, answer in answers.items()}

    async def update_config(self, changes: Mapping[str, object]) -> None:
        """Change settings of all running NameServers."""
        await self._reach.ask_namesrvs(
            RequestCode.UPDATE_NAMESRV_CONFIG, body=settings_text(changes)
        )

    # -- values ----------------------------------------------------------------------------------

    async def get(self, namespace: str, key: str) -> str | None:
        try:
            answer = await self._reach.link.ask_namesrv(
                RequestCode.GET_KV_CONFIG, {"namespace": namespace, "key": key}
            )
        except NotFound:
            return None
        return answer.text_fields().get("value", "")

    async def put(self, namespace: str, key: str, value: str) -> None:
        fields = {"namespace": namespace, "key": key, "value": value}
        await self._reach.ask_namesrvs(RequestCode.PUT_KV_CONFIG, fields)

    async def get_from_most(self, namespace: str, key: str) -> list[str]:
        """What more than half of the NameServers have, those left out that have nothing. Which one
        is right, the value itself must tell."""
        fields = {"namespace": namespace, "key": key}
        there_or_not = SUCCESS | {int(ResponseCode.QUERY_NOT_FOUND)}
        answers = await self._ask_most(RequestCode.GET_KV_CONFIG, fields, there_or_not)
        found = [answer for answer in answers if answer.code == ResponseCode.SUCCESS]
        return [answer.text_fields().get("value", "") for answer in found]

    async def put_to_most(self, namespace: str, key: str, value: str) -> None:
        """To all of them; done when more than half have it."""
        fields = {"namespace": namespace, "key": key, "value": value}
        await self._ask_most(RequestCode.PUT_KV_CONFIG, fields, SUCCESS)

    async def _ask_most(
        self, code: int, fields: Mapping[str, object], accept: Collection[int]
    ) -> list[Command]:
        """The answers of all that are there, if they are more than half."""
        link = self._reach.link
        addresses = link.cluster.addresses
        outcomes = await asyncio.gather(
            *(link.ask(address, code, fields, accept=accept) for address in addresses),
            return_exceptions=True,
        )
        answers, away = list[Command](), list[str]()
        for outcome in outcomes:
            if isinstance(outcome, Command):
                answers.append(outcome)
            elif isinstance(outcome, (Unreachable, ConnectionLost, AnswerTimedOut)):
                away.append(str(outcome))
            else:
                raise outcome
        if 2 * len(answers) <= len(addresses):
            raise Unreachable(
                f"{len(answers)} of {len(addresses)} NameServers answer, and more than half must: "
                + "; ".join(away)
            )
        return answers

    async def delete(self, namespace: str, key: str) -> None:
        """A value that is not there counts as deleted."""
        fields = {"namespace": namespace, "key": key}
        await self._reach.ask_namesrvs(RequestCode.DELETE_KV_CONFIG, fields)

    async def values(self, namespace: str) -> dict[str, str]:
        """Everything in a namespace; nothing when there is no such namespace."""
        try:
            answer = await self._reach.link.ask_namesrv(
                RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": namespace}
            )
        except NotFound:
            return {}
        return decoded(answer, KvTable, "values").table
