"""A test with a real broker in it: `pytest examples/test_orders.py`, or as a program."""

import os
import sys

from cometmq.client import ConsumeFrom, Message
from cometmq.client.blocking import Producer, PullConsumer
from cometmq.testing import BlockingEmbeddedBroker


def place_order(namesrv: str, order: str) -> None:
    """The program that is tested."""
    with Producer(namesrv, group="shop") as producer:
        producer.send(Message("orders", order.encode(), delay_level=5))  # A minute for regrets.


def test_an_order_arrives_after_a_minute(cometmq_broker: BlockingEmbeddedBroker) -> None:
    cometmq_broker.create_topic("orders")
    place_order(cometmq_broker.namesrv, "one coffee")
    with PullConsumer(
        cometmq_broker.namesrv, group="bar", topics="orders", consume_from=ConsumeFrom.FIRST
    ) as consumer:
        assert consumer.poll(timeout_s=0.2) == []
        cometmq_broker.advance(60)
        (order,) = consumer.poll(timeout_s=10)
    assert order.body == b"one coffee"


if __name__ == "__main__":
    os.execv(sys.executable, [sys.executable, "-m", "pytest", "-v", __file__])
