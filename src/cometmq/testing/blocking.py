"""The embedded broker as plain `with` gives it: servers in a thread of their own, calls that block.

Every call is the asynchronous one, waited for. Works in synchronous tests and in asynchronous ones:
the servers go on while the test's own loop waits.
"""

from collections.abc import Mapping
from pathlib import Path

from cometmq.protocol.topic_config import PERM_READ, PERM_WRITE
from cometmq.transport.background import BackgroundLoop

from .clock import MovableClock
from .embedded import EmbeddedBroker
from .fault_proxy import FaultProxy


class BlockingEmbeddedBroker:
    """Made by `with EmbeddedBroker() as broker:`; see there for what it does.

    with EmbeddedBroker() as broker:
        broker.create_topic("orders")
        ...  # clients connect to the NameServer at broker.namesrv
    """

    def __init__(self, broker: EmbeddedBroker, background: BackgroundLoop) -> None:
        self._broker = broker
        self._call = background.call

    @property
    def namesrv(self) -> str:
        return self._broker.namesrv

    @property
    def address(self) -> str:
        return self._broker.address

    @property
    def addresses(self) -> list[str]:
        return self._broker.addresses

    @property
    def directory(self) -> Path:
        return self._broker.directory

    @property
    def clock(self) -> MovableClock:
        return self._broker.clock

    def proxy(self, number: int = 0) -> FaultProxy:
        return self._broker.proxy(number)

    @property
    def namesrv_proxy(self) -> FaultProxy:
        return self._broker.namesrv_proxy

    def create_topic(
        self,
        name: str,
        queues: int = 4,
        *,
        permission: int = PERM_READ | PERM_WRITE,
        order: bool = False,
        attributes: Mapping[str, str] | None = None,
    ) -> None:
        self._call(
            self._broker.create_topic(
                name, queues, permission=permission, order=order, attributes=attributes
            )
        )

    def advance(self, seconds: float) -> None:
        self._call(self._broker.advance(seconds))

    def restart(self, number: int = 0, *, abrupt: bool = False) -> None:
        self._call(self._broker.restart(number, abrupt=abrupt))

    def stop_broker(self, number: int = 0, *, abrupt: bool = False) -> None:
        self._call(self._broker.stop_broker(number, abrupt=abrupt))

    def start_broker(self, number: int = 0) -> None:
        self._call(self._broker.start_broker(number))

    def stop_namesrv(self) -> None:
        self._call(self._broker.stop_namesrv())

    def start_namesrv(self) -> None:
        self._call(self._broker.start_namesrv())
