"""Requests that read and change the topics of a broker.

A request that is wrong in any part changes nothing. NameServers hear of every change.
"""

import logging

import msgspec

from cometmq.protocol.admin_headers import CreateTopicFields, TopicPageFields
from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.data_version import DataVersion
from cometmq.protocol.headers import TopicFields
from cometmq.protocol.names import check_topic
from cometmq.protocol.scan import queue_key, split_queue_key
from cometmq.protocol.topic_config import PERM_MASK, TopicConfig
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import decode_body, json_response
from ..context import Context
from ..topics import NOT_FOR_CLIENTS
from .attributes import MIXED, TOPIC_ATTRIBUTES, changed_attributes, parse_changes
from .pages import page

log = logging.getLogger(__name__)
_FILTER_TYPES = ("SINGLE_TAG", "MULTI_TAG")


class TopicList(msgspec.Struct, rename="camel"):
    topic_config_list: list[TopicConfig] = []


class TopicRequests:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.UPDATE_AND_CREATE_TOPIC: self.update,
            RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: self.update_list,
            RequestCode.GET_ALL_TOPIC_CONFIG: self.all_topics,
            RequestCode.GET_TOPIC_CONFIG: self.one_topic,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: self.system_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self.delete,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_unused,
        }

    # -- changes ---------------------------------------------------------------------------------

    async def update(self, connection: Connection, command: Command) -> Response:
        fields = command.fields(CreateTopicFields)
        try:
            changes = parse_changes(fields.attributes)
        except ValueError as error:
            raise Refusal(ResponseCode.SYSTEM_ERROR, str(error)) from None
        wanted = TopicConfig(
            fields.topic, fields.read_queue_nums, fields.write_queue_nums, fields.perm,
            fields.topic_filter_type, fields.topic_sys_flag, fields.order, changes,
        )  # fmt: skip
        await self._apply(connection, [wanted])
        return Response()

    async def update_list(self, connection: Connection, command: Command) -> Response:
        await self._apply(connection, decode_body(command, TopicList).topic_config_list)
        return Response()

    async def _apply(self, connection: Connection, wanted: list[TopicConfig]) -> None:
        """Create or change topics whose attributes are changes to what there is."""
        topics = self._context.topics
        ready = [self._checked(topic) for topic in wanted]
        changed = [topic for topic in ready if topic != topics.get(topic.topic_name)]
        if not changed:
            return
        try:
            topics.update(*changed)
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        log.info("%s: topics changed: %s", connection.peer, changed)
        # Who asked for a topic looks for its route next.
        await self._context.announce()

    def _checked(self, wanted: TopicConfig) -> TopicConfig:
        self._check_name(wanted.topic_name)
        if not 0 <= wanted.perm <= PERM_MASK:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"perm {wanted.perm} of {wanted.topic_name}: 0 to {PERM_MASK} is expected",
            )
        if wanted.topic_filter_type not in _FILTER_TYPES:
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"topicFilterType {wanted.topic_filter_type}: {' or '.join(_FILTER_TYPES)} "
                "is expected",
            )
        if wanted.attributes.get("+message.type") == MIXED:
            raise Refusal(ResponseCode.INVALID_PARAMETER, "MIXED message type is not supported.")
        known = self._context.topics.get(wanted.topic_name)
        current = known.attributes if known is not None else None
        try:
            attributes = changed_attributes(current, wanted.attributes, TOPIC_ATTRIBUTES)
        except ValueError as error:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR, f"topic {wanted.topic_name}: {error}"
            ) from None
        return msgspec.structs.replace(wanted, attributes=attributes)

    def _check_name(self, name: str) -> None:
        try:
            check_topic(name)
        except ValueError as error:
            raise Refusal(ResponseCode.INVALID_PARAMETER, str(error)) from None
        if self._context.topics.is_system(name):
            raise Refusal(
                ResponseCode.INVALID_PARAMETER,
                f"The topic[{name}] is conflict with system topic.",
            )

    async def delete(self, connection: Connection, command: Command) -> Response:
        """Forget a topic, also one that is only half there."""
        name = command.fields(TopicFields).topic
        self._check_name(name)
        context = self._context
        known = context.topics.get(name)
        context.topics.delete(name)  # First: so nothing more gets in.
        queues = context.store.delete_topic(name)
        context.offsets.forget_topic(name)
        context.offsets.save()
        context.stats.forget(name)
        if known is not None:
            for queue_id in range(known.read_queue_nums):
                context.waiting_pulls.release(queue_key(name, queue_id))
        log.info("%s: topic %s with %d queues deleted", connection.peer, name, queues)
        # Tools remove it from NameServers next, where no older registration may bring it back.
        await context.announce()
        return Response()

    def clean_unused(self, connection: Connection, _: Command) -> Response:
        """Remove queues that belong to no topic."""
        context = self._context
        stored = {split_queue_key(key)[0] for key, _ in context.store.queues}
        for name in sorted(stored):
            if context.topics.get(name) is None and not context.topics.is_system(name):
                context.store.delete_topic(name)
                log.info("%s: queues of the unknown topic %s deleted", connection.peer, name)
        return Response()

    # -- reads -----------------------------------------------------------------------------------

    def all_topics(self, _: Connection, command: Command) -> Response:
        fields = command.fields(TopicPageFields)
        topics = self._context.topics
        table = {topic.topic_name: topic for topic in topics}
        names = page(
            table, topics.version,
            start=fields.topic_seq, count=fields.max_topic_num, seen=fields.data_version,
        )  # fmt: skip
        response = json_response(
            {
                "dataVersion": topics.version,
                "topicConfigTable": {name: table[name] for name in names},
                # Of static topics, which this broker has not.
                "mappingDataVersion": DataVersion(),
                "topicQueueMappingDetailMap": {},
                "topicQueueMappingInfoMap": {},
            }
        )
        response.fields = {"totalTopicNum": str(len(table))}
        return response

    def one_topic(self, _: Connection, command: Command) -> Response:
        name = command.fields(TopicFields).topic
        topic = self._context.topics.get(name)
        if topic is None:
            raise Refusal(ResponseCode.TOPIC_NOT_EXIST, f"No topic in this broker. topic: {name}")
        return json_response(topic)

    def system_topics(self, _: Connection, __: Command) -> Response:
        return json_response({"topicList": sorted(self._context.topics.system | NOT_FOR_CLIENTS)})
