"""A plausible request of every code that RocketMQ's clients, tools and brokers send.

Fields and bodies are those of the protocol, with names of one small cluster; what is damaged later
starts out as something that a server takes.
"""

import dataclasses
import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

from cometmq.protocol.codes import RequestCode as Code

TOPICS = ("FuzzA", "FuzzB", "FuzzC", "%RETRY%fuzz-group", "TBW102")
GROUPS = ("fuzz-group", "fuzz-other")
CLIENT = "127.0.0.1@fuzz"
BROKER = "broker-a"
CLUSTER = "DefaultCluster"
ADDRESS = "127.0.0.1:10911"
NOW_MS = 1_794_781_641_519


@dataclasses.dataclass(frozen=True)
class Seed:
    code: int
    fields: Mapping[str, str]
    body: bytes = b""


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _properties(**named: str) -> str:
    return "".join(f"{name}\x01{value}\x02" for name, value in named.items())


def _batch(*bodies: bytes) -> bytes:
    batch = b""
    for body in bodies:
        properties = _properties(UNIQ_KEY="7F00000100002A9F00000000000000AA").encode()
        inner = struct.pack(">iiii", 0, 0, 0, len(body)) + body
        inner += struct.pack(">h", len(properties)) + properties
        batch += struct.pack(">i", len(inner) + 4) + inner
    return batch


def _queue(topic: str = "FuzzA", queue_id: int = 0) -> dict[str, Any]:
    return {"topic": topic, "brokerName": BROKER, "queueId": queue_id}


def _subscription(topic: str, expression: str = "TagA || TagB") -> dict[str, Any]:
    return {
        "topic": topic,
        "subString": expression,
        "tagsSet": ["TagA", "TagB"],
        "codeSet": [2598919, 2598920],
        "subVersion": NOW_MS,
        "expressionType": "TAG",
        "classFilterMode": False,
    }


def _heartbeat(consume_type: str = "CONSUME_PASSIVELY", model: str = "CLUSTERING") -> bytes:
    consumers = [
        {
            "groupName": group,
            "consumeType": consume_type,
            "messageModel": model,
            "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
            "subscriptionDataSet": [_subscription("FuzzA"), _subscription(f"%RETRY%{group}", "*")],
            "unitMode": False,
        }
        for group in GROUPS
    ]
    return _json(
        {
            "clientID": CLIENT,
            "producerDataSet": [{"groupName": "fuzz-producer"}],
            "consumerDataSet": consumers,
            "heartbeatFingerprint": 0,
            "withoutSub": False,
        }
    )


def _topic_config(name: str) -> dict[str, Any]:
    return {
        "topicName": name,
        "readQueueNums": 4,
        "writeQueueNums": 4,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
        "attributes": {},
    }


def _group_config(name: str) -> dict[str, Any]:
    return {
        "groupName": name,
        "consumeEnable": True,
        "consumeFromMinEnable": True,
        "consumeBroadcastEnable": True,
        "consumeMessageOrderly": False,
        "retryQueueNums": 1,
        "retryMaxTimes": 16,
        "groupRetryPolicy": {"type": "CUSTOMIZED"},
        "brokerId": 0,
        "whichBrokerWhenConsumeSlowly": 1,
        "notifyConsumerIdsChangedEnable": True,
        "groupSysFlag": 0,
        "consumeTimeoutMinute": 15,
        "subscriptionDataSet": None,
        "attributes": {},
    }


_DATA_VERSION = {"counter": 1, "stateVersion": 0, "timestamp": NOW_MS}
_REGISTRATION = _json(
    {
        "filterServerList": [],
        "topicConfigSerializeWrapper": {
            "dataVersion": _DATA_VERSION,
            "topicConfigTable": {topic: _topic_config(topic) for topic in TOPICS},
        },
    }
)
_LOCKS = _json(
    {
        "consumerGroup": GROUPS[0],
        "clientId": CLIENT,
        "mqSet": [_queue(), _queue(queue_id=1)],
        "onlyThisBroker": False,
    }
)
_MESSAGE_PROPERTIES = _properties(
    KEYS="order-1 order-2", UNIQ_KEY="7F00000100002A9F00000000000000AB", WAIT="true", TAGS="TagA"
)
_LETTERS = {
    "a": "fuzz-producer",
    "b": "FuzzA",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": str(NOW_MS),
    "h": "0",
    "i": _MESSAGE_PROPERTIES,
    "j": "0",
    "k": "false",
    "m": "false",
    "n": BROKER,
}
_NAMED = {
    "producerGroup": "fuzz-producer",
    "topic": "FuzzA",
    "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4",
    "queueId": "0",
    "sysFlag": "0",
    "bornTimestamp": str(NOW_MS),
    "flag": "0",
    "properties": _MESSAGE_PROPERTIES,
    "reconsumeTimes": "0",
    "unitMode": "false",
    "batch": "false",
}
_PULL = {
    "consumerGroup": GROUPS[0],
    "topic": "FuzzA",
    "queueId": "0",
    "queueOffset": "0",
    "maxMsgNums": "32",
    "sysFlag": "4",
    "commitOffset": "0",
    "suspendTimeoutMillis": "0",
    "subscription": "TagA",
    "subVersion": str(NOW_MS),
    "expressionType": "TAG",
    "maxMsgBytes": "262144",
    "bname": BROKER,
}
_HELD_PULL = {**_PULL, "topic": "FuzzB", "sysFlag": "6", "suspendTimeoutMillis": "500"}
_PLACE = {"topic": "FuzzA", "queueId": "0"}
_GROUP_PLACE = {"consumerGroup": GROUPS[0], **_PLACE}
_BROKER_IDENTITY = {
    "brokerName": BROKER,
    "brokerAddr": ADDRESS,
    "clusterName": CLUSTER,
    "brokerId": "0",
}
_HALF = {
    **_LETTERS,
    "i": _MESSAGE_PROPERTIES + _properties(TRAN_MSG="true", PGROUP="fuzz-producer"),
}
_REPLY_PROPERTIES = _MESSAGE_PROPERTIES + _properties(
    MSG_TYPE="reply", CORRELATION_ID="c-1", REPLY_TO_CLIENT=CLIENT, TTL="3000"
)
_TRANSACTION = {
    "topic": "FuzzA",
    "producerGroup": "fuzz-producer",
    "tranStateTableOffset": "0",
    "commitLogOffset": "0",
    "commitOrRollback": "8",
    "fromTransactionCheck": "false",
    "msgId": "7F00000100002A9F0000000000000000",
    "transactionId": "7F00000100002A9F00000000000000AB",
}
_DELAYED = {**_LETTERS, "i": _MESSAGE_PROPERTIES + _properties(DELAY="1")}
_RETRIED = {**_LETTERS, "b": "%RETRY%fuzz-group", "j": "3", "l": "16"}

SEEDS: tuple[Seed, ...] = (
    Seed(Code.SEND_MESSAGE, _NAMED, b"hello"),
    Seed(Code.SEND_MESSAGE_V2, _LETTERS, b"hello"),
    Seed(Code.SEND_MESSAGE_V2, _LETTERS, b"x" * 5000),
    Seed(Code.SEND_MESSAGE_V2, {**_LETTERS, "f": "1"}, zlib.compress(b"y" * 5000)),
    Seed(Code.SEND_MESSAGE_V2, _DELAYED, b"later"),
    Seed(Code.SEND_MESSAGE_V2, _RETRIED, b"again"),
    Seed(Code.SEND_BATCH_MESSAGE, {**_LETTERS, "m": "true"}, _batch(b"one", b"two", b"three")),
    Seed(Code.SEND_MESSAGE_V2, _HALF, b"half"),
    Seed(Code.END_TRANSACTION, _TRANSACTION),
    Seed(Code.RAFT_STATUS, {}),
    Seed(Code.RAFT_TRANSFER, {"member": "n1"}),
    Seed(Code.RAFT_ADD_MEMBER, {"member": "n3-127.0.0.1:1"}),
    Seed(Code.RAFT_REMOVE_MEMBER, {"member": "n2"}),
    Seed(Code.RECALL_MESSAGE, {
        "topic": "FuzzA", "producerGroup": "fuzz-producer",
        "recallHandle": "djEgRnV6ekEgYnJva2VyLWEgMTc5NDgxOTk1NDk5MiBBQkNE",
    }),
    Seed(Code.CHECK_TRANSACTION_STATE, _TRANSACTION),
    Seed(Code.SEND_REPLY_MESSAGE, {**_NAMED, "properties": _REPLY_PROPERTIES}, b"reply"),
    Seed(Code.SEND_REPLY_MESSAGE_V2, {**_LETTERS, "i": _REPLY_PROPERTIES}, b"reply"),
    Seed(Code.PUSH_REPLY_MESSAGE_TO_CLIENT, {
        **_NAMED, "properties": _REPLY_PROPERTIES, "bornHost": ADDRESS, "storeHost": ADDRESS,
        "storeTimestamp": str(NOW_MS),
    }, b"reply"),
    Seed(Code.PULL_MESSAGE, _PULL),
    Seed(Code.PULL_MESSAGE, _HELD_PULL),
    Seed(Code.LITE_PULL_MESSAGE, {**_PULL, "sysFlag": "20"}),
    Seed(Code.QUERY_MESSAGE, {
        "topic": "FuzzA", "key": "order-1", "maxNum": "32", "beginTimestamp": "0",
        "endTimestamp": str(2**63 - 1), "_UNIQUE_KEY_QUERY": "false",
    }),
    Seed(Code.QUERY_CONSUMER_OFFSET, {**_GROUP_PLACE, "setZeroIfNotFound": "true"}),
    Seed(Code.UPDATE_CONSUMER_OFFSET, {**_GROUP_PLACE, "commitOffset": "5"}),
    Seed(Code.UPDATE_AND_CREATE_TOPIC, {
        "topic": "FuzzB", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": "+message.type=NORMAL",
    }),
    Seed(Code.UPDATE_AND_CREATE_TOPIC_LIST, {}, _json({
        "topicConfigList": [_topic_config("FuzzB"), _topic_config("FuzzC")],
    })),
    Seed(Code.GET_ALL_TOPIC_CONFIG, {"topicSeq": "0", "maxTopicNum": "10"}),
    Seed(Code.UPDATE_BROKER_CONFIG, {}, b"fileReservedTime=72\nmaxMessageSize=4194304\n"),
    Seed(Code.GET_BROKER_CONFIG, {}),
    Seed(Code.GET_BROKER_RUNTIME_INFO, {}),
    Seed(Code.SEARCH_OFFSET_BY_TIMESTAMP, {
        **_PLACE, "timestamp": str(NOW_MS), "boundaryType": "lower",
    }),
    Seed(Code.GET_MAX_OFFSET, {**_PLACE, "committed": "true"}),
    Seed(Code.GET_MIN_OFFSET, _PLACE),
    Seed(Code.GET_EARLIEST_MSG_STORETIME, _PLACE),
    Seed(Code.VIEW_MESSAGE_BY_ID, {"topic": "FuzzA", "offset": "0"}),
    Seed(Code.HEART_BEAT, {}, _heartbeat()),
    Seed(Code.HEART_BEAT, {}, _heartbeat("CONSUME_ACTIVELY", "BROADCASTING")),
    Seed(Code.UNREGISTER_CLIENT, {
        "clientID": CLIENT, "producerGroup": "fuzz-producer", "consumerGroup": GROUPS[1],
    }),
    Seed(Code.CONSUMER_SEND_MSG_BACK, {
        "offset": "0", "group": GROUPS[0], "delayLevel": "1", "originTopic": "FuzzA",
        "originMsgId": "7F00000100002A9F0000000000000000", "maxReconsumeTimes": "16",
    }),
    Seed(Code.GET_CONSUMER_LIST_BY_GROUP, {"consumerGroup": GROUPS[0]}),
    Seed(Code.NOTIFY_CONSUMER_IDS_CHANGED, {"consumerGroup": GROUPS[0]}),
    Seed(Code.LOCK_BATCH_MQ, {}, _LOCKS),
    Seed(Code.UNLOCK_BATCH_MQ, {}, _LOCKS),
    Seed(Code.GET_ALL_CONSUMER_OFFSET, {}),
    Seed(Code.GET_ALL_DELAY_OFFSET, {}),
    Seed(Code.GET_TIMER_CHECK_POINT, {}),
    Seed(Code.GET_TIMER_METRICS, {}),
    Seed(Code.GET_ALL_MESSAGE_REQUEST_MODE, {}),
    Seed(Code.EXCHANGE_BROKER_HA_INFO, {"masterHaAddress": ADDRESS, "masterAddress": ADDRESS}),
    Seed(Code.GET_BROKER_HA_STATUS, {}),
    Seed(Code.CHECK_CLIENT_CONFIG, {}, _json({
        "clientId": CLIENT, "group": GROUPS[0],
        "subscriptionData": {**_subscription("FuzzA", "a > 5"), "expressionType": "SQL92"},
    })),
    Seed(Code.PUT_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "FuzzA", "value": "b:4"}),
    Seed(Code.GET_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "FuzzA"}),
    Seed(Code.DELETE_KV_CONFIG, {"namespace": "ORDER_TOPIC_CONFIG", "key": "FuzzA"}),
    Seed(Code.REGISTER_BROKER, {
        **_BROKER_IDENTITY, "haServerAddr": "127.0.0.1:10912", "enableActingMaster": "false",
        "compressed": "false", "bodyCrc32": "0",
    }, _REGISTRATION),
    Seed(Code.UNREGISTER_BROKER, _BROKER_IDENTITY),
    Seed(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "FuzzA", "acceptStandardJsonOnly": "true"}),
    Seed(Code.GET_BROKER_CLUSTER_INFO, {}),
    Seed(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, _json(_group_config(GROUPS[0]))),
    Seed(Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {"groupSeq": "0", "maxGroupNum": "10"}),
    Seed(Code.GET_TOPIC_STATS_INFO, {"topic": "FuzzA"}),
    Seed(Code.GET_CONSUMER_CONNECTION_LIST, {"consumerGroup": GROUPS[0]}),
    Seed(Code.GET_PRODUCER_CONNECTION_LIST, {"producerGroup": "fuzz-producer"}),
    Seed(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": BROKER}),
    Seed(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {}),
    Seed(Code.DELETE_SUBSCRIPTIONGROUP, {"groupName": GROUPS[1], "cleanOffset": "true"}),
    Seed(Code.GET_CONSUME_STATS, {"consumerGroup": GROUPS[0], "topic": "FuzzA"}),
    Seed(Code.DELETE_TOPIC_IN_BROKER, {"topic": "FuzzC"}),
    Seed(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "FuzzC", "clusterName": CLUSTER}),
    Seed(Code.REGISTER_TOPIC_IN_NAMESRV, {"topic": "FuzzC"}),
    Seed(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}),
    Seed(Code.RESET_CONSUMER_CLIENT_OFFSET, {
        "topic": "FuzzA", "group": GROUPS[0], "timestamp": str(NOW_MS), "isForce": "true",
    }),
    Seed(Code.GET_CONSUMER_STATUS_FROM_CLIENT, {
        "topic": "FuzzA", "group": GROUPS[0], "clientAddr": CLIENT,
    }),
    Seed(Code.INVOKE_BROKER_TO_RESET_OFFSET, {
        "group": GROUPS[0], "topic": "FuzzA", "timestamp": str(NOW_MS), "isForce": "true",
        "queueId": "0", "offset": "1",
    }),
    Seed(Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, {
        "topic": "FuzzA", "group": GROUPS[0], "clientAddr": CLIENT,
    }),
    Seed(Code.GET_TOPICS_BY_CLUSTER, {"cluster": CLUSTER}),
    Seed(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, {}, _json({
        "groupConfigList": [_group_config(group) for group in GROUPS],
    })),
    Seed(Code.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "FuzzA"}),
    Seed(Code.QUERY_CONSUME_TIME_SPAN, {"topic": "FuzzA", "group": GROUPS[0]}),
    Seed(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, {}),
    Seed(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, {}),
    Seed(Code.CLEAN_EXPIRED_CONSUMEQUEUE, {}),
    Seed(Code.GET_CONSUMER_RUNNING_INFO, {
        "consumerGroup": GROUPS[0], "clientId": CLIENT, "jstackEnable": "false",
    }),
    Seed(Code.QUERY_CORRECTION_OFFSET, {
        "filterGroups": GROUPS[1], "compareGroup": GROUPS[0], "topic": "FuzzA",
    }),
    Seed(Code.CONSUME_MESSAGE_DIRECTLY, {
        "consumerGroup": GROUPS[0], "clientId": CLIENT, "brokerName": BROKER,
        "msgId": "7F00000100002A9F0000000000000000",
    }),
    Seed(Code.GET_UNIT_TOPIC_LIST, {}),
    Seed(Code.GET_HAS_UNIT_SUB_TOPIC_LIST, {}),
    Seed(Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, {}),
    Seed(Code.CLONE_GROUP_OFFSET, {
        "srcGroup": GROUPS[0], "destGroup": GROUPS[1], "topic": "FuzzA", "offline": "false",
    }),
    Seed(Code.VIEW_BROKER_STATS_DATA, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "FuzzA"}),
    Seed(Code.CLEAN_UNUSED_TOPIC, {}),
    Seed(Code.GET_BROKER_CONSUME_STATS, {"isOrder": "false"}),
    Seed(Code.UPDATE_NAMESRV_CONFIG, {}, b"orderMessageEnable=true\n"),
    Seed(Code.GET_NAMESRV_CONFIG, {}),
    Seed(Code.QUERY_CONSUME_QUEUE, {**_GROUP_PLACE, "index": "0", "count": "10"}),
    Seed(Code.QUERY_DATA_VERSION, _BROKER_IDENTITY, _json(_DATA_VERSION)),
    Seed(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": BROKER}),
    Seed(Code.GET_ALL_PRODUCER_INFO, {}),
    Seed(Code.DELETE_EXPIRED_COMMITLOG, {}),
    Seed(Code.QUERY_TOPICS_BY_CONSUMER, {"group": GROUPS[0]}),
    Seed(Code.QUERY_SUBSCRIPTION_BY_CONSUMER, {"group": GROUPS[0], "topic": "FuzzA"}),
    Seed(Code.GET_TOPIC_CONFIG, {"topic": "FuzzA", "lo": "true"}),
    Seed(Code.GET_SUBSCRIPTIONGROUP_CONFIG, {"group": GROUPS[0]}),
    Seed(Code.UPDATE_AND_GET_GROUP_FORBIDDEN, {
        "group": GROUPS[1], "topic": "FuzzC", "readable": "true",
    }),
    Seed(Code.GET_BROKER_MEMBER_GROUP, {"clusterName": CLUSTER, "brokerName": BROKER}),
    Seed(Code.BROKER_HEARTBEAT, _BROKER_IDENTITY),
)  # fmt: skip
