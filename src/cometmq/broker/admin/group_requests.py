"""Requests that read and change the consumer groups of a broker.

A request that is wrong in any part changes nothing.
"""

import logging

import msgspec

from cometmq.protocol.admin_headers import (
    DeleteGroupFields,
    GroupForbiddenFields,
    GroupPageFields,
)
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.group_config import GroupConfig, GroupConfigs
from cometmq.protocol.headers import GroupFields
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import decode_body, json_response
from ..context import Context
from ..groups import check_group
from .attributes import GROUP_ATTRIBUTES, changed_attributes
from .pages import page

log = logging.getLogger(__name__)


class GroupList(msgspec.Struct, rename="camel"):
    group_config_list: list[GroupConfig] = []


class GroupRequests:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self.update,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: self.update_list,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self.all_groups,
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: self.one_group,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self.delete,
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN: self.forbid,
        }

    # -- changes ---------------------------------------------------------------------------------

    def update(self, connection: Connection, command: Command) -> Response:
        self._apply(connection, [decode_body(command, GroupConfig)])
        return Response()

    def update_list(self, connection: Connection, command: Command) -> Response:
        self._apply(connection, decode_body(command, GroupList).group_config_list)
        return Response()

    def _apply(self, connection: Connection, wanted: list[GroupConfig]) -> None:
        ready = [self._checked(group) for group in wanted]
        self._context.groups.update(*ready)
        log.info("%s: groups changed: %s", connection.peer, ready)

    def _checked(self, wanted: GroupConfig) -> GroupConfig:
        name = wanted.group_name
        known = self._context.groups.get(name)
        current = known.attributes if known is not None else None
        try:
            check_group(name)
            attributes = changed_attributes(current, wanted.attributes, GROUP_ATTRIBUTES)
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, f"group {name}: {error}") from None
        return msgspec.structs.replace(wanted, attributes=attributes)

    def delete(self, connection: Connection, command: Command) -> Response:
        """Forget a group; its offsets too, if asked. One that is not there counts as forgotten."""
        fields = command.fields(DeleteGroupFields)
        context = self._context
        context.groups.delete(fields.group_name)
        if fields.clean_offset:
            context.offsets.forget_group(fields.group_name)
            context.offsets.save()
        context.stats.forget(fields.group_name)
        log.info("%s: group %s deleted", connection.peer, fields.group_name)
        return Response()

    def forbid(self, connection: Connection, command: Command) -> Response:
        """Say, and if asked set, whether a group may read a topic."""
        fields = command.fields(GroupForbiddenFields)
        groups = self._context.groups
        if fields.readable is not None:
            groups.set_readable(fields.group, fields.topic, readable=fields.readable)
            log.info("%s: %s", connection.peer, fields)
        readable = groups.may_read(fields.group, fields.topic)
        return json_response({"group": fields.group, "topic": fields.topic, "readable": readable})

    # -- reads -----------------------------------------------------------------------------------

    def all_groups(self, _: Connection, command: Command) -> Response:
        fields = command.fields(GroupPageFields)
        everything = self._context.groups.content()
        table, forbidden = everything.subscription_group_table, everything.forbidden_table
        names = page(
            table, everything.data_version,
            start=fields.group_seq, count=fields.max_group_num, seen=fields.data_version,
        )  # fmt: skip
        response = json_response(
            GroupConfigs(
                {name: table[name] for name in names},
                {name: forbidden[name] for name in names if name in forbidden},
                everything.data_version,
            )
        )
        response.fields = {"totalGroupNum": str(len(table))}
        return response

    def one_group(self, _: Connection, command: Command) -> Response:
        name = command.fields(GroupFields).group
        group = self._context.groups.get(name)
        if group is None:
            raise Refusal(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker: {name}"
            )
        return json_response(group)
