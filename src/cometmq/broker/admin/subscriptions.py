"""Which groups consume which topics: those online by what they subscribe to, and those offline by
the offsets they left."""

from cometmq.protocol.admin_headers import GroupTopicFields
from cometmq.protocol.codes import RequestCode
from cometmq.protocol.command import Command, Response
from cometmq.protocol.headers import GroupFields, TopicFields
from cometmq.transport.connection import Connection, Handlers

from ..bodies import json_response
from ..context import Context


class Subscriptions:
    def __init__(self, context: Context) -> None:
        self._context = context

    def handlers(self) -> Handlers:
        return {
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self.groups_of_topic,
            RequestCode.QUERY_TOPICS_BY_CONSUMER: self.topics_of_group,
            RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: self.subscription,
        }

    def groups_of_topic(self, _: Connection, command: Command) -> Response:
        topic = command.fields(TopicFields).topic
        context = self._context
        groups = {*context.clients.subscribers(topic), *context.offsets.groups_of(topic)}
        return json_response({"groupList": sorted(groups)})

    def topics_of_group(self, _: Connection, command: Command) -> Response:
        group = command.fields(GroupFields).group
        topics = sorted(self._context.offsets.topics_of(group))
        return json_response({"topicList": topics, "brokerAddr": str(self._context.address)})

    def subscription(self, _: Connection, command: Command) -> Response:
        fields = command.fields(GroupTopicFields)
        online = self._context.clients.consumer_group(fields.group)
        found = online.subscriptions.get(fields.topic) if online is not None else None
        return json_response(
            {"group": fields.group, "topic": fields.topic, "subscriptionData": found}
        )
