"""Delays: by level as in RocketMQ 4, or to the millisecond; one is taken back before its time."""

import asyncio
import datetime as dt

from cometmq.client import ConsumeFrom, Message, Producer, PullConsumer

from .cluster import namesrv

TOPIC = "example-delayed"


async def main() -> None:
    with namesrv(recallMessageEnable=True) as address:
        async with Producer(address, group="example-alarms") as producer:
            in_an_hour = dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)
            never = await producer.send(Message(TOPIC, b"never", deliver_at=in_an_hour))
            await producer.recall(TOPIC, never.recall_handle)
            await producer.send(Message(TOPIC, b"by level 1, a second", delay_level=1))
            await producer.send(Message(TOPIC, b"by time", delay=dt.timedelta(milliseconds=200)))
            await producer.send(Message(TOPIC, b"at once"))
        async with PullConsumer(
            address, group="example-sleepers", topics=TOPIC, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            came = 0
            async for message in consumer:
                late_ms = message.store_timestamp - message.born_timestamp
                print(f"{message.body.decode()}: {'late' if late_ms >= 190 else 'now'}")
                came += 1
                if came == 3:  # In any order, if all are there when the consumer comes.
                    break


asyncio.run(main())
