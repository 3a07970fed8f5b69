"""`cometmq cluster`: which clusters the NameServer knows, and how much goes through them."""

import argparse
from typing import Any

from cometmq.client.admin import Admin

from .asking import asks
from .view import View, of_rows


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    asks(actions.add_parser("list", help="all clusters"), _list, watch=True)


async def _list(admin: Admin, _: argparse.Namespace) -> View:
    nodes = await admin.brokers.nodes()
    told = await admin.brokers.runtime_info(skip_unreachable=True) if nodes else {}
    rows: list[dict[str, Any]] = []
    for cluster in sorted({node.cluster for node in nodes}):
        members = [node for node in nodes if node.cluster == cluster]
        names = sorted({node.name for node in members})
        infos = [told[name] for name in names if name in told]
        rows.append(
            {
                "cluster": cluster,
                "brokers": names,
                "masters": sum(node.broker_id == 0 for node in members),
                "slaves": sum(node.broker_id != 0 for node in members),
                "unreachable": len(names) - len(infos),
                "in_tps": sum(info.put_tps for info in infos),
                "out_tps": sum(info.get_tps for info in infos),
                "in_today": sum(info.put_today for info in infos),
                "out_today": sum(info.get_today for info in infos),
            }
        )
    return of_rows(
        rows,
        "cluster", "brokers", "masters", "slaves", "unreachable", "in_tps", "out_tps", "in_today",
        "out_today",
    )  # fmt: skip
