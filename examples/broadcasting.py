"""Broadcasting: every member of the group gets all messages and keeps its own offsets in a file."""

import asyncio
import contextlib
import tempfile

from cometmq.client import ConsumeFrom, Message, Model, Producer, PushConsumer, ReceivedMessage

from .cluster import namesrv

TOPIC = "example-broadcasting"


async def main() -> None:
    seen: asyncio.Queue[str] = asyncio.Queue()

    def member(name: str) -> PushConsumer:
        def handler(message: ReceivedMessage) -> None:  # In a thread: it may block.
            loop.call_soon_threadsafe(seen.put_nowait, f"{name} got {message.body.decode()}")

        return PushConsumer(
            address, group="example-caches", topics=TOPIC, handler=handler,
            model=Model.BROADCASTING, consume_from=ConsumeFrom.FIRST,
            offsets_file=f"{directory}/{name}.json",
        )  # fmt: skip

    loop = asyncio.get_running_loop()
    with namesrv() as address, tempfile.TemporaryDirectory() as directory:
        async with contextlib.AsyncExitStack() as stack:
            producer = await stack.enter_async_context(Producer(address, group="example-prices"))
            await producer.send(Message(TOPIC, b"new prices"))
            for name in ("left", "right"):
                await stack.enter_async_context(member(name))
            got: set[str] = set()
            while len(got) < 2:
                got.add(await seen.get())
            print(*sorted(got), sep="\n")


asyncio.run(main())
