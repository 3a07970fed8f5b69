"""Moments as an operator gives them, and as brokers take them: milliseconds since 1970."""

from datetime import datetime

from ..errors import IllegalArgument

Moment = datetime | int
"""A time with its zone, or milliseconds since 1970."""


def milliseconds(moment: Moment) -> int:
    if isinstance(moment, int):
        return moment
    if moment.tzinfo is None:
        raise IllegalArgument(f"{moment} needs a time zone, as in datetime.now(UTC)")
    return round(moment.timestamp() * 1000)
