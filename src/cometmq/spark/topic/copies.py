"""Brokers whose master is away, so that a slave answers for it.

A new slave begins with its master's last file, and any may end earlier than its master: what it has
is right, what it lacks says nothing.
"""

from cometmq.client.admin import Admin
from cometmq.protocol.routes import MASTER_ID, TopicRoute
from cometmq.protocol.topic_config import PERM_WRITE


async def without_master(admin: Admin, route: TopicRoute) -> set[str]:
    """The names of such brokers among those of a topic."""
    away = {data.broker_name for data in route.broker_datas if MASTER_ID not in data.broker_addrs}
    doubtful = _perhaps_acting(route)
    if doubtful:
        # Routes show who stands in for a master as one; the list of brokers does not.
        table = (await admin.brokers.cluster_info()).broker_addr_table
        masters = {name for name, data in table.items() if MASTER_ID in data.broker_addrs}
        away |= doubtful - masters
    return away


def _perhaps_acting(route: TopicRoute) -> set[str]:
    writable = {data.broker_name for data in route.queue_datas if data.perm & PERM_WRITE}
    acting = {data.broker_name for data in route.broker_datas if data.enable_acting_master}
    return acting - writable
