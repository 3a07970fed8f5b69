"""JSON bodies of requests and answers."""

from typing import Any, TypeVar

import msgspec

from cometmq.protocol import fastjson
from cometmq.protocol.command import Command, Response

Body = TypeVar("Body")


def decode_body(command: Command, kind: type[Body]) -> Body:
    """The body as a structure; MalformedBody, which is answered with what is wrong, otherwise."""
    return fastjson.decode_body(command.body, kind, f"body of request {command.code}")


def json_response(content: Any) -> Response:
    return Response(body=msgspec.json.encode(content))
