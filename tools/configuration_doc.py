"""Writes docs/configuration.md out of the settings' own declarations. Run by `make configuration`;
a test compares.
"""

from pathlib import Path

from cometmq.cli.roles import ROLES, Role
from cometmq.settings import Described
from cometmq.sources import variable

DOCUMENT = Path(__file__).parents[1] / "docs" / "configuration.md"
INTRODUCTION = """\
# Configuration

<!-- Written by `make configuration` out of broker/config.py, store/config.py, namesrv/config.py
and observed.py: change those. -->

A server's settings come from four sources, and the later one wins:

1. TOML files, `-c broker.toml`; `-c` may be repeated
2. RocketMQ's own files of `key=value`, `-c broker.conf`
3. the environment: `COMETMQ_BROKER__` or `COMETMQ_NAMESRV__` and the key in capitals, its words \
parted by `_`: `COMETMQ_BROKER__LISTEN_PORT`
4. flags: `--set KEY=VALUE` for any key, and `--port`, `--host`, `--name` … for some

Keys are RocketMQ's; a few of ours have dots. A key that RocketMQ knows and CometMQ does not use is
reported and has no effect; a key that nobody knows is an error that names the nearest one, in all
four sources.

```
cometmq config show -c broker.conf            # every value, and who gave it
cometmq config show -c broker.conf --given    # only what is not as by default
cometmq config explain flushDiskType          # what a key means
cometmq config explain --role namesrv -o json
```

**Live** settings change while the server runs: with `mqadmin updateBrokerConfig` (or \
`updateNamesrvConfig`), until its next start, or by SIGHUP, at which a server that was started with
`-c` reads all its sources again; it says which keys changed and which need a restart. Nothing else
can be changed over the wire, no path among them.
"""


def document() -> str:
    return INTRODUCTION + "".join(_section(role) for role in ROLES.values())


def _section(role: Role) -> str:
    example = variable(role.name, "listenPort")
    lines = [
        f"\n## {role.title}\n",
        f"`cometmq {role.name} -c FILE`; in the environment `{example}` and so on.\n",
        "| key | default | unit | live | meaning |",
        "|---|---|---|---|---|",
        *map(_row, role.settings.values()),
    ]
    return "\n".join(lines) + "\n"


def _row(one: Described) -> str:
    default = "must be given" if one.default is None else f"`{one.default}`" if one.default else ""
    choices = f": `{one.kind}`" if "|" in one.kind and one.kind != "true | false" else ""
    meaning = (one.meaning + choices).replace("|", r"\|")
    return f"| `{one.key}` | {default} | {one.unit} | {'yes' if one.live else ''} | {meaning} |"


def main() -> None:
    DOCUMENT.write_text(document())


if __name__ == "__main__":
    main()
