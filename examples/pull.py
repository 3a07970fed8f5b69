"""A pull consumer: the program takes messages when it likes, goes back, and commits."""

import asyncio

from cometmq.client import ConsumeFrom, Message, Producer, PullConsumer

from .cluster import namesrv

TOPIC = "example-pull"


async def main() -> None:
    with namesrv() as address:
        async with Producer(address, group="example-shop") as producer:
            await producer.send_batch([Message(TOPIC, b"line %d" % n) for n in range(5)])
        async with PullConsumer(
            address, group="example-reader", topics=TOPIC, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            async for message in consumer:
                print(message.queue_offset, message.body.decode())
                if message.body == b"line 4":
                    break
            consumer.seek(message.queue, message.queue_offset - 1)
            again = await consumer.poll(timeout_s=10)
            print("again:", [message.body.decode() for message in again])
            await consumer.commit()
            print("committed:", await consumer.committed(message.queue))


asyncio.run(main())
