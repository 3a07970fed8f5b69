"""Retries: a handler that fails, or says `Later`, gets the message again."""

import asyncio

from cometmq.client import ConsumeFrom, Later, Message, Producer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC = "example-retries"


async def main() -> None:
    done = asyncio.Event()

    async def handler(message: ReceivedMessage) -> Later | None:
        print(f"{message.body.decode()}: attempt {message.reconsume_times + 1}")
        if message.reconsume_times == 0:
            return Later(delay_level=1)  # In a second. An exception does it too, in ten.
        done.set()
        return None

    with namesrv() as address:
        async with Producer(address, group="example-shop") as producer:
            await producer.send(Message(TOPIC, b"moody"))
        async with PushConsumer(
            address, group="example-patient", topics=TOPIC, handler=handler,
            consume_from=ConsumeFrom.FIRST,
        ):  # fmt: skip
            await done.wait()


asyncio.run(main())
