"""The roles a server can have, and the settings of each; how a command line gives them values."""

import argparse
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from cometmq.broker.config import BrokerConfig
from cometmq.broker.rocketmq_keys import ROCKETMQ_KEYS as BROKER_KEYS
from cometmq.namesrv.config import ROCKETMQ_KEYS as NAMESRV_KEYS
from cometmq.namesrv.config import NamesrvConfig
from cometmq.settings import BadSetting, Described, described
from cometmq.sources import Given, gather
from cometmq.store.config import StoreConfig

from .arguments import DEFAULT_DATA_DIR


class Role(NamedTuple):
    name: str
    title: str
    settings: dict[str, Described]
    without_effect: frozenset[str]
    """RocketMQ's keys that mean nothing here."""


def _role(name: str, title: str, known: frozenset[str], *classes: type[Any]) -> Role:
    settings = {one.key: one for owner in classes for one in described(owner)}
    return Role(name, title, settings, known - settings.keys())


ROLES = {
    role.name: role
    for role in (
        _role("broker", "Broker", BROKER_KEYS, BrokerConfig, StoreConfig),
        _role("namesrv", "NameServer", NAMESRV_KEYS, NamesrvConfig),
    )
}


def given(
    role: str, options: argparse.Namespace, flags: Mapping[str, tuple[str, Any]]
) -> dict[str, Given]:
    """Everything that was said about a role's settings. `flags` has key → (flag, value), None for
    those that were not used."""
    named = {
        key: Given(value, f"flag {flag}")
        for key, (flag, value) in flags.items()
        if value is not None
    }
    found = ROLES[role]
    keys = found.settings.keys() | found.without_effect
    everything = gather(role, keys, options.config, os.environ, _set(options.settings) | named)
    if role == "broker":
        everything.setdefault("storePathRootDir", _store_path(everything))
    return everything


def _set(pairs: list[str]) -> dict[str, Given]:
    found = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise BadSetting(f"--set {pair}: KEY=VALUE is expected")
        found[key.strip()] = Given(value.strip(), "flag --set")
    return found


def _store_path(found: Mapping[str, Given]) -> Given:
    name = found["brokerName"].value if "brokerName" in found else BrokerConfig().name
    return Given(DEFAULT_DATA_DIR / str(name), "default")
