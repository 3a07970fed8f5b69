"""`cometmq topic`: which topics there are, what they hold, and changing them."""

import argparse
import asyncio
from typing import Any, Final

from cometmq.client.admin import Admin
from cometmq.client.admin.topics import Permission
from cometmq.client.errors import TopicNotFound
from cometmq.protocol.routes import TopicRoute
from cometmq.protocol.topic_config import TopicConfig

from .arguments import (
    Commands,
    add_target_options,
    add_yes_option,
    count,
    pair,
    require_yes,
)
from .asking import asks, in_turns
from .exits import WrongUse
from .view import Table, View, lines_of, of_rows

PERMISSIONS: Final = {
    "rw": Permission.READ_WRITE,
    "r": Permission.READ,
    "w": Permission.WRITE,
    "none": Permission.NONE,
}
TYPES: Final = ("NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED")
ROUTE_WAIT_S: Final = 10.0
"""Until a NameServer tells clients of a new topic."""
_ROUTE_POLL_S: Final = 0.05


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_reads(actions)
    _add_changes(actions)


def _add_reads(actions: Commands) -> None:
    listing = actions.add_parser("list", help="all topics")
    listing.add_argument("--all", action="store_true", help="also those of the system and groups")
    listing.add_argument("-l", "--long", action="store_true", help="with queues and messages")
    listing.add_argument("--cluster", default="", help="only of this one")
    asks(listing, _list, watch=True)
    shown = actions.add_parser(
        "show", aliases=["route"], help="settings, route and groups of a topic"
    )
    shown.add_argument("topic")
    asks(shown, _show)
    stats = actions.add_parser("stats", help="what every queue of a topic holds")
    stats.add_argument("topic")
    asks(stats, _stats, watch=True)


def _add_changes(actions: Commands) -> None:
    create = actions.add_parser(
        "create",
        help="create a topic",
        description="A topic that is there with the same settings is left as it is.",
    )
    create.add_argument("topic")
    create.add_argument("--queues", type=count, default=8, metavar="N", help="at each broker (8)")
    _add_settings(create)
    create.add_argument(
        "--ordered", action="store_true", help="keep the order of queues when a broker is away"
    )
    create.add_argument("--type", choices=TYPES, help="of messages, where brokers check it")
    add_target_options(create)
    asks(create, _create)
    update = actions.add_parser("update", help="change settings of a topic, and leave the others")
    update.add_argument("topic")
    _add_settings(update)
    add_target_options(update)
    asks(update, _update)
    delete = actions.add_parser("delete", help="delete a topic with its messages")
    delete.add_argument("topic")
    delete.add_argument("--cluster", default="", help="needed where there are several")
    add_yes_option(delete)
    asks(delete, _delete)
    perm = actions.add_parser("perm", help="allow or forbid reading and writing")
    perm.add_argument("topic")
    perm.add_argument("perm", choices=PERMISSIONS)
    add_target_options(perm)
    asks(perm, _perm)


def _add_settings(parser: argparse.ArgumentParser) -> None:
    for kind in ("read", "write"):
        parser.add_argument(f"--{kind}-queues", type=count, metavar="N", help=f"to {kind} alone")
    parser.add_argument("--perm", choices=PERMISSIONS, help="read and write, or less")
    parser.add_argument(
        "--attribute", action="append", default=[], type=pair, metavar="NAME=VALUE",
        help="of RocketMQ 5, as in message.type=FIFO; may be given again",
    )  # fmt: skip


# -- reads ---------------------------------------------------------------------------------------


async def _list(admin: Admin, options: argparse.Namespace) -> View:
    names = await admin.topics.names(cluster=options.cluster, internal=options.all)
    if not options.long:
        return of_rows([{"topic": name} for name in names], "topic")
    rows = await in_turns(_summary(admin, name) for name in names)
    return of_rows(
        [row for row in rows if row is not None],
        "topic", "brokers", "read_queues", "write_queues", "perm", "messages", "in_tps",
        "last_message_at",
    )  # fmt: skip


async def _summary(admin: Admin, topic: str) -> dict[str, Any] | None:
    try:
        route = await admin.topics.route(topic)
        stats = await admin.topics.stats(topic)
    except TopicNotFound:  # Deleted since it was listed, or a broker's own.
        return None
    return {
        "topic": topic,
        "brokers": sorted(data.broker_name for data in route.queue_datas),
        "read_queues": sum(data.read_queue_nums for data in route.queue_datas),
        "write_queues": sum(data.write_queue_nums for data in route.queue_datas),
        "perm": "/".join(sorted({perm_text(data.perm) for data in route.queue_datas})),
        "messages": stats.messages,
        "in_tps": stats.put_tps,
        "last_message_at": stats.last_update_timestamp,
    }


async def _show(admin: Admin, options: argparse.Namespace) -> View:
    topic = options.topic
    route = await admin.topics.route(topic)
    configs = await admin.topics.config(topic)
    groups = await admin.topics.groups(topic)
    brokers = _route_rows(route, configs)
    value = {"topic": topic, "groups": groups, "brokers": brokers}
    columns = (
        "broker", "cluster", "addresses", "read_queues", "write_queues", "perm", "ordered",
        "attributes",
    )  # fmt: skip
    return View(value, [lines_of({"topic": topic, "groups": groups}), Table(columns, brokers)])


def _route_rows(route: TopicRoute, configs: dict[str, TopicConfig]) -> list[dict[str, Any]]:
    places = {data.broker_name: data for data in route.broker_datas}
    rows = []
    for queues in sorted(route.queue_datas, key=lambda data: data.broker_name):
        config, place = configs.get(queues.broker_name), places.get(queues.broker_name)
        rows.append(
            {
                "broker": queues.broker_name,
                "cluster": place.cluster if place else "",
                "addresses": {str(k): v for k, v in place.broker_addrs.items()} if place else {},
                "read_queues": queues.read_queue_nums,
                "write_queues": queues.write_queue_nums,
                "perm": perm_text(queues.perm),
                "ordered": config.order if config else False,
                "attributes": config.attributes if config else {},
            }
        )
    return rows


async def _stats(admin: Admin, options: argparse.Namespace) -> View:
    stats = await admin.topics.stats(options.topic)
    rows = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "min_offset": one.min_offset,
            "max_offset": one.max_offset,
            "messages": one.messages,
            "last_message_at": one.last_update_timestamp,
        }
        for queue, one in stats.queues.items()
    ]
    facts = {"topic": options.topic, "messages": stats.messages, "in_tps": stats.put_tps}
    columns = ("broker", "queue", "min_offset", "max_offset", "messages", "last_message_at")
    return View({**facts, "queues": rows}, [Table(columns, rows), lines_of(facts)])


def perm_text(perm: int) -> str:
    read, write = perm & Permission.READ, perm & Permission.WRITE
    return ("r" if read else "") + ("w" if write else "") or "none"


# -- changes -------------------------------------------------------------------------------------


async def _create(admin: Admin, options: argparse.Namespace) -> View:
    topic = options.topic
    read = options.read_queues or options.queues
    write = options.write_queues or options.queues
    attributes = dict(options.attribute)
    if options.type:
        attributes["message.type"] = options.type
    permission = PERMISSIONS[options.perm or "rw"]
    there = await _configs(admin, options)
    if there:
        _require_same(topic, there, (read, write, int(permission)))
        return _changed(topic, "is there already")
    await admin.topics.create(
        topic, read_queues=read, write_queues=write, permission=permission,
        ordered=options.ordered, attributes=attributes, cluster=options.cluster,
        brokers=options.broker,
    )  # fmt: skip
    await until_routed(admin, topic)
    return _changed(topic, "created")


async def _configs(admin: Admin, options: argparse.Namespace) -> dict[str, TopicConfig]:
    try:
        return await admin.topics.config(
            options.topic, cluster=options.cluster, brokers=options.broker
        )
    except TopicNotFound:
        return {}


def _require_same(topic: str, there: dict[str, TopicConfig], wanted: tuple[int, int, int]) -> None:
    for broker, config in there.items():
        has = (config.read_queue_nums, config.write_queue_nums, config.perm)
        if has != wanted:
            raise WrongUse(
                f"topic {topic} is there already, with {has[0]} queues to read, {has[1]} to write "
                f"and permission {perm_text(has[2])} at {broker}; `cometmq topic update` changes it"
            )


async def until_routed(admin: Admin, topic: str) -> None:
    """A NameServer hears of a new topic a moment later than the broker."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + ROUTE_WAIT_S
    while True:
        try:
            await admin.topics.route(topic)
        except TopicNotFound:
            if loop.time() > deadline:
                raise
            await asyncio.sleep(_ROUTE_POLL_S)
        else:
            return


async def _update(admin: Admin, options: argparse.Namespace) -> View:
    if not (options.read_queues or options.write_queues or options.perm or options.attribute):
        raise WrongUse("nothing to change: give --read-queues, --write-queues, --perm or another")
    await admin.topics.update(
        options.topic,
        read_queues=options.read_queues,
        write_queues=options.write_queues,
        permission=None if options.perm is None else PERMISSIONS[options.perm],
        attributes={name: value or None for name, value in options.attribute},
        cluster=options.cluster,
        brokers=options.broker,
    )
    return _changed(options.topic, "changed")


async def _delete(admin: Admin, options: argparse.Namespace) -> View:
    topic = options.topic
    stats = await admin.topics.stats(topic)
    require_yes(options, f"This deletes topic {topic} with {stats.messages} messages.")
    await admin.topics.delete(topic, cluster=options.cluster)
    return _changed(topic, "deleted")


async def _perm(admin: Admin, options: argparse.Namespace) -> View:
    await admin.topics.update(
        options.topic,
        permission=PERMISSIONS[options.perm],
        cluster=options.cluster,
        brokers=options.broker,
    )
    return _changed(options.topic, f"permission {options.perm}")


def _changed(topic: str, what: str) -> View:
    return View({"topic": topic, "result": what}, [f"topic {topic}: {what}\n"])
