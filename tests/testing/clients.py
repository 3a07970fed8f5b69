"""A client's connection for the length of a block, and what a NameServer tells it."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.routes import ClusterInfo, TopicRoute
from tests.broker.brokers import Client, until


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Client]:
    client = await Client.to(address)
    Client.connected.remove(client)
    try:
        yield client
    finally:
        client.connection.abort()
        await until(lambda: not client.connection.is_open)
        await asyncio.sleep(0)  # And the loop lets go of its socket.


async def route_of(namesrv: str, topic: str) -> TopicRoute | None:
    async with connected(namesrv) as client:
        answer = await client.ask(105, {"topic": topic})
    return decode_body(answer.body, TopicRoute, "route") if answer.code == 0 else None


async def brokers_of(namesrv: str, topic: str) -> dict[str, str]:
    """Names and addresses of the masters that have a topic."""
    route = await route_of(namesrv, topic)
    return {b.broker_name: b.broker_addrs[0] for b in route.broker_datas} if route else {}


async def cluster_of(namesrv: str) -> dict[str, str]:
    async with connected(namesrv) as client:
        info = decode_body((await client.ask(106)).body, ClusterInfo, "cluster")
    return {name: broker.broker_addrs[0] for name, broker in info.broker_addr_table.items()}
