"""A script without asyncio: the same clients with calls that block."""

from cometmq.client import ConsumeFrom, Message
from cometmq.client.blocking import Producer, PullConsumer

from .cluster import namesrv

TOPIC = "example-script"


def main() -> None:
    with namesrv() as address:
        with Producer(address, group="example-shop") as producer:
            sent = producer.send(Message(TOPIC, b"one coffee"))
            print(f"stored at {sent.queue.broker_name}")
            futures = [producer.send_nowait(Message(TOPIC, b"more")) for _ in range(2)]
            print("in flight:", [future.result().status.value for future in futures])
        with PullConsumer(
            address, group="example-reader", topics=TOPIC, consume_from=ConsumeFrom.FIRST
        ) as consumer:
            taken = []
            for message in consumer:
                taken.append(message.body.decode())
                if len(taken) == 3:
                    break
        print("taken:", sorted(taken))


main()
