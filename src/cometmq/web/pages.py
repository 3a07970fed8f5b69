"""The pages of a process: /metrics, /health, /ready, about the servers that run in it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from typing import NamedTuple

from cometmq.broker.broker import Broker
from cometmq.namesrv.server import NameServer

from .broker_metrics import broker_families, broker_labels
from .endpoint import Pages
from .exposition import CONTENT_TYPE, Family, Labels, encode
from .namesrv_metrics import namesrv_families, namesrv_labels
from .process_metrics import process_families
from .readiness import broker_troubles, namesrv_troubles
from .requests import Answer


class Observable(NamedTuple):
    """A server as it looks from outside."""

    labels: Callable[[], Labels]
    families: Callable[[], Awaitable[list[Family]]]
    troubles: Callable[[], list[str]]
    """Why it is not ready; empty when it is."""


def of_broker(broker: Broker) -> Observable:
    return Observable(
        lambda: broker_labels(broker),
        lambda: broker_families(broker),
        lambda: broker_troubles(broker),
    )


def of_name_server(server: NameServer) -> Observable:
    return Observable(
        lambda: namesrv_labels(server),
        lambda: namesrv_families(server),
        lambda: namesrv_troubles(server),
    )


def pages(servers: Sequence[Observable]) -> Pages:
    one_at_a_time = asyncio.Lock()

    async def metrics() -> Answer:
        async with one_at_a_time:
            found = [
                (family, server.labels())
                for server in servers
                for family in await server.families()
            ]
        found += [(family, {}) for family in process_families()]
        return Answer(HTTPStatus.OK, encode(found), CONTENT_TYPE)

    async def health() -> Answer:
        return Answer(HTTPStatus.OK, b"alive\n")

    async def ready() -> Answer:
        troubles = [trouble for server in servers for trouble in server.troubles()]
        if troubles:
            return Answer(HTTPStatus.SERVICE_UNAVAILABLE, ("\n".join(troubles) + "\n").encode())
        return Answer(HTTPStatus.OK, b"ready\n")

    return {"/metrics": metrics, "/health": health, "/ready": ready}
