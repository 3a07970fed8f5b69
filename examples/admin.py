"""Administration: create a topic, see how far a group is behind, move it."""

import asyncio

from cometmq.client import EARLIEST, Admin, ConsumeFrom, Message, Producer, PullConsumer

from .cluster import namesrv

TOPIC, GROUP = "example-admin", "example-slow"


async def main() -> None:
    with namesrv() as address:
        async with Admin(address) as admin, Producer(address, group="example-shop") as producer:
            await admin.topics.create(TOPIC, queues=2)
            print("brokers:", [node.name for node in await admin.brokers.nodes()])
            for number in range(10):
                await producer.send(Message(TOPIC, b"%d" % number, keys=f"key-{number}"))
            async with PullConsumer(
                address, group=GROUP, topics=TOPIC, consume_from=ConsumeFrom.FIRST
            ) as consumer:
                await consumer.poll(timeout_s=20, messages_max=1)
                await consumer.commit()
            print("lag:", (await admin.groups.progress(GROUP, TOPIC)).lag)
            print("skipped:", sorted((await admin.offsets.skip(GROUP, TOPIC)).values()))
            print("lag:", (await admin.groups.progress(GROUP, TOPIC)).lag)
            await admin.offsets.reset(GROUP, TOPIC, EARLIEST)
            found = await admin.messages.by_key(TOPIC, "key-7")
            print("found:", found[-1].body.decode())
            await admin.topics.delete(TOPIC)


asyncio.run(main())
