"""Whether a server does its work: caught up and writable, or why it is not. Pure looks at state."""

from cometmq.broker.broker import Broker
from cometmq.broker.context import Context
from cometmq.namesrv.server import NameServer
from cometmq.protocol.topic_config import PERM_WRITE
from cometmq.replication.acks import TooFewReplicas
from cometmq.replication.quorum.quorum import Quorum


def broker_troubles(broker: Broker) -> list[str]:
    """Why a broker should get no clients now; empty when it should."""
    context = broker.parts.context
    troubles = []
    if context.store.trouble is not None:
        troubles.append(f"no messages are taken: {context.store.trouble}")
    behind = context.store.confirmed.value - context.store.dispatched.value
    if behind > context.config.ha_gap_bytes:
        troubles.append(f"{behind} bytes of the log are not readable yet")
    if context.quorum is not None and not context.quorum.serves:
        return troubles + _member(context.quorum)
    return troubles + (_slave(context) if context.config.is_slave else _master(context))


def _master(context: Context) -> list[str]:
    troubles = []
    if not context.config.permission & PERM_WRITE:
        troubles.append(f"brokerPermission={context.config.permission} lets nobody write")
    if context.slaves is not None:
        try:
            context.slaves.require()
        except TooFewReplicas as error:
            troubles.append(str(error))
    return troubles


def _slave(context: Context) -> list[str]:
    follower = context.follower
    if follower is None or not follower.is_following:
        why = follower.trouble if follower is not None else None
        return [f"it does not follow its master: {why or 'not connected yet'}"]
    behind = follower.behind
    if behind is None:
        return ["the master has not said yet where its log ends"]
    if behind > context.config.ha_gap_bytes:
        return [f"{behind} bytes behind its master, haMaxGapNotInSync is "
                f"{context.config.ha_gap_bytes}"]  # fmt: skip
    return []


def _member(quorum: Quorum) -> list[str]:
    """Of one that does not lead its group: it serves what is confirmed, as long as it hears of
    new messages."""
    group = quorum.settings.group
    return [] if quorum.is_following else [f"group {group} has no leader that it knows of"]


def namesrv_troubles(server: NameServer) -> list[str]:
    state = server.state
    left_ms = state.serves_from_ms() - state.clock.now_ms()
    if left_ms > 0:
        return [f"routes are told in {left_ms / 1000:.0f} s (needWaitForService)"]
    return []
