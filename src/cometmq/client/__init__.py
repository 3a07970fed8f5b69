"""The Python client: producers, consumers and administration over asyncio.

    async with Producer("127.0.0.1:9876", group="shop") as producer:
        await producer.send(Message("orders", b"one coffee"))

Everything that users need can be imported from here (`names.py` lists it) and is loaded when the
first name is asked for. `cometmq.client.blocking` has the same clients with calls that block.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .names import *  # noqa: F403 - type checkers see the same names


def __getattr__(name: str) -> Any:
    # Not `from . import names`: that asks this function for it.
    names = importlib.import_module(".names", __name__)
    if name not in names.__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(names, name)
