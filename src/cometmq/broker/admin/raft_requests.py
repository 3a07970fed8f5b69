"""Requests about a Raft group: how it is, who leads it, who belongs to it.

Changes are asked of the leader; others say who that is. Members come and go one at a time. A new
one receives the log first and votes when it has caught up; who asked waits for that, and may ask
again when it took too long.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.raft_group import GroupStatus, MemberFields, MemberStatus
from cometmq.raft.errors import Refused
from cometmq.replication.quorum.peers import parse_peer
from cometmq.replication.quorum.quorum import Quorum
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context

log = logging.getLogger(__name__)
TRANSFER_S: Final = 3.0
CHANGE_S: Final = 20.0
"""How long a change is tried for, as catching up and confirming take time."""
_POLL_S: Final = 0.02


class RaftRequests:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.RAFT_STATUS: self.status,
            RequestCode.RAFT_TRANSFER: self.transfer,
            RequestCode.RAFT_ADD_MEMBER: self.add,
            RequestCode.RAFT_REMOVE_MEMBER: self.remove,
        }

    def status(self, _: Connection, __: Command) -> Response:
        quorum, store = self._quorum(), self._context.store
        members = quorum.members
        return json_response(
            GroupStatus(
                group=quorum.settings.group,
                member=quorum.settings.member,
                leader=quorum.leader or "",
                serves=quorum.serves,
                epoch=quorum.epoch,
                confirmed=store.confirmed.value,
                log_end=store.appended.value,
                members=[
                    MemberStatus(
                        member,
                        quorum.addresses.get(member, ""),
                        member in members.voters,
                        quorum.stored_by(member),
                    )
                    for member in members.everybody
                ],
            )
        )

    async def transfer(self, connection: Connection, command: Command) -> Response:
        """Let another member lead: the one that is named, or the one with most of the log."""
        quorum, to = self._leader(), command.fields(MemberFields).member
        candidates = sorted(quorum.others(), key=quorum.stored_by, reverse=True)
        if not to and not candidates:
            raise _refusal("there is nobody else who could lead")
        to = to or candidates[0]
        try:
            quorum.transfer(to)
        except Refused as error:
            raise _refusal(str(error)) from None
        log.info("%s: leadership goes to %s", connection.peer, to)
        if not await _came_true(lambda: not quorum.leads, TRANSFER_S):
            raise _refusal(f"{to} did not take over in time; this member goes on to lead")
        return Response()

    async def add(self, connection: Connection, command: Command) -> Response:
        quorum = self._leader()
        try:
            member, address = parse_peer(command.fields(MemberFields).member)
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if member not in quorum.members.everybody:
            log.info("%s: %s at %s is to join", connection.peer, member, address)
            await self._publish(quorum, member, address)
            await self._change(quorum, lambda: quorum.change(quorum.members.with_learner(member)))
        if member in quorum.members.learners:
            await self._change(quorum, lambda: quorum.change(quorum.members.with_voter(member)))
        return Response()

    async def remove(self, connection: Connection, command: Command) -> Response:
        quorum, member = self._leader(), command.fields(MemberFields).member
        if member not in quorum.members.everybody:
            raise _refusal(f"{member} does not belong to the group")
        if member == quorum.settings.member:
            raise _refusal(f"{member} leads: it has to hand over before it leaves (transfer)")
        log.info("%s: %s is to leave", connection.peer, member)
        await self._change(quorum, lambda: quorum.change(quorum.members.without(member)))
        return Response()

    async def _publish(self, quorum: Quorum, member: str, address: str) -> None:
        """Let a majority know where a member is before it is one: they may need its vote."""
        quorum.introduce(member, address)
        end = self._context.store.appended.value
        if not await _came_true(lambda: self._context.store.confirmed.value >= end, CHANGE_S):
            raise _refusal("no majority answers")

    async def _change(self, quorum: Quorum, change: Callable[[], None]) -> None:
        """Try until it is possible, and wait until a majority has it."""
        refused = ""

        def tried() -> bool:
            nonlocal refused
            try:
                change()
            except Refused as error:
                refused = str(error)
                return False
            return True

        if not await _came_true(tried, CHANGE_S):
            raise _refusal(refused)
        end = self._context.store.appended.value
        if not await _came_true(lambda: self._context.store.confirmed.value > end, CHANGE_S):
            raise _refusal(f"no majority has it yet; the members are {quorum.members}")

    def _quorum(self) -> Quorum:
        if self._context.quorum is None:
            raise _refusal("this broker is in no Raft group (enableDLegerCommitLog)")
        return self._context.quorum

    def _leader(self) -> Quorum:
        quorum = self._quorum()
        if not quorum.serves:
            raise _refusal(f"this member does not lead; {quorum.leader or 'nobody'} does")
        return quorum


async def _came_true(fact: Callable[[], bool], timeout_s: float) -> bool:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    while not fact():
        if loop.time() > deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


def _refusal(remark: str) -> Refusal:
    return Refusal(ResponseCode.SYSTEM_ERROR, remark)
