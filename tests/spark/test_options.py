"""Options of the source: what they mean, and what is refused by name."""

import pytest

from cometmq.protocol.message_queue import MessageQueue
from cometmq.protocol.subscription import ALL
from cometmq.spark.connection import redacted
from cometmq.spark.errors import BadOption
from cometmq.spark.schema import COLUMNS
from cometmq.spark.topic.options import Named, SourceOptions, read_options

BASE = {"namesrvAddr": "127.0.0.1:9876", "topic": "orders"}
QUEUE = MessageQueue("orders", "broker-a", 0)


def batch(**more: str) -> SourceOptions:
    return read_options({**BASE, **more}, streaming=False)


def stream(**more: str) -> SourceOptions:
    return read_options({**BASE, **more}, streaming=True)


def test_a_batch_reads_everything_and_a_stream_what_comes() -> None:
    assert (batch().starting.named, batch().ending.named) == (Named.EARLIEST, Named.LATEST)
    assert stream().starting.named is Named.LATEST
    assert batch().columns == COLUMNS
    assert batch().fail_on_data_loss


def test_names_of_options_may_be_written_in_any_case() -> None:
    given = {"NAMESRVADDR": "127.0.0.1:9876", "Topic": "orders", "minpartitions": "7"}
    assert read_options(given, streaming=False).min_partitions == 7


def test_places_are_read_from_json() -> None:
    starting = batch(startingOffsets='{"orders": {"broker-a:0": 5}}').starting
    assert starting.offsets == {QUEUE: 5}
    by_topic = batch(startingOffsetsByTimestamp='{"orders": 1000}').starting
    assert by_topic.time_of(QUEUE) == 1000
    by_queue = batch(startingOffsetsByTimestamp='{"orders": {"broker-a:0": 2000}}').starting
    assert by_queue.time_of(QUEUE) == 2000
    assert by_queue.time_of(MessageQueue("orders", "broker-a", 1)) is None


def test_a_read_may_end_where_it_begins() -> None:
    assert batch(startingTimestamp="9", endingTimestamp="9").ending.timestamp_ms == 9
    place = '{"orders": {"broker-a:0": 5}}'
    assert batch(startingOffsets=place, endingOffsets=place).ending.offsets == {QUEUE: 5}


def test_columns_come_in_the_order_in_which_they_are_named() -> None:
    assert batch(columns="body, QUEUEID").columns == ("body", "queueId")
    assert batch(columns="body", includeProperties="true").columns == ("body", "properties")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"topik": "x"}, "unknown option topik; did you mean topic?"),
        ({"subscribe": "x"}, "topic and subscribe given"),
        ({"startingOffsets": "earliest", "startingTimestamp": "5"}, "startingTimestamp are both"),
        ({"startingOffsets": "erliest"}, "startingOffsets: 'erliest' is no place"),
        ({"startingOffsets": '{"orders": 5}'}, "startingOffsets is not the JSON"),
        ({"startingOffsets": '{"orders": {"broker-a": 5}}'}, "'broker-a' is no queue of orders"),
        ({"startingOffsets": '{"orders": {"broker-a:0": -3}}'}, "startingOffsets: offsets count"),
        ({"startingOffsets": "latest"}, "startingOffsets: a batch that begins at the latest"),
        ({"startingOffsets": "group"}, "startingOffsets=group needs consumerGroup"),
        ({"startingTimestamp": "-1"}, "startingTimestamp: -1 ms is no moment"),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "Strategy is for timestamps"),
        ({"endingOffsets": "earliest"}, "endingOffsets: earliest would read nothing"),
        ({"endingOffsets": "group"}, "endingOffsets: group tells where to begin"),
        (
            {
                "startingOffsets": '{"orders": {"broker-a:0": 5, "broker-a:1": -2}}',
                "endingOffsets": '{"orders": {"broker-a:0": 4, "broker-a:1": -1}}',
            },
            "startingOffsets: 5 is behind endingOffsets, 4, in topic orders, queue broker-a:0",
        ),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "startingTimestamp: 9 is later than endingTimestamp, 8",
        ),
        (
            {"startingTimestamp": "9", "endingOffsetsByTimestamp": '{"orders": 8}'},
            "startingTimestamp: 9 is later than endingOffsetsByTimestamp, 8",
        ),
        (
            {
                "startingOffsetsByTimestamp": '{"orders": 9}',
                "endingOffsetsByTimestamp": '{"orders": {"broker-a:0": 8}}',
            },
            "startingOffsetsByTimestamp: 9 is later than endingOffsetsByTimestamp, 8",
        ),
        ({"tags": "A", "sql92": "a = 1"}, "tags and sql92 are both set"),
        ({"tags": "||"}, "tags: '||' has no tags"),
        ({"tags": "*||a"}, "tags: '*' stands for all tags, but there are others beside it"),
        ({"queues": "0,x:y"}, "queues: 'x:y' is neither"),
        ({"columns": "bodi"}, "columns: no column bodi"),
        ({"minPartitions": "0"}, "minPartitions: 1 or more"),
        ({"maxRecordsPerPartition": "many"}, "maxRecordsPerPartition is a whole number"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss is true or false"),
        ({"tlsCaFile": "ca.pem"}, "tlsCaFile is set, but tls is not true"),
        ({"tls": "true", "tlsCaFile": "/no/ca.pem"}, "tlsCaFile: /no/ca.pem cannot be used"),
        ({"tls": "true", "tlsCaFile": " "}, "tlsCaFile is empty"),
        ({"accessKey": "me"}, "accessKey and secretKey are set together"),
        ({"namesrvAddr": " "}, "namesrvAddr is missing"),
        ({"maxOffsetsPerTrigger": "5"}, "maxOffsetsPerTrigger is for streaming queries only"),
    ],
)
def test_what_a_batch_cannot_mean_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as refused:
        batch(**given)
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets is for batch queries only"),
        ({"maxTriggerDelay": "5s"}, "maxTriggerDelay says how long to wait for minOffsets"),
        ({"minOffsetsPerTrigger": "5", "maxTriggerDelay": "5"}, "maxTriggerDelay is a time with"),
        (
            {"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"},
            "minOffsetsPerTrigger is more",
        ),
        ({"commitGroupOffsets": "true"}, "commitGroupOffsets=true needs consumerGroup"),
    ],
)
def test_what_a_stream_cannot_mean_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as refused:
        stream(**given)
    assert said in str(refused.value)


def test_queues_and_assign_exclude_each_other() -> None:
    given = {"namesrvAddr": "h:1", "assign": '{"orders": ["broker-a:0"]}', "queues": "0"}
    with pytest.raises(BadOption, match="queues and assign are both set"):
        read_options(given, streaming=False)


@pytest.mark.parametrize("name", ["topic", "subscribe", "subscribePattern"])
@pytest.mark.parametrize("value", ["", " "])
def test_what_names_no_topic_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadOption, match=f"{name} is empty"):
        read_options({"namesrvAddr": "h:1", name: value}, streaming=True)


@pytest.mark.parametrize("tags", ["", "*", " * ", "*||"])
def test_all_tags_may_be_written_with_room_around(tags: str) -> None:
    assert batch(tags=tags).tags in ("", ALL)


def test_secrets_do_not_show() -> None:
    secrets = {"accessKey": "mykey", "SECRETKEY": "mysecret", "securityToken": "mytoken"}
    shown = str(redacted({**BASE, **secrets}))
    assert "orders" in shown
    assert not any(secret in shown for secret in secrets.values())
    assert "mysecret" not in repr(batch(accessKey="mykey", secretKey="mysecret"))
