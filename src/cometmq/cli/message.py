"""`cometmq message`: find messages, see what became of them, hand one to a consumer."""

import argparse
from contextlib import aclosing
from typing import Any

from cometmq.client.admin import Admin
from cometmq.client.admin.messages import RESULTS_MAX
from cometmq.client.errors import ClientError, NotFound
from cometmq.client.received import ReceivedMessage
from cometmq.protocol.message_queue import MessageQueue

from .arguments import Commands, add_time_options, count
from .asking import asks
from .exits import NothingThere, WrongUse
from .letters import fields_of, line_of, page_of
from .resending import RESENT_FROM, resend
from .view import View, lines_of, of_rows

LIMIT = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_searches(actions)
    _add_deeds(actions)


def _add_searches(actions: Commands) -> None:
    shown = actions.add_parser(
        "show",
        help="a message by its id",
        description="An offset id says by itself where the message is; for a unique id, which its "
        "producer gave it, say the topic.",
    )
    _add_id(shown)
    asks(shown, _show)
    key = actions.add_parser("key", help="messages with a key")
    key.add_argument("topic")
    key.add_argument("key")
    add_time_options(key)
    key.add_argument(
        "--limit", type=count, default=RESULTS_MAX, metavar="N",
        help=f"the newest at each broker ({RESULTS_MAX}, which is the most)",
    )  # fmt: skip
    asks(key, _key)
    at = actions.add_parser("at", help="the message at an offset of a queue")
    at.add_argument("topic")
    at.add_argument("queue", type=int)
    at.add_argument("offset", type=int)
    at.add_argument("--broker", default="", metavar="NAME", help="needed where there are several")
    asks(at, _at)
    between = actions.add_parser("range", help="messages of a span of time")
    between.add_argument("topic")
    add_time_options(between)
    between.add_argument("--tags", default="*", metavar="A||B", help="only with these (all)")
    between.add_argument(
        "--limit", type=count, default=LIMIT, metavar="N", help=f"at most ({LIMIT})"
    )
    asks(between, _range)
    trace = actions.add_parser("trace", help="what clients that trace told of a message")
    trace.add_argument("id", metavar="ID", help="its unique id")
    trace.add_argument("--trace-topic", default="", metavar="TOPIC", help="(RMQ_SYS_TRACE_TOPIC)")
    asks(trace, _trace)


def _add_deeds(actions: Commands) -> None:
    deliver = actions.add_parser("deliver", help="have one member of a group consume a message now")
    _add_id(deliver)
    deliver.add_argument("-g", "--group", required=True)
    deliver.add_argument("--client", default="", metavar="CLIENT_ID", help="(any member)")
    asks(deliver, _deliver)
    again = actions.add_parser(
        "resend",
        help="send a copy of a message",
        description=f"Every run sends one more copy. Its property {RESENT_FROM} tells the first "
        "message.",
    )
    _add_id(again)
    again.add_argument("--to", default="", metavar="TOPIC", help="(where the message is)")
    asks(again, _resend)


def _add_id(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="ID")
    parser.add_argument("--topic", default="", help="needed for a unique id")


# -- searches ------------------------------------------------------------------------------------


async def _show(admin: Admin, options: argparse.Namespace) -> View:
    found = await _by_either_id(admin, options.id, options.topic)
    return View([fields_of(one) for one in found], ["\n".join(page_of(one) for one in found)])


async def _by_either_id(admin: Admin, given: str, topic: str) -> list[ReceivedMessage]:
    """Both kinds of ids look alike."""
    if topic and (found := await admin.messages.by_id(topic, given)):
        return found
    try:
        return [await admin.messages.view(given, topic=topic)]
    except ClientError as error:
        if topic:
            raise NothingThere(f"topic {topic} has no message {given}") from error
        raise NothingThere(
            f"no message {given} is there by its place ({error}); for a unique id, say its topic "
            "(--topic)"
        ) from error


async def _key(admin: Admin, options: argparse.Namespace) -> View:
    if options.limit > RESULTS_MAX:
        raise WrongUse(f"--limit {options.limit}: brokers find at most {RESULTS_MAX}")
    times = {"begin": options.since_ms, "end": options.until_ms}
    given = {name: when for name, when in times.items() if when is not None}
    found = await admin.messages.by_key(options.topic, options.key, limit=options.limit, **given)
    if not found:
        raise NothingThere(f"topic {options.topic} has no message with the key {options.key}")
    return _lines(found)


async def _at(admin: Admin, options: argparse.Namespace) -> View:
    broker = options.broker or await _only_broker(admin, options.topic)
    queue = MessageQueue(options.topic, broker, options.queue)
    try:
        message = await admin.messages.at(queue, options.offset)
    except NotFound:
        low, high = await admin.offsets.min(queue), await admin.offsets.max(queue)
        raise NothingThere(
            f"queue {options.queue} of {options.topic} at {broker} has no message at offset "
            f"{options.offset}; it has {low} up to {high - 1}"
        ) from None
    return View(fields_of(message), [page_of(message)])


async def _only_broker(admin: Admin, topic: str) -> str:
    names = sorted(data.broker_name for data in (await admin.topics.route(topic)).queue_datas)
    if len(names) != 1:
        raise WrongUse(f"say which broker (--broker): {', '.join(names)} have {topic}")
    return names[0]


async def _range(admin: Admin, options: argparse.Namespace) -> View:
    found: list[ReceivedMessage] = []
    # Queue by queue: to have the first of all of them, as many of each are needed.
    reading = admin.messages.read_topic(
        options.topic, begin=options.since_ms, end=options.until_ms, tags=options.tags
    )
    async with aclosing(reading) as messages:
        async for message in messages:
            found.append(message)
            if len(found) >= 2 * options.limit:
                found = _first(found, options.limit)
    return _lines(_first(found, options.limit))


def _first(found: list[ReceivedMessage], limit: int) -> list[ReceivedMessage]:
    return sorted(found, key=lambda message: message.store_timestamp)[:limit]


def _lines(found: list[ReceivedMessage]) -> View:
    return View([fields_of(one) for one in found], ["".join(line_of(one) for one in found)])


async def _trace(admin: Admin, options: argparse.Namespace) -> View:
    where = {"trace_topic": options.trace_topic} if options.trace_topic else {}
    traces = await admin.messages.trace(options.id, **where)
    if not traces:
        raise NothingThere(
            f"no client has told anything of {options.id}: clients tell it if they are made with "
            "tracing, and its unique id is needed here"
        )
    rows: list[dict[str, Any]] = [
        {
            "kind": trace.kind,
            "at": trace.timestamp,
            "group": trace.group,
            "topic": trace.topic,
            "keys": trace.keys,
            "cost_ms": trace.cost_ms,
            "success": trace.success,
            "retry_times": trace.retry_times,
            "state": trace.state,
        }
        for trace in traces
    ]
    shown = [{**row, "when_at": row["at"]} for row in rows]
    columns = ("kind", "when_at", "group", "topic", "keys", "cost_ms", "success", "retry_times")
    return View(rows, of_rows(shown, *columns).parts)


# -- deeds ---------------------------------------------------------------------------------------


async def _deliver(admin: Admin, options: argparse.Namespace) -> View:
    message = (await _by_either_id(admin, options.id, options.topic))[-1]
    client = options.client
    if not client:
        client = (await admin.members.of_group(options.group)).client_ids[0]
    result = await admin.messages.consume_directly(
        options.group, client, message.offset_message_id, topic=message.queue.topic
    )
    facts = {
        "client_id": client,
        "result": result.consume_result,
        "took_ms": result.spent_time_mills,
        "remark": result.remark or "",
    }
    return View(facts, [lines_of(facts)], 0 if result.consume_result == "CR_SUCCESS" else 1)


async def _resend(admin: Admin, options: argparse.Namespace) -> View:
    message = (await _by_either_id(admin, options.id, options.topic))[-1]
    result = await resend(options, message, options.to or message.topic)
    facts = {
        "message_id": result.message_id,
        "topic": result.queue.topic,
        "broker": result.queue.broker_name,
        "queue": result.queue.queue_id,
        "offset": result.queue_offset,
    }
    return View(facts, [lines_of(facts)])
