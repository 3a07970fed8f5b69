"""Recall handles, as far as a producer reads them: `v1 topic broker time key` in base64."""

import base64
import binascii

from ..errors import IllegalArgument

_VERSION = "v1"
_PARTS = 5


def broker_of_handle(handle: str) -> str:
    """The name of the broker with which the message waits."""
    try:
        text = base64.urlsafe_b64decode(handle + "=" * (-len(handle) % 4)).decode()
    except (binascii.Error, ValueError) as error:
        raise IllegalArgument(f"{handle!r} is no recall handle: {error}") from None
    parts = text.split(" ")
    if len(parts) < _PARTS or parts[0] != _VERSION:
        raise IllegalArgument(f"{handle!r} is no recall handle of version {_VERSION}")
    return parts[2]
