"""Dead letters: what failed for good waits in a topic of its group, and can be sent again."""

import asyncio

from cometmq.client import Later, Message, Producer, PullConsumer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC, GROUP = "example-letters", "example-picky"


async def main() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def handler(message: ReceivedMessage) -> Later | None:
        seen.put_nowait(message.body.decode())
        # -1: at once. Others go there after as many failures as the group is allowed, 16.
        return Later(delay_level=-1) if message.body == b"illegible" else None

    with namesrv() as address:
        async with Producer(address, group="example-post") as producer:
            await producer.send(Message(TOPIC, b"illegible", keys="letter-1"))
            async with PushConsumer(address, group=GROUP, topics=TOPIC, handler=handler):
                await seen.get()
            async with PullConsumer(
                address, group="example-clerk", topics=f"%DLQ%{GROUP}"
            ) as consumer:
                dead = (await consumer.poll(timeout_s=20))[-1]
                await consumer.commit()
            first_topic = dead.properties["RETRY_TOPIC"]
            print(f"dead: {dead.body.decode()} {dead.keys} of {first_topic}")
            await producer.send(Message(first_topic, b"legible", keys=dead.keys))
            async with PushConsumer(address, group=GROUP, topics=TOPIC, handler=handler):
                print("sent again:", await seen.get())


asyncio.run(main())
