"""Request–reply: an answer goes to the client that asked."""

from pathlib import Path

from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from tests.broker.brokers import Client, bounded, long_send_fields, send_fields, serving

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
PROPERTIES = {"CORRELATION_ID": "17", "REPLY_TO_CLIENT": "asker", "MSG_TYPE": "reply"}


class Asker(Client):
    """A client that takes answers, or says that it cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[Command] = []
        self.code = 0

    async def join(self, address: str) -> None:
        handlers = {RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: self._take}
        self._connection = await connect(address, handlers)  # type: ignore[arg-type]
        await self.heartbeat("asker", producers=["askers"])

    def _take(self, _: Connection, command: Command) -> Response:
        self.answers.append(command)
        return Response(self.code, "no such request" if self.code else None)


@bounded
async def test_a_reply_reaches_the_client_that_asked_and_is_stored(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        asker, replier = Asker(), await Client.to(broker)
        await asker.join(str(broker.address))
        answer = await replier.ask(325, send_fields(REPLY_TOPIC, 0, PROPERTIES), b"42")
        assert answer.code == 0, answer.remark
        (pushed,) = asker.answers
        fields = pushed.text_fields()
        assert pushed.body == b"42"
        assert "CORRELATION_ID\x0117\x02" in fields["properties"]
        assert "PUSH_REPLY_TIME\x01" in fields["properties"]
        assert fields["storeHost"] == str(broker.address)
        (stored,) = await replier.pulled(REPLY_TOPIC)
        assert stored.body == b"42"


@bounded
async def test_old_clients_reply_with_names_in_full(tmp_path: Path) -> None:
    async with serving(tmp_path, storeReplyMessageEnable=False) as broker:
        asker, replier = Asker(), await Client.to(broker)
        await asker.join(str(broker.address))
        properties = "".join(f"{name}\x01{value}\x02" for name, value in PROPERTIES.items())
        fields = long_send_fields(REPLY_TOPIC, properties=properties)
        answer = await replier.ask(324, fields, b"43")
        assert (answer.code, answer.text_fields()["msgId"]) == (0, "0")
        assert asker.answers[0].body == b"43"
        assert await replier.pulled(REPLY_TOPIC) == []


@bounded
async def test_a_reply_that_cannot_be_handed_over_is_refused_with_the_reason(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as broker:
        replier = await Client.to(broker)
        answer = await replier.ask(325, send_fields(REPLY_TOPIC, 0, PROPERTIES))
        assert answer.code == 1
        assert "asker is not connected" in (answer.remark or "")
        answer = await replier.ask(325, send_fields(REPLY_TOPIC))
        assert "REPLY_TO_CLIENT" in (answer.remark or "")
        asker = Asker()
        await asker.join(str(broker.address))
        asker.code = 1
        answer = await replier.ask(325, send_fields(REPLY_TOPIC, 0, PROPERTIES))
        assert "no such request" in (answer.remark or "")
        asker.close()
