"""Requests of clients and tools about routes, clusters and topics."""

import logging

import msgspec

from cometmq.protocol.codes import RequestCode, ResponseCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.fastjson import decode_body
from cometmq.protocol.headers import TopicFields
from cometmq.protocol.routes import QueueData, TopicList
from cometmq.transport.connection import Connection, Refusal

from .kv_config import ORDER_TOPIC_CONFIG
from .route_table import UNIT_FLAG, UNIT_SUBSCRIPTION_FLAG
from .state import Handle, NamesrvState

log = logging.getLogger(__name__)

NO_ROUTE = (
    "No topic route info in name server for the topic: {topic}\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)


class BrokerNameFields(msgspec.Struct, rename="camel"):
    broker_name: str


class ClusterFields(msgspec.Struct, rename="camel"):
    cluster: str


class DeleteTopicFields(msgspec.Struct, rename="camel"):
    topic: str
    cluster_name: str | None = None


class RegisterTopicFields(msgspec.Struct, rename="camel"):
    topic: str = ""


class _TopicQueues(msgspec.Struct, rename="camel"):
    queue_datas: list[QueueData] | None = None


def get_route(state: NamesrvState, _: Connection, command: Command) -> Response:
    topic = command.fields(TopicFields).topic
    if not _is_ready(state):
        raise Refusal(ResponseCode.SYSTEM_ERROR, "name server not ready")
    route = state.routes.route(topic, acting_master=state.config.support_acting_master)
    if route is None:
        return Response(ResponseCode.TOPIC_NOT_EXIST, NO_ROUTE.format(topic=topic))
    if state.config.order_message_enable:
        order = state.kv.get(ORDER_TOPIC_CONFIG, topic)
        route.order_topic_conf = msgspec.UNSET if order is None else order
    return Response(body=msgspec.json.encode(route))


def _is_ready(state: NamesrvState) -> bool:
    return state.clock.now_ms() >= state.serves_from_ms()


def get_cluster_info(state: NamesrvState, _: Connection, __: Command) -> Response:
    return Response(body=msgspec.json.encode(state.routes.cluster_info()))


def wipe_write_permission(
    state: NamesrvState, connection: Connection, command: Command
) -> Response:
    name = command.fields(BrokerNameFields).broker_name
    count = state.routes.wipe_write_permission(name)
    log.info("%s: %d topics of %s are read-only now", connection.peer, count, name)
    return Response(fields={"wipeTopicCount": str(count)})


def add_write_permission(state: NamesrvState, connection: Connection, command: Command) -> Response:
    name = command.fields(BrokerNameFields).broker_name
    count = state.routes.add_write_permission(name)
    log.info("%s: %d topics of %s are writable now", connection.peer, count, name)
    return Response(fields={"addTopicCount": str(count)})


def delete_topic(state: NamesrvState, connection: Connection, command: Command) -> Response:
    fields = command.fields(DeleteTopicFields)
    state.routes.delete_topic(fields.topic, fields.cluster_name)
    log.info("%s: topic %s deleted", connection.peer, fields.topic)
    return Response()


def register_topic(state: NamesrvState, connection: Connection, command: Command) -> Response:
    """Some clients ask something else under this code, without a body; they get an empty yes."""
    topic = command.fields(RegisterTopicFields).topic
    if topic and command.body:
        queues = decode_body(command.body, _TopicQueues, "route of a topic").queue_datas or ()
        if queues and not state.routes.register_topic(topic, queues):
            log.warning("%s: topic %s of an unknown broker", connection.peer, topic)
    return Response()


def get_all_topics(state: NamesrvState, _: Connection, __: Command) -> Response:
    return _listed(state.routes.all_topics(), allowed=state.config.all_topics_listed)


def get_cluster_topics(state: NamesrvState, _: Connection, command: Command) -> Response:
    cluster = command.fields(ClusterFields).cluster
    topics = state.routes.topics_of_cluster(cluster)
    return _listed(topics, allowed=state.config.topics_listed)


def get_system_topics(state: NamesrvState, _: Connection, __: Command) -> Response:
    return _listed(state.routes.system_topics(), allowed=True)


def get_unit_topics(state: NamesrvState, _: Connection, __: Command) -> Response:
    return _listed(state.routes.topics_flagged(UNIT_FLAG), allowed=state.config.topics_listed)


def get_unit_subscribed_topics(state: NamesrvState, _: Connection, __: Command) -> Response:
    topics = state.routes.topics_flagged(UNIT_SUBSCRIPTION_FLAG)
    return _listed(topics, allowed=state.config.topics_listed)


def get_unit_subscribed_other_topics(state: NamesrvState, _: Connection, __: Command) -> Response:
    topics = state.routes.topics_flagged(UNIT_SUBSCRIPTION_FLAG, without=UNIT_FLAG)
    return _listed(topics, allowed=state.config.topics_listed)


def _listed(topics: TopicList, *, allowed: bool) -> Response:
    if not allowed:
        raise Refusal(ResponseCode.SYSTEM_ERROR, "disable")
    return Response(body=msgspec.json.encode(topics))


HANDLERS: dict[int, Handle] = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC: get_route,
    RequestCode.GET_BROKER_CLUSTER_INFO: get_cluster_info,
    RequestCode.WIPE_WRITE_PERM_OF_BROKER: wipe_write_permission,
    RequestCode.ADD_WRITE_PERM_OF_BROKER: add_write_permission,
    RequestCode.DELETE_TOPIC_IN_NAMESRV: delete_topic,
    RequestCode.REGISTER_TOPIC_IN_NAMESRV: register_topic,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: get_all_topics,
    RequestCode.GET_TOPICS_BY_CLUSTER: get_cluster_topics,
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: get_system_topics,
    RequestCode.GET_UNIT_TOPIC_LIST: get_unit_topics,
    RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: get_unit_subscribed_topics,
    RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: get_unit_subscribed_other_topics,
}
