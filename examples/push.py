"""A push consumer: messages come to a handler, several at a time, and are shared by the group."""

import asyncio

from cometmq.client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC = "example-push"


async def main() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    async def handler(message: ReceivedMessage) -> None:
        seen.put_nowait(f"{message.body.decode()} [{message.tags}]")

    with namesrv() as address:
        async with Producer(address, group="example-shop") as producer:
            for number, tag in enumerate(["coffee", "tea", "water", "tea"]):
                await producer.send(Message(TOPIC, f"order {number}".encode(), tags=tag))
        async with PushConsumer(
            address,
            group="example-bar",
            topics={TOPIC: "coffee || tea"},
            handler=handler,
            consume_from=ConsumeFrom.FIRST,
        ):
            for order in sorted([await seen.get() for _ in range(3)]):
                print(order)


asyncio.run(main())
