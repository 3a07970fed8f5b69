"""Many sends at once: futures, a bound on what is under way, batches that form by themselves."""

import asyncio
import time

from cometmq.client import Message, Producer, TooManyInFlight

from .cluster import namesrv

MESSAGES = 5000


async def main() -> None:
    with namesrv() as address:
        async with Producer(address, group="example-meter", linger_s=0.002) as producer:
            await producer.send(Message("example-in-flight", b"0"))  # The way is known now.
            begun = time.perf_counter()
            futures = []
            for number in range(1, MESSAGES):
                message = Message("example-in-flight", str(number).encode())
                try:
                    futures.append(producer.send_nowait(message))
                except TooManyInFlight:
                    await producer.ready()
                    futures.append(producer.send_nowait(message))
            results = await asyncio.gather(*futures)
            spent = time.perf_counter() - begun
            print(f"{len(results) + 1} messages stored, {len(results) / spent:,.0f} a second")


asyncio.run(main())
