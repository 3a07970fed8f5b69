"""Who the members of a group are and where they listen: `n0-host:port;n1-host:port`."""

import re

import msgspec

from cometmq.transport.dial import split_address

_ID = re.compile(r"[A-Za-z](\d{1,9})")


class Peers(msgspec.Struct, frozen=True):
    addresses: dict[str, str]
    """Id of a member → host:port."""

    @classmethod
    def parse(cls, text: str) -> "Peers":
        """RocketMQ's form (`dLegerPeers`); ValueError with what is wrong."""
        addresses: dict[str, str] = {}
        for peer in filter(None, map(str.strip, text.split(";"))):
            member, address = parse_peer(peer)
            if member in addresses:
                raise ValueError(f"{member} stands there twice")
            if address in addresses.values():
                raise ValueError(f"two members have the address {address}")
            addresses[member] = address
        if not addresses:
            raise ValueError("it is empty; n0-host:port;n1-host:port;n2-host:port is expected")
        return cls(addresses)


def parse_peer(text: str) -> tuple[str, str]:
    """`n0-host:port`."""
    member, dash, address = text.partition("-")
    if not dash:
        raise ValueError(f"{text!r} is not a member: n0-host:port is")
    check_member(member)
    split_address(address)
    return member, address


def check_member(member: str) -> str:
    if not _ID.fullmatch(member):
        raise ValueError(f"{member!r} is not an id: a letter with a number is, as in n0")
    return member


def broker_id_of(member: str) -> int:
    """The id under which a member that does not lead registers at NameServers, as RocketMQ's."""
    match = _ID.fullmatch(member)
    assert match is not None
    return int(match[1]) + 1
