"""`cometmq group`: consumer groups, who is in them, how far they are, and changing them."""

import argparse
from typing import Any

from cometmq.client.admin import Admin
from cometmq.client.admin.members import GroupMembers
from cometmq.client.admin.progress import GroupProgress
from cometmq.client.errors import ConsumerNotOnline, GroupNotFound
from cometmq.protocol.group_config import GroupConfig

from .arguments import Commands, add_target_options, add_yes_option, pair, require_yes
from .asking import asks, in_turns
from .exits import WrongUse
from .offset import add_reset_arguments, reset
from .view import Table, View, lines_of, of_rows

_LAG = ("topic", "broker", "queue", "committed", "end", "lag", "in_flight", "consumed_until_at")
_MEMBERS = ("client_id", "address", "language", "version")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    _add_reads(actions)
    _add_changes(actions)


def _add_reads(actions: Commands) -> None:
    listing = actions.add_parser("list", help="all consumer groups, their members and their lag")
    listing.add_argument("--all", action="store_true", help="also those of the system")
    listing.add_argument("--cluster", default="", help="only of this one")
    asks(listing, _list, watch=True)
    for name, ask, purpose in (
        ("show", _show, "settings, members, subscriptions and lag of a group"),
        ("lag", _lag, "how far a group is in every queue"),
        ("members", _members, "who is connected, and what they subscribe to"),
    ):
        parser = actions.add_parser(name, help=purpose)
        parser.add_argument("group")
        if name != "members":
            parser.add_argument("--topic", default="", help="only in this one")
        asks(parser, ask, watch=True)
    member = actions.add_parser("member", help="what a member of a group is doing, told by itself")
    member.add_argument("group")
    member.add_argument("client_id", metavar="CLIENT_ID", help="as `group members` shows it")
    asks(member, _member, watch=True)


def _add_changes(actions: Commands) -> None:
    create = actions.add_parser(
        "create",
        help="create a consumer group, or change its settings",
        description="Settings that are not given stay; a new group has RocketMQ's defaults.",
    )
    create.add_argument("group")
    create.add_argument(
        "--retry-max", type=int, metavar="N", help="failures until a dead letter (16)"
    )
    create.add_argument(
        "--set", action="append", default=[], type=pair, metavar="NAME=VALUE",
        help="another setting, as in consume_enable=false; may be given again",
    )  # fmt: skip
    add_target_options(create)
    asks(create, _create)
    delete = actions.add_parser("delete", help="delete a group with its offsets")
    delete.add_argument("group")
    delete.add_argument("--cluster", default="", help="needed where there are several")
    delete.add_argument("--keep-offsets", action="store_true")
    delete.add_argument(
        "--keep-topics", action="store_true", help="those of its retries and dead letters"
    )
    add_yes_option(delete)
    asks(delete, _delete)
    again = actions.add_parser("reset", help="the same as `cometmq offset reset`")
    add_reset_arguments(again)
    asks(again, reset)


# -- reads ---------------------------------------------------------------------------------------


async def _list(admin: Admin, options: argparse.Namespace) -> View:
    names = await admin.groups.names(cluster=options.cluster, internal=options.all)
    rows = await in_turns(_summary(admin, name) for name in names)
    return of_rows(rows, "group", "members", "model", "topics", "lag", "out_tps")


async def _summary(admin: Admin, group: str) -> dict[str, Any]:
    members = await _members_of(admin, group)
    progress = await admin.groups.progress(group)
    return {
        "group": group,
        "members": len(members.connection_set),
        "model": members.message_model.lower(),
        "topics": progress.topics,
        "lag": progress.lag,
        "out_tps": progress.consume_tps,
    }


async def _members_of(admin: Admin, group: str) -> GroupMembers:
    try:
        return await admin.members.of_group(group)
    except ConsumerNotOnline:
        return GroupMembers()


async def _show(admin: Admin, options: argparse.Namespace) -> View:
    group = options.group
    configs = await admin.groups.config(group)
    members = await _members_of(admin, group)
    progress = await admin.groups.progress(group, options.topic)
    settings = [{"broker": name, **_settings(config)} for name, config in configs.items()]
    facts = {"group": group, "lag": progress.lag, "out_tps": progress.consume_tps}
    value = {
        **facts,
        "settings": settings,
        **_members_value(members),
        "queues": lag_rows(progress),
    }
    columns = ("broker", "enabled", "retry_max", "retry_queues", "broadcast_allowed", "orderly")
    shown = Table(columns, settings, "settings")
    parts = [lines_of(facts), shown, *_members_parts(members), _lag_table(progress)]
    return View(value, parts)


def _settings(config: GroupConfig) -> dict[str, Any]:
    return {
        "enabled": config.consume_enable,
        "retry_max": config.retry_max_times,
        "retry_queues": config.retry_queue_nums,
        "broadcast_allowed": config.consume_broadcast_enable,
        "orderly": config.consume_message_orderly,
        "attributes": config.attributes,
    }


async def _lag(admin: Admin, options: argparse.Namespace) -> View:
    await admin.groups.config(options.group)  # Of a group that is not there it would be 0.
    progress = await admin.groups.progress(options.group, options.topic)
    facts = {"group": options.group, "lag": progress.lag, "out_tps": progress.consume_tps}
    value = {**facts, "queues": lag_rows(progress)}
    return View(value, [Table(_LAG, lag_rows(progress)), lines_of(facts)])


def lag_rows(progress: GroupProgress) -> list[dict[str, Any]]:
    return [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "committed": one.consumer_offset,
            "end": one.broker_offset,
            "lag": one.lag,
            "in_flight": one.in_flight,
            "consumed_until_at": one.last_timestamp,
        }
        for queue, one in progress.queues.items()
    ]


def _lag_table(progress: GroupProgress) -> Table:
    return Table(_LAG, lag_rows(progress), "progress")


async def _members(admin: Admin, options: argparse.Namespace) -> View:
    members = await admin.members.of_group(options.group)
    return View({"group": options.group, **_members_value(members)}, _members_parts(members))


def _members_value(members: GroupMembers) -> dict[str, Any]:
    return {
        "model": members.message_model,
        "consume_type": members.consume_type,
        "consume_from": members.consume_from_where,
        "members": [
            {
                "client_id": member.client_id,
                "address": member.client_addr,
                "language": member.language,
                "version": member.version,
            }
            for member in members.connection_set
        ],
        "subscriptions": [
            {"topic": topic, "kind": data.expression_type, "wanted": data.sub_string}
            for topic, data in sorted(members.subscription_table.items())
        ],
    }


def _members_parts(members: GroupMembers) -> list[Table | str]:
    value = _members_value(members)
    if not value["members"]:
        return ["no member is online\n"]
    how = f"members ({value['model'].lower()}, {value['consume_type'].lower()})"
    wanted = Table(("topic", "kind", "wanted"), value["subscriptions"], "subscriptions")
    return [Table(_MEMBERS, value["members"], how), wanted]


async def _member(admin: Admin, options: argparse.Namespace) -> View:
    info = await admin.members.running_info(options.group, options.client_id)
    queues = [
        {
            "topic": queue.topic,
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "commit_offset": state.commit_offset,
            "cached": state.cached_msg_count,
            "locked": state.locked,
            "pulled_at": state.last_pull_timestamp,
            "consumed_at": state.last_consume_timestamp,
        }
        for queue, state in info.queues.items()
    ]
    topics = [
        {
            "topic": topic,
            "ok_tps": state.consume_ok_tps,
            "failed_tps": state.consume_failed_tps,
            "consume_ms": state.consume_rt,
            "pull_tps": state.pull_tps,
            "pull_ms": state.pull_rt,
        }
        for topic, state in info.topics.items()
    ]
    properties = [{"property": n, "value": v} for n, v in sorted(info.properties.items())]
    value = {"properties": info.properties, "queues": queues, "topics": topics}
    tables = [Table(list(rows[0]), rows) for rows in (properties, queues, topics) if rows]
    return View(value, tables)


# -- changes -------------------------------------------------------------------------------------


async def _create(admin: Admin, options: argparse.Namespace) -> View:
    settings: dict[str, Any] = {name: _value(name, text) for name, text in options.set}
    if options.retry_max is not None:
        settings["retry_max_times"] = options.retry_max
    targets: dict[str, Any] = {"cluster": options.cluster, "brokers": options.broker}
    try:
        await admin.groups.config(options.group, **targets)
    except GroupNotFound:
        await admin.groups.create(options.group, **targets, **settings)
        return _changed(options.group, "created")
    if not settings:
        return _changed(options.group, "is there already")
    await admin.groups.update(options.group, **targets, **settings)
    return _changed(options.group, "changed")


def _value(name: str, text: str) -> object:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.lstrip("-").isdecimal():
        return int(text)
    raise WrongUse(f"--set {name}={text}: true, false or a whole number is expected")


async def _delete(admin: Admin, options: argparse.Namespace) -> View:
    group = options.group
    await admin.groups.config(group)
    members = len((await _members_of(admin, group)).connection_set)
    online = f", which has {members} members online" if members else ""
    require_yes(options, f"This deletes group {group} with its offsets{online}.")
    await admin.groups.delete(
        group,
        cluster=options.cluster,
        keep_offsets=options.keep_offsets,
        keep_topics=options.keep_topics,
    )
    return _changed(group, "deleted")


def _changed(group: str, what: str) -> View:
    return View({"group": group, "result": what}, [f"group {group}: {what}\n"])
