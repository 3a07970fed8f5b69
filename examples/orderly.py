"""Order: messages with the same sharding key go to one queue, and come one after the other."""

import asyncio
from collections import defaultdict

from cometmq.client import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC = "example-orderly"
STEPS = ["ordered", "paid", "sent", "arrived"]


async def main() -> None:
    seen: dict[str, list[str]] = defaultdict(list)
    done = asyncio.Event()

    async def handler(message: ReceivedMessage) -> None:
        seen[message.sharding_key].append(message.body.decode())
        if sum(map(len, seen.values())) == 3 * len(STEPS):
            done.set()

    with namesrv() as address:
        async with Producer(address, group="example-shop") as producer:
            for step in STEPS:
                for order in ("order-1", "order-2", "order-3"):
                    await producer.send(Message(TOPIC, step.encode(), sharding_key=order))
        async with PushConsumer(
            address, group="example-desk", topics=TOPIC, handler=handler, orderly=True,
            consume_from=ConsumeFrom.FIRST,
        ):  # fmt: skip
            await done.wait()
    for order, steps in sorted(seen.items()):
        print(order, " → ".join(steps))


asyncio.run(main())
