"""Settings that change while a broker runs: over the wire, or when it reads its files again.

A change takes all of its keys or none. It lasts until the broker ends: files are the operator's.
"""

from collections.abc import Collection, Mapping
from typing import Any

from cometmq.logs import set_levels
from cometmq.settings import BadSetting, changed, declared, differences, refuse_unknown
from cometmq.store.config import StoreConfig

from .config import BrokerConfig
from .context import Context
from .rocketmq_keys import ROCKETMQ_KEYS


async def change(context: Context, values: Mapping[str, Any]) -> None:
    """Take new values. BadSetting if one of them cannot be taken."""
    brokers, stores = declared(BrokerConfig), declared(StoreConfig)
    without_effect = refuse_unknown(values, {**brokers, **stores}, ROCKETMQ_KEYS)
    if without_effect:
        raise BadSetting(f"{', '.join(without_effect)}: of no effect here")
    # Both first: a change that is wrong in one must not be made in the other.
    config = changed(context.config, _only(values, brokers))
    store_config = changed(context.store.config, _only(values, stores))
    if store_config != context.store.config:
        context.store.reconfigure(store_config)
    await _reconfigure(context, config)


async def renew(
    context: Context, config: BrokerConfig, store_config: StoreConfig
) -> tuple[list[str], list[str]]:
    """Become as the files say now, as far as that is possible without a restart. The keys that
    changed, and those that need one."""
    live, fixed = differences(context.config, config)
    store_live, store_fixed = differences(context.store.config, store_config)
    await change(context, live | store_live)
    return [*live, *store_live], fixed + store_fixed


async def _reconfigure(context: Context, config: BrokerConfig) -> None:
    before, context.config = context.config, config
    context.topics.reconfigure(config)
    context.groups.reconfigure(config)
    context.archive.reconfigure(config)
    context.waiting_pulls.held_max = config.pulls_held_max
    if config.log_level != before.log_level:
        set_levels(config.log_level)
    if config.permission != before.permission:
        context.topics.renew()
        await context.announce()


def _only(values: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in known}
