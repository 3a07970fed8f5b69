"""What brokers say of themselves, in RocketMQ's own requests: whichever make they are."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from tests.broker.brokers import Client

from cometmq.protocol.command import Command
from cometmq.protocol.fastjson import parse_json
from cometmq.transport.loop import run
from interop.rocketmq import Broker

GET_ALL_TOPIC_CONFIG, GET_ALL_CONSUMER_OFFSET, GET_ALL_DELAY_OFFSET = 21, 43, 45
GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RUNTIME_INFO, HA_STATUS = 201, 28, 907
TOLD_S, RETRY_S = 10.0, 0.1


def ask(broker: Broker, code: int, fields: Mapping[str, object] | None = None) -> Command:
    async def asked() -> Command:
        client = await Client.to(broker.address)
        try:
            return await client.ask(code, fields)
        finally:
            client.close()

    return run(asked())


def told(broker: Broker, code: int) -> bytes:
    """The body of an answer. RocketMQ's broker fails at some requests in its first moments, and is
    asked again."""
    deadline = time.monotonic() + TOLD_S
    while (answer := ask(broker, code)).code != 0 and time.monotonic() < deadline:
        time.sleep(RETRY_S)
    assert answer.code == 0, f"{broker} answers {code} with {answer.code}: {answer.remark}"
    return answer.body


def table_of(broker: Broker, code: int) -> dict[str, Any]:
    found: dict[str, Any] = parse_json(told(broker, code))
    return found


def log_end(broker: Broker) -> int:
    table = json.loads(told(broker, RUNTIME_INFO))["table"]
    return int(table["commitLogMaxOffset"])


def knows_topic(broker: Broker, topic: str) -> bool:
    return topic in table_of(broker, GET_ALL_TOPIC_CONFIG)["topicConfigTable"]


def progress_of(broker: Broker, group: str, topic: str) -> dict[str, int]:
    """How far a group has come, by queue."""
    table = table_of(broker, GET_ALL_CONSUMER_OFFSET)["offsetTable"]
    return {queue: int(offset) for queue, offset in table.get(f"{topic}@{group}", {}).items()}


def acknowledged(master: Broker) -> list[int]:
    """How far each slave is, as `mqadmin haStatus` shows it."""
    status = table_of(master, HA_STATUS)
    assert status["master"] is True
    return [int(each["slaveAckOffset"]) for each in status["haConnectionInfo"]]
