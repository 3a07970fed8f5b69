"""A filter over properties, which the broker evaluates (it needs enablePropertyFilter=true)."""

import asyncio

from cometmq.client import BadSubscription, ConsumeFrom, Message, Producer, PullConsumer, Sql

from .cluster import namesrv

TOPIC = "example-sql"


def consumer(address: str, wanted: str) -> PullConsumer:
    return PullConsumer(
        address, group="example-bargains", topics={TOPIC: Sql(wanted)},
        consume_from=ConsumeFrom.FIRST,
    )  # fmt: skip


async def main() -> None:
    with namesrv(enablePropertyFilter=True) as address:
        async with Producer(address, group="example-shop") as producer:
            for name, price, region in [("tea", 3, "EU"), ("gold", 900, "EU"), ("rice", 2, "US")]:
                properties = {"price": str(price), "region": region}
                await producer.send(Message(TOPIC, name.encode(), properties=properties))
        async with consumer(address, "price < 10 AND region = 'EU'") as bargains:
            print([message.body.decode() for message in await bargains.poll(timeout_s=20)])
        try:
            await consumer(address, "price <<").start()
        except BadSubscription as error:
            print("refused:", type(error).__name__, error.code)


asyncio.run(main())
