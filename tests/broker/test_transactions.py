"""Half messages, their decisions, and the questions when none comes."""

import asyncio
from pathlib import Path

import pytest

from cometmq.broker.broker import Broker
from cometmq.broker.topics import CHECK_EXCEEDED_TOPIC, HALF_DONE_TOPIC, HALF_TOPIC
from cometmq.broker.transactions import open_halves
from cometmq.broker.transactions.transactions import Transactions
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command
from cometmq.protocol.message import Message
from cometmq.protocol.properties import with_property
from cometmq.protocol.record import iter_records
from cometmq.testing.clock import ManualClock
from cometmq.transport.connection import Connection
from cometmq.transport.dial import connect
from tests.broker.brokers import TOPIC, Client, bounded, context_of, number, serving

GROUP = "payers"
COMMIT, ROLLBACK, UNKNOWN = 8, 12, 0
PREPARED_FLAG = 4
SECOND_MS = 1000


def transactions_of(broker: Broker) -> Transactions:
    return broker.parts.duties.transactions


class Producer(Client):
    """A client that begins transactions and remembers what it is asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.questions: asyncio.Queue[Command] = asyncio.Queue()

    @classmethod
    async def joined(cls, broker: Broker, client_id: str, group: str = GROUP) -> "Producer":
        producer = cls()
        handlers = {RequestCode.CHECK_TRANSACTION_STATE: producer._asked}
        producer._connection = await connect(str(broker.address), handlers)  # type: ignore[arg-type]
        await producer.heartbeat(client_id, producers=[group])
        return producer

    def _asked(self, _: Connection, command: Command) -> None:
        self.questions.put_nowait(command)

    async def begin(self, body: bytes = b"payment", **properties: str) -> Command:
        marks = {"TRAN_MSG": "true", "PGROUP": GROUP, **properties}
        answer = await self.send(body=body, queue_id=2, properties=marks, f=PREPARED_FLAG)
        assert answer.code == 0, answer.remark
        return answer

    async def end(self, begun: Command, decision: int, **changes: object) -> Command:
        fields = begun.text_fields()
        return await self.ask(
            37,
            {
                "producerGroup": GROUP,
                "tranStateTableOffset": fields["queueOffset"],
                "commitLogOffset": int(fields["msgId"][-16:], 16),
                "commitOrRollback": decision,
                "fromTransactionCheck": False,
                "msgId": fields["transactionId"],
                "transactionId": fields["transactionId"],
                **changes,
            },
        )

    async def end_as_asked(self, question: Command, decision: int) -> Command:
        asked = question.text_fields()
        return await self.ask(
            37,
            {
                "producerGroup": GROUP,
                "tranStateTableOffset": asked["tranStateTableOffset"],
                "commitLogOffset": asked["commitLogOffset"],
                "commitOrRollback": decision,
                "fromTransactionCheck": True,
                "msgId": asked["msgId"],
                "transactionId": asked["transactionId"],
            },
        )

    async def question(self) -> Command:
        async with asyncio.timeout(10):
            return await self.questions.get()

    async def delivered(self) -> list[bytes]:
        return [message.body for message in await self.pulled(TOPIC, 2)]


@bounded
async def test_a_half_message_is_seen_by_nobody_until_it_is_committed(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(KEYS="order-7", TAGS="paid")
        assert number(begun, "queueId") == 2
        assert await producer.delivered() == []
        assert (await producer.end(begun, COMMIT)).code == 0
        (message,) = await producer.pulled(TOPIC, 2)
        assert message.body == b"payment"
        properties = message.property_map()
        assert properties["KEYS"] == "order-7"
        assert properties["UNIQ_KEY"] == begun.text_fields()["transactionId"]
        assert properties["TRAN_MSG"] == "true"
        assert not properties.keys() & {"REAL_TOPIC", "REAL_QID"}
        assert message.prepared_transaction_offset == int(begun.text_fields()["msgId"][-16:], 16)


@bounded
async def test_a_rolled_back_message_never_appears(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin()
        assert (await producer.end(begun, ROLLBACK)).code == 0
        assert await producer.delivered() == []
        assert len(transactions_of(broker).halves) == 0


@bounded
async def test_a_second_decision_is_refused_whatever_it_says(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin()
        await producer.end(begun, COMMIT)
        for decision in (COMMIT, ROLLBACK):
            answer = await producer.end(begun, decision)
            assert (answer.code, answer.remark) == (1, "The transaction has been decided already")
        assert await producer.delivered() == [b"payment"]


@pytest.mark.parametrize(
    ("change", "remark"),
    [
        ({"producerGroup": "thieves"}, "The producer group wrong"),
        ({"tranStateTableOffset": 5}, "The transaction state table offset wrong"),
        ({"commitLogOffset": 1 << 40}, "Find prepared transaction message failed"),
        ({"commitLogOffset": 0}, "Find prepared transaction message failed"),
    ],
)
def test_a_foreign_decision_is_refused(
    tmp_path: Path, change: dict[str, object], remark: str
) -> None:
    @bounded
    async def decide() -> None:
        async with serving(tmp_path) as broker:
            producer = await Producer.joined(broker, "one")
            await producer.send(body=b"first")
            begun = await producer.begin()
            answer = await producer.end(begun, COMMIT, **change)
            assert (answer.code, answer.remark) == (1, remark)
            assert await producer.delivered() == []

    decide()


@bounded
async def test_a_silent_producer_is_asked_when_its_time_is_over(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(b"slow")
        await producer.end(begun, UNKNOWN)
        clock.advance(5 * SECOND_MS)
        transactions_of(broker).look()
        assert producer.questions.empty()
        clock.advance(1 * SECOND_MS)
        transactions_of(broker).look()
        question = await producer.question()
        fields = question.text_fields()
        assert fields["transactionId"] == begun.text_fields()["transactionId"]
        (shown,) = iter_records(memoryview(question.body))
        assert (shown.topic, shown.queue_id, shown.body) == (TOPIC, 2, b"slow")
        assert (await producer.end_as_asked(question, COMMIT)).code == 0
        assert await producer.delivered() == [b"slow"]


@bounded
async def test_a_message_may_ask_for_more_time(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        clock.advance(59 * SECOND_MS)
        transactions_of(broker).look()
        assert producer.questions.empty()
        clock.advance(2 * SECOND_MS)
        answer = await producer.end(begun, COMMIT)
        assert answer.code == 604  # Too late: from now on it is asked.
        transactions_of(broker).look()
        assert (await producer.end_as_asked(await producer.question(), COMMIT)).code == 0


@bounded
async def test_another_of_the_group_is_asked_when_the_producer_is_gone(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        first = await Producer.joined(broker, "one")
        await first.begin(b"orphan")
        first.close()
        clock.advance(7 * SECOND_MS)
        transactions_of(broker).look()  # Nobody is there: that does not count as a question.
        second = await Producer.joined(broker, "two")
        clock.advance(30 * SECOND_MS)
        transactions_of(broker).look()
        assert (await second.end_as_asked(await second.question(), COMMIT)).code == 0
        assert await second.delivered() == [b"orphan"]


@bounded
async def test_that_nobody_is_there_is_said_once_for_many_messages(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        client = await Client.to(broker)
        marks = {"TRAN_MSG": "true", "PGROUP": GROUP}
        for _ in range(50):
            await client.send(body=b"x", properties=marks, f=PREPARED_FLAG)
        clock.advance(7 * SECOND_MS)
        transactions_of(broker).look()
    said = [record.getMessage() for record in caplog.records if "to be asked" in record.message]
    assert said == [f"nobody of producer group {GROUP} is there to be asked about 50 half messages"]


@bounded
async def test_after_too_many_questions_a_message_is_put_aside(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock, transactionCheckMax=3) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(b"never decided")
        for _ in range(3):
            clock.advance(40 * SECOND_MS)
            transactions_of(broker).look()
            await producer.question()
        clock.advance(40 * SECOND_MS)
        transactions_of(broker).look()
        (aside,) = await producer.pulled(CHECK_EXCEEDED_TOPIC)
        assert aside.body == b"never decided"
        assert producer.questions.empty()
        assert (await producer.end(begun, COMMIT)).code == 1
        assert await producer.delivered() == []


@bounded
async def test_a_half_message_that_rocketmq_wrote_anew_counts_once(tmp_path: Path) -> None:
    """It does so when it asks, and also while it stops."""
    async with serving(tmp_path) as broker:
        producer = await Producer.joined(broker, "one")
        begun = [await producer.begin(b"%d" % n, UNIQ_KEY=f"{n:032X}") for n in range(2)]
        store = context_of(broker).store
        old = store.message_at(int(begun[0].text_fields()["msgId"][-16:], 16))
        assert old is not None
        anew = with_property(old.properties, b"TRANSACTION_CHECK_TIMES", b"1")
        store.put(Message(HALF_TOPIC, 0, old.body, anew))
        # One with the same id that was not written anew is another one.
        store.put(Message(HALF_TOPIC, 0, b"1", old.properties))
    async with serving(tmp_path) as broker:
        assert sorted(transactions_of(broker).halves._open) == [1, 2, 3]


@bounded
async def test_open_transactions_and_their_questions_survive_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        producer = await Producer.joined(broker, "one")
        begun = [await producer.begin(b"%d" % number) for number in range(10)]
        for transaction in begun[::2]:
            await producer.end(transaction, COMMIT)
        await producer.end(begun[1], ROLLBACK)
        clock.advance(7 * SECOND_MS)
        transactions_of(broker).look()
        for _ in range(4):
            await producer.question()
    async with serving(tmp_path, clock=clock) as broker:
        halves = transactions_of(broker).halves
        assert sorted(halves._open) == [3, 5, 7, 9]
        assert [halves._open[offset].checks for offset in (3, 5, 7, 9)] == [1, 1, 1, 1]
        producer = await Producer.joined(broker, "one")
        for transaction in begun[3::2]:
            assert (await producer.end(transaction, COMMIT)).code == 0
        assert (await producer.end(begun[1], COMMIT)).code == 1
        assert sorted(await producer.delivered()) == [
            b"%d" % n for n in (0, 2, 3, 4, 5, 6, 7, 8, 9)
        ]
    async with serving(tmp_path, clock=clock) as broker:
        assert len(transactions_of(broker).halves) == 0
        offsets = context_of(broker).offsets
        assert offsets.committed(open_halves.GROUP, HALF_TOPIC, 0) == 10
        assert offsets.committed(open_halves.GROUP, HALF_DONE_TOPIC, 0) == 10


@bounded
async def test_a_commit_whose_record_was_cut_off_is_not_delivered_twice(tmp_path: Path) -> None:
    """The message is the last record of the log: the broker died before the next one."""
    clock = ManualClock()
    async with serving(tmp_path, clock=clock) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(b"once")
        half = context_of(broker).store.message_at(int(begun.text_fields()["msgId"][-16:], 16))
        assert half is not None
        from cometmq.broker.transactions.half import committed

        final = committed(half)
        assert final is not None
        context_of(broker).store.put(final)
    async with serving(tmp_path, clock=clock) as broker:
        assert len(transactions_of(broker).halves) == 0
        producer = await Producer.joined(broker, "one")
        assert (await producer.end(begun, COMMIT)).code == 1
        assert await producer.delivered() == [b"once"]


@bounded
async def test_a_committed_message_with_a_delay_waits_for_it(tmp_path: Path) -> None:
    async with serving(tmp_path, messageDelayLevel="1s 2s") as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin(b"later", DELAY="1")
        await producer.end(begun, COMMIT)
        assert await producer.delivered() == []
        (message,) = await producer.arrival(TOPIC, 2)
        assert message.body == b"later"


@bounded
async def test_a_broker_may_refuse_transactions(tmp_path: Path) -> None:
    async with serving(tmp_path, rejectTransactionMessage=True) as broker:
        client = await Client.to(broker)
        answer = await client.send(
            properties={"TRAN_MSG": "true", "PGROUP": GROUP}, f=PREPARED_FLAG
        )
        assert answer.code == 16
        assert "transaction message is forbidden" in (answer.remark or "")


@bounded
async def test_the_half_topic_is_not_for_clients(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        client = await Client.to(broker)
        assert (await client.send(HALF_TOPIC)).code == 16
        answer = await client.send(f=PREPARED_FLAG)
        assert answer.code == 13  # Its flag says so, its properties don't.


@bounded
async def test_a_decision_record_is_what_rocketmq_writes(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        producer = await Producer.joined(broker, "one")
        begun = await producer.begin()
        await producer.end(begun, ROLLBACK)
        (record,) = await producer.pulled(HALF_DONE_TOPIC)
        assert record.body == b"0,"
        assert record.property_map() == {"TAGS": "d"}
        assert number(begun, "queueOffset") == 0
