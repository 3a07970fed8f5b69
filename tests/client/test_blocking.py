"""The blocking twin: the asyncio clients for scripts, threads and forks, never out of step."""

import ast
import asyncio
import inspect
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from tools import blocking_twin

from cometmq.client import (
    ConsumeFrom,
    Decision,
    IllegalArgument,
    Later,
    Message,
    NotStarted,
    ReceivedMessage,
    SendResult,
    TooManyInFlight,
    TopicNotFound,
    WouldBlock,
    blocking,
    names,
)
from cometmq.client.blocking import (
    Admin,
    Producer,
    PullConsumer,
    PushConsumer,
    TransactionProducer,
)
from cometmq.testing import EmbeddedBroker
from cometmq.testing.blocking import BlockingEmbeddedBroker

TOPIC, GROUP = "orders", "billing"
WAIT_S = 30.0
CLIENTS = ["Producer", "TransactionProducer", "PushConsumer", "PullConsumer", "Admin"]


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingEmbeddedBroker]:
    with EmbeddedBroker(in_memory=True) as broker:
        yield broker


@pytest.fixture
def topic(broker: BlockingEmbeddedBroker, request: pytest.FixtureRequest) -> str:
    """A topic of its own, with four queues."""
    name: str = request.node.name.split("[")[0][:100]
    broker.create_topic(name)
    return name


class Seen:
    """Messages that handlers have seen, in any thread."""

    def __init__(self) -> None:
        self.messages: list[ReceivedMessage] = []
        self.threads: set[str] = set()
        self._changed = threading.Condition()

    def __call__(self, message: ReceivedMessage) -> None:
        with self._changed:
            self.messages.append(message)
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def wait_for(self, count: int) -> list[bytes]:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.messages) >= count, WAIT_S)
            return sorted(message.body for message in self.messages)


def pull(namesrv: str, topic: str, group: str = GROUP) -> PullConsumer:
    return PullConsumer(namesrv, group=group, topics=topic, consume_from=ConsumeFrom.FIRST)


def numbered(topic: str, count: int) -> list[Message]:
    return [Message(topic, b"%03d" % number) for number in range(count)]


# -- one source ----------------------------------------------------------------------------------


def test_the_twin_is_what_the_asyncio_clients_make_of_it() -> None:
    made = ast.parse(blocking_twin.laid_out(blocking_twin.source()))
    kept = ast.parse(blocking_twin.TARGET.read_text())
    assert ast.unparse(made) == ast.unparse(kept), "run `make twin`"


@pytest.mark.parametrize("name", CLIENTS)
def test_signatures_defaults_and_docstrings_are_the_same(name: str) -> None:
    ours, theirs = getattr(blocking, name), getattr(names, name)
    compared = 0
    for member, method in inspect.getmembers(ours, inspect.isfunction):
        if member.startswith("__") or member == "send_nowait":
            continue
        original = getattr(theirs, member)
        assert parameters(method) == parameters(original)
        assert bool(method.__doc__) == bool(original.__doc__)
        assert not inspect.iscoroutinefunction(method)
        compared += 1
    assert compared >= 2
    assert parameters(ours) == parameters(theirs)


def parameters(function: object) -> list[tuple[str, object]]:
    assert callable(function)
    signature = inspect.signature(function)
    return [(p.name, p.default) for p in signature.parameters.values()]


def test_a_name_that_means_two_things_is_refused() -> None:
    imports = blocking_twin.Imports()
    imports.add("Place", "from one import Place")
    with pytest.raises(SystemExit, match="Place is two things"):
        imports.add("Place", "from two import Place")
    with pytest.raises(SystemExit, match="rename one"):
        imports.add("Producer", "from elsewhere import Producer")


# -- sending -------------------------------------------------------------------------------------


def test_what_is_sent_is_there_to_be_pulled(broker: BlockingEmbeddedBroker, topic: str) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        sent = [producer.send(message) for message in numbered(topic, 8)]
        batch = producer.send_batch([Message(topic, b"batch")] * 3)
        producer.send_oneway(Message(topic, b"one way"))
        assert producer.group == "shop"
        assert producer.in_flight == 0
    assert {result.queue.queue_id for result in sent} == {0, 1, 2, 3}
    assert len({result.message_id for result in batch}) == 3
    with pull(broker.namesrv, topic, "counting") as consumer:
        found: list[bytes] = []
        while len(found) < 12:
            found += [message.body for message in consumer.poll(WAIT_S)]
    wanted = [b"%03d" % number for number in range(8)] + [b"batch"] * 3 + [b"one way"]
    assert sorted(found) == sorted(wanted)


def test_sends_in_flight_are_futures_of_any_thread(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    called: list[Future[SendResult]] = []
    with Producer(broker.namesrv, group="shop", linger_s=0.005) as producer:
        futures = [producer.send_nowait(m, callback=called.append) for m in numbered(topic, 50)]
        results = [future.result(WAIT_S) for future in futures]
    assert len({result.message_id for result in results}) == 50
    assert called
    assert set(called) <= set(futures)
    assert not futures[0].cancel(), "what was sent cannot be taken back"


def test_no_room_is_told_at_once_and_waited_for(broker: BlockingEmbeddedBroker, topic: str) -> None:
    with Producer(broker.namesrv, group="shop", max_in_flight=2, linger_s=0.2) as producer:
        first = [producer.send_nowait(message) for message in numbered(topic, 2)]
        with pytest.raises(TooManyInFlight):
            producer.send_nowait(Message(topic, b"third"))
        producer.ready()
        third = producer.send_nowait(Message(topic, b"third"))
        producer.flush()
        assert all(future.done() for future in (*first, third))


def test_transactions_commit_what_the_work_decides(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    threads: list[str] = []

    def work(message: Message, _transaction: str) -> Decision:
        threads.append(threading.current_thread().name)
        return Decision.COMMIT if message.body == b"good" else Decision.ROLLBACK

    with TransactionProducer(
        broker.namesrv, group="bank", check=lambda _: Decision.UNKNOWN
    ) as producer:
        bad = producer.send_in_transaction(Message(topic, b"bad"), work)
        good = producer.send_in_transaction(Message(topic, b"good"), work)
        assert (bad.decision, good.decision) == (Decision.ROLLBACK, Decision.COMMIT)
        assert producer.group == "bank"
    with pull(broker.namesrv, topic, "books") as consumer:
        assert [message.body for message in consumer.poll(WAIT_S)] == [b"good"]
    assert "cometmq-client" not in threads, "the work may block"


def test_requests_get_their_replies(broker: BlockingEmbeddedBroker, topic: str) -> None:
    with (
        Producer(broker.namesrv, group="asking") as asking,
        Producer(broker.namesrv, group="answering") as answering,
        PushConsumer(
            broker.namesrv,
            group="answerers",
            topics=topic,
            handler=lambda message: answer(answering, message),
        ),
    ):
        reply = asking.request(Message(topic, b"2+2"), timeout_s=WAIT_S)
    assert reply.body == b"2+2 is 4"


def answer(producer: Producer, message: ReceivedMessage) -> None:
    """A plain handler may use blocking clients itself."""
    producer.reply(message, message.body + b" is 4")


# -- consuming -----------------------------------------------------------------------------------


def test_handlers_run_in_threads_and_failures_come_again(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    seen = Seen()

    def handler(message: ReceivedMessage) -> Later | None:
        seen(message)
        if message.body == b"003" and message.reconsume_times == 0:
            return Later(delay_level=1)
        return None

    with (
        Producer(broker.namesrv, group="shop") as producer,
        PushConsumer(broker.namesrv, group="retrying", topics=topic, handler=handler) as consumer,
    ):
        for message in numbered(topic, 8):
            producer.send(message)
        assert len([queue for queue in consumer.queues if queue.topic == topic]) == 4
        assert seen.wait_for(9) == sorted([b"%03d" % n for n in range(8)] + [b"003"])
    assert all(name.startswith("cometmq-handler") for name in seen.threads)


def test_an_async_handler_runs_in_the_shared_loop(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    seen = Seen()

    async def handler(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)
        seen(message)

    with (
        Producer(broker.namesrv, group="shop") as producer,
        PushConsumer(broker.namesrv, group="async", topics=topic, handler=handler),
    ):
        producer.send(Message(topic, b"hello"))
        assert seen.wait_for(1) == [b"hello"]
    assert seen.threads == {"cometmq-client"}


def test_a_for_loop_takes_messages_until_the_consumer_stops(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        producer.send_batch(numbered(topic, 5))
    taken = []
    with pull(broker.namesrv, topic, "looping") as consumer:
        for message in consumer:
            taken.append(message.body)
            if len(taken) == 3:
                queue = message.queue
                break
        assert consumer.position(queue) == 2, "the third one is still in hand"
        consumer.commit()
        assert consumer.committed(queue) == 3
        consumer.seek(queue, 4)
        threading.Timer(0.5, consumer.stop).start()
        taken += [message.body for message in consumer]
    assert taken == [b"000", b"001", b"002", b"004"]


def test_administration_has_all_its_parts(broker: BlockingEmbeddedBroker, topic: str) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        sent = producer.send(Message(topic, b"one", keys="key-1"))
    with Admin(broker.namesrv) as admin:
        admin.topics.create("made-by-admin", queues=2)
        assert "made-by-admin" in admin.topics.names()
        assert [node.name for node in admin.brokers.nodes()] == ["broker-a"]
        assert admin.offsets.max(sent.queue) == 1
        assert admin.messages.view(sent.offset_message_id).body == b"one"
        assert [m.body for m in admin.messages.read_topic(topic)] == [b"one"]
        reading = admin.messages.read(sent.queue)
        assert next(reading).message_id == sent.message_id
        reading.close()
        with pytest.raises(TopicNotFound, match="create the topic first"):
            admin.topics.route("nowhere")


# -- threads, loops, interrupts ------------------------------------------------------------------


def test_many_threads_share_one_producer_and_one_loop(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    with (
        Producer(broker.namesrv, group="shop") as producer,
        ThreadPoolExecutor(8) as pool,
    ):
        results = list(pool.map(producer.send, numbered(topic, 200)))
        loops = [t for t in threading.enumerate() if t.name == "cometmq-client"]
    assert len({(result.queue, result.queue_offset) for result in results}) == 200
    assert len(loops) == 1
    assert loops[0].daemon


def test_errors_are_raised_here_with_the_way_they_took(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        with pytest.raises(IllegalArgument, match="without a body") as caught:
            producer.send(Message(topic, b""))
        functions = [frame.name for frame in traceback.extract_tb(caught.tb)]
        assert functions[0] == test_errors_are_raised_here_with_the_way_they_took.__name__
        assert functions[-1] == "check_message"
        with pytest.raises(IllegalArgument):
            producer.send_nowait(Message(topic, b""))
    with pytest.raises(NotStarted):
        producer.send(Message(topic, b"too late"))


def test_inside_of_an_event_loop_calls_are_refused(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    producer = Producer(broker.namesrv, group="shop")

    async def blocks() -> None:
        with pytest.raises(WouldBlock, match=r"cometmq\.client itself"):
            producer.start()
        with pytest.raises(WouldBlock):
            _ = producer.client_id
        await asyncio.to_thread(producer.start)
        sent = await asyncio.to_thread(producer.send, Message(topic, b"from a thread"))
        assert sent.queue_offset == 0
        await asyncio.to_thread(producer.stop)

    asyncio.run(blocks())


INTERRUPTED = """
import sys, threading
from cometmq.client.blocking import PullConsumer

def called():
    print("waiting", flush=True)

with PullConsumer(sys.argv[1], group="waiting", topics=sys.argv[2]) as consumer:
    threading.Timer(0.3, called).start()
    try:
        consumer.poll(timeout_s=600)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    print(consumer.poll(timeout_s=0.1), flush=True)
print("ended")
"""


def script(text: str, *arguments: str) -> "subprocess.Popen[str]":
    strictly = ["-W", "error", "-W", "ignore:This process:DeprecationWarning"]
    return subprocess.Popen(
        [sys.executable, *strictly, "-c", text, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finished(process: "subprocess.Popen[str]") -> list[str]:
    with process:
        output, complaints = process.communicate(timeout=60)
    assert (process.returncode, complaints) == (0, "")
    return output.splitlines()


def test_ctrl_c_ends_a_wait_and_what_was_waited_for(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    process = script(INTERRUPTED, broker.namesrv, topic)
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    assert finished(process) == ["interrupted", "[]", "ended"]


FORKED = """
import os, sys
from cometmq.client import Message, NotStarted
from cometmq.client.blocking import Producer

namesrv, topic = sys.argv[1:]
untouched = Producer(namesrv, group="later")
with Producer(namesrv, group="parent") as parent:
    parent.send(Message(topic, b"parent"))
    child = os.fork()
    if child == 0:
        try:
            parent.send(Message(topic, b"never"))
        except NotStarted as error:
            print("child:", error)
        with untouched, Producer(namesrv, group="child") as own:
            untouched.send(Message(topic, b"child"))
            own.send(Message(topic, b"child"))
        print("child ends", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    parent.send(Message(topic, b"parent"))
print("parent ends")
"""


def test_a_forked_process_has_a_loop_of_its_own(broker: BlockingEmbeddedBroker, topic: str) -> None:
    assert finished(script(FORKED, broker.namesrv, topic)) == [
        "child: this client was in use before the process forked: make a new one",
        "child ends",
        "parent ends",
    ]
    with pull(broker.namesrv, topic, "forks") as consumer:
        found: list[bytes] = []
        while len(found) < 4:
            found += [message.body for message in consumer.poll(WAIT_S)]
    assert sorted(found) == [b"child", b"child", b"parent", b"parent"]


LEFT_OPEN = """
import sys
from cometmq.client import ConsumeFrom, Message
from cometmq.client.blocking import Producer, PullConsumer

namesrv, topic = sys.argv[1:]
producer = Producer(namesrv, group="careless", linger_s=5.0)
producer.start()
producer.send_nowait(Message(topic, b"lingers"))
consumer = PullConsumer(namesrv, group="careless", topics=topic, consume_from=ConsumeFrom.FIRST)
consumer.start()
print(len(consumer.poll(30)))
consumer.poll(0)  # Now the first ones are consumed.
"""


def test_what_is_open_at_exit_is_stopped_in_order(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        queue = producer.send(Message(topic, b"first")).queue
    assert finished(script(LEFT_OPEN, broker.namesrv, topic)) == ["1"]
    with Admin(broker.namesrv) as admin:
        bodies = [message.body for message in admin.messages.read_topic(topic)]
        assert sorted(bodies) == [b"first", b"lingers"]
        assert admin.offsets.committed("careless", topic)[queue] == 1


OPEN_HANDLERS = """
import atexit, sys, threading, time
begun, handled = threading.Event(), []
atexit.register(lambda: print(len(handled)))  # Before the import: it is called after the client's.
from cometmq.client import ConsumeFrom
from cometmq.client.blocking import PushConsumer

namesrv, topic = sys.argv[1:]

def handler(message):
    begun.set()
    time.sleep(0.05)
    handled.append(message)

consumer = PushConsumer(
    namesrv, group="careless-handlers", topics=topic, consume_from=ConsumeFrom.FIRST,
    handler=handler,
)
consumer.start()
begun.wait(30)
"""


def test_messages_that_no_handler_got_before_the_exit_have_not_failed(
    broker: BlockingEmbeddedBroker, topic: str
) -> None:
    with Producer(broker.namesrv, group="shop") as producer:
        for _ in range(10):
            producer.send_batch(numbered(topic, 100))
    (handled,) = finished(script(OPEN_HANDLERS, broker.namesrv, topic))
    with Admin(broker.namesrv) as admin:
        lag = admin.groups.progress("careless-handlers", topic).lag
    assert 0 < int(handled) < 1000
    assert lag >= 1000 - int(handled), "what was not handled comes again"
