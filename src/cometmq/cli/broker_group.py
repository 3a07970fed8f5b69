"""`cometmq broker group|transfer|join|leave`: Raft groups, and who leads them."""

import argparse

from cometmq.client.admin import Admin
from cometmq.protocol.raft_group import GroupStatus

from .arguments import Commands
from .asking import asks
from .view import Table, View, lines_of


def add_actions(actions: Commands) -> None:
    group = actions.add_parser("group", help="a Raft group: who leads, and how far each member is")
    _add_broker(group)
    asks(group, _group, watch=True)
    transfer = actions.add_parser("transfer", help="let another member of a Raft group lead")
    _add_broker(transfer)
    transfer.add_argument("--to", default="", metavar="MEMBER", help="n1; else whoever has most")
    asks(transfer, _transfer)
    join = actions.add_parser(
        "join",
        help="let a broker join a Raft group",
        description="The broker runs already, with raft.join=true and an empty store.",
    )
    _add_broker(join)
    join.add_argument("member", metavar="ID-HOST:PORT", help="the new member: n3-10.0.0.4:40911")
    asks(join, _join)
    leave = actions.add_parser(
        "leave",
        help="let a member leave its Raft group",
        description="Its id is not to be used again; a broker that comes in its place has another.",
    )
    _add_broker(leave)
    leave.add_argument("member", metavar="ID", help="who leaves: n2")
    asks(leave, _leave)


def _add_broker(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("broker", help="name of the group's brokers, or the address of one")


async def _group(admin: Admin, options: argparse.Namespace) -> View:
    return _view(await admin.brokers.raft_status(options.broker))


async def _transfer(admin: Admin, options: argparse.Namespace) -> View:
    return _view(await admin.brokers.transfer(options.broker, options.to))


async def _join(admin: Admin, options: argparse.Namespace) -> View:
    return _view(await admin.brokers.add_member(options.broker, options.member))


async def _leave(admin: Admin, options: argparse.Namespace) -> View:
    return _view(await admin.brokers.remove_member(options.broker, options.member))


def _view(status: GroupStatus) -> View:
    facts = {
        "group": status.group,
        "leader": status.leader,
        "epoch": status.epoch,
        "confirmed": status.confirmed,
        "log_end": status.log_end,
        "told_by": status.member,
    }
    rows = [
        {
            "member": one.id,
            "address": one.address,
            "votes": one.votes,
            "stored": one.stored,
            "leads": one.id == status.leader,
        }
        for one in status.members
    ]
    columns = ("member", "address", "votes", "stored", "leads")
    return View({**facts, "members": rows}, [lines_of(facts), Table(columns, rows)])
