"""NameServers: their settings, and the values that they keep by namespace and key.

Changes go to every NameServer, since they do not tell each other; reads of values ask one.
"""

from collections.abc import Mapping

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.routes import KvTable

from ..errors import NotFound
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
