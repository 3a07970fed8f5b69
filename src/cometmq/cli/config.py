"""`cometmq config`: what a server's settings are, where they come from, and what they mean."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from cometmq.broker.config import load as load_broker
from cometmq.namesrv.config import load as load_namesrv
from cometmq.settings import BadSetting, Described, as_text, nearest
from cometmq.sources import Given, values, variable

from .arguments import add_output_option, add_settings_options
from .asking import show
from .roles import ROLES, Role, given
from .serving import complain
from .view import View, of_rows

_HIDDEN = "(hidden)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    shows = actions.add_parser(
        "show",
        help="the values that a server would start with, and where each comes from",
        description="TOML files, RocketMQ's .conf files, the environment, flags: the later wins.",
    )
    _add_common(shows)
    shows.add_argument("--given", action="store_true", help="leave out what is as by default")
    add_settings_options(shows)
    shows.set_defaults(run=run_show)
    explain = actions.add_parser("explain", help="what settings mean")
    _add_common(explain)
    explain.set_defaults(run=run_explain)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("key", nargs="?", metavar="KEY", help="one setting (all of them)")
    parser.add_argument("--role", choices=tuple(ROLES), default="broker", help="whose (broker)")
    add_output_option(parser)


def run_show(options: argparse.Namespace) -> int:
    role: Role = ROLES[options.role]
    try:
        chosen = _chosen(role, options.key)
        said = given(role.name, options, {})
        effective = _effective(role, said)
    except BadSetting as error:
        complain(str(error))
        return 2
    rows = [
        {"key": one.key, "value": effective[one.key], "unit": one.unit, "origin": origin}
        for one in chosen
        if (origin := _origin(said, one.key)) != "default" or not options.given
    ]
    show(of_rows(rows, "key", "value", "unit", "origin"), options)
    return 0


def run_explain(options: argparse.Namespace) -> int:
    role: Role = ROLES[options.role]
    if options.key in role.without_effect:
        sys.stdout.write(f"{options.key}: a setting of RocketMQ that has no effect here\n")
        return 0
    try:
        chosen = _chosen(role, options.key)
    except BadSetting as error:
        complain(str(error))
        return 2
    facts = [_facts(role, one) for one in chosen]
    if options.key is None:
        show(of_rows(facts, "key", "default", "unit", "live", "meaning"), options)
    else:
        show(View(facts, [_explanation(facts[0])]), options)
    return 0


def _chosen(role: Role, key: str | None) -> Sequence[Described]:
    if key is None:
        return list(role.settings.values())
    if key not in role.settings:
        for other in ROLES.values():
            if key in other.settings:
                raise BadSetting(f"{key} is a setting of {other.name}: add --role {other.name}")
        known = role.settings.keys() | role.without_effect
        raise BadSetting(f"unknown setting {key!r}{nearest(key, known)}")
    return [role.settings[key]]


def _effective(role: Role, said: Mapping[str, Given]) -> dict[str, str]:
    """What the server itself makes of it; BadSetting where it would refuse to start."""
    if role.name == "namesrv":
        config, _ = load_namesrv(values(said))
        shown = as_text(config)
    else:
        broker_config, store_config, _ = load_broker(values(said))
        shown = {**as_text(store_config), **as_text(broker_config)}
    return {key: shown.get(key, _HIDDEN if key in said else "") for key in role.settings}


def _origin(said: Mapping[str, Given], key: str) -> str:
    return said[key].origin if key in said else "default"


def _facts(role: Role, one: Described) -> dict[str, Any]:
    return {
        "key": one.key,
        "role": role.name,
        "values": one.kind,
        "default": one.default,
        "unit": one.unit,
        "live": one.live,
        "variable": variable(role.name, one.key),
        "meaning": one.meaning,
    }


def _explanation(facts: Mapping[str, Any]) -> str:
    default = "none, it must be given" if facts["default"] is None else facts["default"] or "empty"
    live = "while the server runs" if facts["live"] else "at the next start"
    lines = [
        f"{facts['key']}: {facts['meaning']}",
        f"  values       {facts['values']}",
        f"  default      {default} {facts['unit']}".rstrip(),
        f"  changes      {live}",
        f"  environment  {facts['variable']}",
    ]
    return "\n".join(lines) + "\n"
