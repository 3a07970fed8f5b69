"""Messages as they are shown: fields for programs, a line or a page for people. Pure."""

import base64
from typing import Any, Final

from cometmq.client.received import ReceivedMessage

from .view import cell, lines_of, moment, printable

BODY_CHARS_MAX: Final = 80
"""Of a body on a line."""


def fields_of(message: ReceivedMessage) -> dict[str, Any]:
    """All of a message. A body that is no UTF-8 text is told as `body_base64`."""
    return {
        "topic": message.topic,
        "broker": message.queue.broker_name,
        "queue": message.queue.queue_id,
        "offset": message.queue_offset,
        "message_id": message.message_id,
        "offset_id": message.offset_message_id,
        "tags": message.tags,
        "keys": message.keys,
        "born_at": message.born_timestamp,
        "stored_at": message.store_timestamp,
        "born_host": str(message.born_host),
        "reconsume_times": message.reconsume_times,
        "properties": message.properties,
        **body_of(message.body),
    }


def body_of(body: bytes) -> dict[str, str]:
    try:
        return {"body": body.decode()}
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}


def page_of(message: ReceivedMessage) -> str:
    """Everything, a field a line."""
    fields = fields_of(message)
    body = fields.pop("body", None) or fields.pop("body_base64", "")
    properties = fields.pop("properties")
    facts = lines_of({**fields, "body_bytes": len(message.body)})
    told = "".join(f"  {printable(k)} = {printable(v)}\n" for k, v in sorted(properties.items()))
    return f"{facts}properties\n{told}\n{_lines(body)}\n"


def line_of(message: ReceivedMessage) -> str:
    """Where, when, and the beginning of its body."""
    queue = message.queue
    place = f"{queue.broker_name}:{queue.queue_id}@{message.queue_offset}"
    marks = " ".join(filter(None, [message.tags, *message.keys]))
    marks = f" [{printable(marks)}]" if marks else ""
    return f"{moment(message.store_timestamp)}  {place}{marks}  {brief(message.body)}\n"


def brief(body: bytes) -> str:
    text = cell("", next(iter(body_of(body).values())))
    return text if len(text) <= BODY_CHARS_MAX else f"{text[: BODY_CHARS_MAX - 1]}…"


def _lines(text: str) -> str:
    """Lines and tabs stay; nothing else that is not printed."""
    return "\n".join(
        "\t".join(printable(piece) for piece in line.split("\t")) for line in text.split("\n")
    )
