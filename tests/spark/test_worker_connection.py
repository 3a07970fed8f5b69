"""Whatever Spark unpickles in a worker as a task begins has the worker's connection wait for
nothing: it acknowledges what has come, and last words leave at once."""

import pickle
import socket
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="acknowledgements are Linux's")
TOPIC = {"namesrvAddr": "127.0.0.1:9876", "topic": "orders"}


class Worker(NamedTuple):
    """The connection of one, as it is in the middle of a talk: acknowledgements come late."""

    connection: socket.socket

    def options(self) -> tuple[bool, bool]:
        return (
            bool(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)),
            bool(self.connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK)),
        )


@pytest.fixture
def worker() -> Iterator[Worker]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        java = socket.create_connection(server.getsockname())
        connection, _ = server.accept()
    with java, connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
        yield Worker(connection)
        java.sendall(b"still there")
        assert connection.recv(100) == b"still there"


def unpickled_in_workers() -> list[Any]:
    pytest.importorskip("pyspark")
    from pyspark.sql.types import StructType

    from cometmq.spark.log.source import RocketMQLogReader
    from cometmq.spark.pipelines.archive_source import ArchiveReader
    from cometmq.spark.sink.writers import RocketMQStreamWriter, RocketMQWriter
    from cometmq.spark.topic.readers import RocketMQReader, RocketMQStreamReader

    schema = StructType().add("body", "binary")
    return [
        RocketMQReader(TOPIC, schema),
        RocketMQStreamReader(TOPIC, schema),
        RocketMQLogReader({"path": "/data/store"}, schema),
        ArchiveReader(TOPIC, schema, "/data/lake", "delta"),
        RocketMQWriter(TOPIC, ["body"]),
        RocketMQStreamWriter(TOPIC, ["body"]),
    ]


@pytest.mark.parametrize("number", range(6))
def test_readers_and_writers_make_it_prompt(worker: Worker, number: int) -> None:
    made = unpickled_in_workers()[number]
    pickled = pickle.dumps(made)
    assert worker.options() == (False, False)
    unpickled = pickle.loads(pickled)
    assert worker.options() == (True, True)
    assert vars(unpickled).keys() == vars(made).keys()
