"""Names for clusters, in the user's configuration directory. The file may hold secrets: only its
owner can read it.

    {"current": "shop", "contexts": {"shop": {"namesrv": "10.0.0.1:9876;10.0.0.2:9876"}}}
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from .exits import NothingThere, WrongUse

SECRET: Final = ("secret_key", "security_token")


class Context(msgspec.Struct, frozen=True, omit_defaults=True):
    """How to reach one cluster."""

    namesrv: str
    tls: bool = False
    tls_ca: str = ""
    """A file with the authority that servers' certificates must come from; empty: any."""
    access_key: str = ""
    secret_key: str = ""
    security_token: str = ""


class Contexts(msgspec.Struct):
    current: str = ""
    contexts: dict[str, Context] = {}

    def get(self, name: str) -> Context:
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NothingThere(
                f"there is no context {name!r}; known: {known}; `cometmq context add` makes one"
            )
        return self.contexts[name]


def path() -> Path:
    home = os.environ.get("XDG_CONFIG_HOME") or str(Path.home() / ".config")
    return Path(home) / "cometmq" / "contexts.json"


def load() -> Contexts:
    """Those of this user; none where there is no file."""
    try:
        return msgspec.json.decode(path().read_bytes(), type=Contexts)
    except (FileNotFoundError, NotADirectoryError):
        return Contexts()
    except OSError as error:
        raise WrongUse(f"cannot read {path()}: {error.strerror}") from None
    except msgspec.MsgspecError as error:
        raise WrongUse(f"{path()} cannot be read: {error}; mend or remove it") from None


def save(contexts: Contexts) -> None:
    """Whole, or not at all."""
    target = path()
    target.parent.mkdir(parents=True, exist_ok=True)
    written = target.with_name(f".{target.name}.{os.getpid()}")
    text = msgspec.json.format(msgspec.json.encode(contexts)) + b"\n"
    descriptor = os.open(written, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    os.replace(written, target)
