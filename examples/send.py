"""Send a message and see where it went; send several as one batch; send one without an answer."""

import asyncio

from cometmq.client import Message, Producer

from .cluster import namesrv


async def main() -> None:
    with namesrv() as address:
        async with Producer(address, group="example-shop") as producer:
            order = Message("example-send", b"one coffee", tags="paid", keys="order-1")
            sent = await producer.send(order)
            print(f"stored in queue {sent.queue.queue_id}, status {sent.status.value}")

            cups = [Message("example-send", f"cup {number}".encode()) for number in range(3)]
            results = await producer.send_batch(cups)
            print("the batch is in one queue:", len({result.queue for result in results}) == 1)

            await producer.send_oneway(Message("example-send", b"who cares"))


asyncio.run(main())
