"""Transactions: a message is seen only if its sender's own work succeeded."""

import asyncio

from cometmq.client import ConsumeFrom, Decision, Message, PullConsumer, TransactionProducer
from cometmq.client import ReceivedMessage as Received

from .cluster import namesrv

TOPIC = "example-transactions"
accounts = {"anna": 10, "ben": 0}


async def pay(message: Message, _transaction: str) -> Decision:
    if accounts[message.body.decode()] < 5:
        return Decision.ROLLBACK
    accounts[message.body.decode()] -= 5
    return Decision.COMMIT


def check(_: Received) -> Decision:
    """The broker asks when it heard no decision: look into the database what became of it."""
    return Decision.UNKNOWN


async def main() -> None:
    with namesrv() as address:
        async with TransactionProducer(address, group="example-bank", check=check) as producer:
            for name in (b"ben", b"anna"):
                result = await producer.send_in_transaction(Message(TOPIC, name), pay)
                print(name.decode(), result.decision.name)
        async with PullConsumer(
            address, group="example-books", topics=TOPIC, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            print("consumers see:", [m.body.decode() for m in await consumer.poll(timeout_s=20)])


asyncio.run(main())
