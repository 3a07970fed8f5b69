"""The columns that can be written, with the types that Spark may state for them. Pure."""

from collections.abc import Mapping
from typing import Final

from ..errors import BadOption
from .options import SinkOptions

TYPES: Final[Mapping[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "topic": ("string",),
    "tags": ("string",),
    "keys": ("string",),
    "shardingKey": ("string",),
    "queueId": ("int",),
    "delayLevel": ("int",),
    "deliverAt": ("timestamp",),
    "properties": ("map<string,string>",),
}
"""As Spark's DDL names them. All but the body may be missing, or null in a row."""

DELAYS: Final = ("delayLevel", "deliverAt")


def check_columns(stated: Mapping[str, str], options: SinkOptions) -> None:
    """BadOption with the first column that cannot be written so."""
    possible = ", ".join(f"{name} {' or '.join(kinds)}" for name, kinds in TYPES.items())
    for name, kind in stated.items():
        if name not in TYPES:
            raise BadOption(f"column {name} cannot be written; there are {possible}")
        if kind not in TYPES[name]:
            raise BadOption(
                f"column {name} is {' or '.join(TYPES[name])}, not {kind}: cast it before"
            )
    if "body" not in stated:
        raise BadOption(f"the column body is missing, the message itself; there are {possible}")
    if options.topic and "topic" in stated:
        raise BadOption("the option topic and a column topic are both there; drop one of them")
    if not options.topic and "topic" not in stated:
        raise BadOption("no topic: set the option topic, or have a column of that name")
    for name in DELAYS if options.is_transactional else ():
        if name in stated:
            raise BadOption(
                f"column {name}: a message in a transaction cannot be delayed, too; use "
                "deliveryGuarantee=idempotent"
            )
