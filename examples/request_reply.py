"""Request and reply: send a question, wait for the answer of whoever consumes it."""

import asyncio

from cometmq.client import Message, Producer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC = "example-questions"


async def main() -> None:
    async def answer(question: ReceivedMessage) -> None:
        a, b = map(int, question.body.split(b"+"))
        await answering.reply(question, str(a + b).encode())

    with namesrv() as address:
        async with (
            Producer(address, group="example-asking") as asking,
            Producer(address, group="example-answering") as answering,
            PushConsumer(address, group="example-calculator", topics=TOPIC, handler=answer),
        ):
            for question in (b"2+2", b"40+2"):
                reply = await asking.request(Message(TOPIC, question), timeout_s=20)
                print(question.decode(), "=", reply.body.decode())


asyncio.run(main())
