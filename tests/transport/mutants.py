"""Requests gone wrong, by chance but reproducibly: the same seed makes the same bytes.

Two kinds. A misfit is a whole frame of which fields, values, body, flags or code are wrong; a
server answers it and goes on. A wreck is damaged as bytes; a server may close the connection.
"""

import json
import random
import struct
from collections.abc import Callable
from typing import Any

from cometmq.protocol.command import HeaderKind

from .seeds import GROUPS, SEEDS, TOPICS, Seed

STRANGE_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31 - 1, 2**31, -(2**31), 2**63 - 1, 2**63, -(2**63) - 1,
    10**30, 10**300, 0.5, -1.5e300, "", " ", "0", "-1", "2147483648", "9223372036854775807",
    "9223372036854775808", "1" * 50, "9" * 4000, "1e5", "0x10", "NaN", "null", "true", "TRUE",
    "yes", "\0", "\x01\x02", "\n\r", "../../../tmp/x", "a/b", "a\\b", "%s%n", "%RETRY%", "%DLQ%g",
    "*", "||", "a > 5 AND", "主题", "🌠", "x" * 300, "y" * 40_000, [], [1, None, "a"], {},
    {"a": {"b": []}}, [[]] * 20,
)  # fmt: skip
OPAQUES = range(1, 1_000_000)
WRECK_CHANGES_MAX = 8
NEW_NAME_PROBABILITY = 0.05


class Mutants:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._field_changes: list[Callable[[dict[str, Any]], None]] = [
            self._lose_field,
            self._change_value,
            self._change_value,
            self._change_number,
            self._swap_values,
            self._rename_field,
            self._add_field,
            self._name_other,
        ]
        self._body_changes: list[Callable[[bytes], bytes]] = [
            self._change_json,
            self._change_json,
            self._flip_bits,
            self._truncate,
            self._shuffle,
            self._insert,
            lambda body: body * 2,
            lambda _: self._random.randbytes(self._random.randrange(200)),
            lambda _: b"",
            lambda _: b"[" * 5000,
            lambda _: b"{" * 5000,
            lambda _: self._random.choice(SEEDS).body,
        ]
        self._byte_changes: list[Callable[[bytes], bytes]] = [
            self._flip_bits,
            self._truncate,
            self._shuffle,
            self._insert,
            self._wrong_length,
            self._wrong_header_length,
            self._wrong_kind,
            lambda frame: frame + self._random.randbytes(self._random.randrange(1, 100)),
            lambda _: self._random.randbytes(self._random.randrange(1, 200)),
        ]

    def misfit(self) -> bytes:
        """A whole frame with the wrong contents."""
        seed = self._random.choice(SEEDS)
        fields: dict[str, Any] = dict(seed.fields)
        body = seed.body
        for _ in range(self._random.choice((0, 1, 1, 1, 2, 3))):
            self._random.choice(self._field_changes)(fields)
        if self.chance(NEW_NAME_PROBABILITY):
            self._name_anew(fields)
        if body and self._random.random() < 0.5:
            body = self._random.choice(self._body_changes)(body)
        code = seed.code if self._random.random() < 0.97 else self._random.randrange(-9, 40_000)
        flag = self._random.choice((0, 0, 0, 0, 0, 0, 2, 2, 1, 3, -4, 2**30))
        opaque = self._random.choice(OPAQUES)
        if self._random.random() < 0.25:
            return binary_frame(code, opaque, flag, fields, body)
        return self._json_frame(code, opaque, flag, fields, body)

    def wreck(self) -> bytes:
        """Bytes that were a frame."""
        frame = self.misfit()
        for _ in range(self._random.choice((1, 1, 2))):
            frame = self._random.choice(self._byte_changes)(frame)
        return frame

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def count(self, most: int) -> int:
        return self._random.randrange(most + 1)

    # -- fields ----------------------------------------------------------------------------------

    def _lose_field(self, fields: dict[str, Any]) -> None:
        if fields:
            del fields[self._random.choice(list(fields))]

    def _change_value(self, fields: dict[str, Any]) -> None:
        if fields:
            fields[self._random.choice(list(fields))] = self._random.choice(STRANGE_VALUES)

    def _change_number(self, fields: dict[str, Any]) -> None:
        numbers = [name for name, value in fields.items() if str(value).lstrip("-").isdigit()]
        if numbers:
            bits = self._random.randrange(70)
            value = self._random.getrandbits(bits + 1) * self._random.choice((1, -1))
            fields[self._random.choice(numbers)] = str(value)

    def _swap_values(self, fields: dict[str, Any]) -> None:
        if fields:
            one, other = self._random.choices(list(fields), k=2)
            fields[one], fields[other] = fields[other], fields[one]

    def _rename_field(self, fields: dict[str, Any]) -> None:
        if fields:
            value = fields.pop(self._random.choice(list(fields)))
            fields[self._random.choice(("", "x", "topic", "group", "a", "主", "queueId"))] = value

    def _add_field(self, fields: dict[str, Any]) -> None:
        other = self._random.choice(SEEDS).fields
        if other:
            name = self._random.choice(list(other))
            fields[name] = other[name]

    def _name_other(self, fields: dict[str, Any]) -> None:
        for name in fields:
            if "opic" in name or name == "b":
                fields[name] = self._random.choice(TOPICS)
            elif "roup" in name or name == "a":
                fields[name] = self._random.choice(GROUPS)

    def _name_anew(self, fields: dict[str, Any]) -> None:
        """Topics and groups that nobody has seen, which a server may have to keep."""
        for name in fields:
            if "opic" in name or "roup" in name or name in ("a", "b"):
                fields[name] = self._new_name()

    def _new_name(self) -> str:
        return f"Fuzz-{self._random.getrandbits(32):x}"

    # -- bodies ----------------------------------------------------------------------------------

    def _change_json(self, body: bytes) -> bytes:
        """A JSON body with one of its values replaced, lost or doubled."""
        try:
            tree = json.loads(body)
        except ValueError:
            return self._flip_bits(body)
        for _ in range(self._random.choice((1, 1, 2))):
            tree = self._changed_node(tree)
        return json.dumps(tree).encode()

    def _changed_node(self, node: Any) -> Any:
        if isinstance(node, dict) and node and self._random.random() < 0.9:
            name = self._random.choice(list(node))
            if self._random.random() < 0.1:
                return {other: node[other] for other in node if other != name}
            return {**node, name: self._changed_node(node[name])}
        if isinstance(node, list) and node and self._random.random() < 0.9:
            at = self._random.randrange(len(node))
            if self._random.random() < 0.1:
                return node * 2
            return [*node[:at], self._changed_node(node[at]), *node[at + 1 :]]
        if isinstance(node, str) and self.chance(NEW_NAME_PROBABILITY):
            return self._new_name()
        return self._random.choice(STRANGE_VALUES)

    # -- bytes -----------------------------------------------------------------------------------

    def _flip_bits(self, data: bytes) -> bytes:
        changed = bytearray(data)
        for _ in range(self._random.randrange(1, WRECK_CHANGES_MAX)):
            if changed:
                changed[self._random.randrange(len(changed))] ^= 1 << self._random.randrange(8)
        return bytes(changed)

    def _truncate(self, data: bytes) -> bytes:
        return data[: self._random.randrange(len(data) + 1)]

    def _insert(self, data: bytes) -> bytes:
        at = self._random.randrange(len(data) + 1)
        return data[:at] + self._random.randbytes(self._random.randrange(1, 20)) + data[at:]

    def _shuffle(self, data: bytes) -> bytes:
        one, other = sorted(self._random.randrange(len(data) + 1) for _ in range(2))
        return data[other:] + data[one:other] + data[:one]

    def _wrong_length(self, frame: bytes) -> bytes:
        return (
            struct.pack(">I", self._random.getrandbits(self._random.randrange(1, 33))) + frame[4:]
        )

    def _wrong_header_length(self, frame: bytes) -> bytes:
        length = self._random.getrandbits(self._random.randrange(1, 25))
        return frame[:5] + length.to_bytes(3, "big") + frame[8:]

    def _wrong_kind(self, frame: bytes) -> bytes:
        return frame[:4] + bytes([self._random.choice((0, 1, 2, 255))]) + frame[5:]

    def _json_frame(
        self, code: int, opaque: int, flag: int, fields: dict[str, Any], body: bytes
    ) -> bytes:
        head = {
            "code": code,
            "flag": flag,
            "language": self._random.choice(("JAVA", "GO", "NODE_JS", "KLINGON")),
            "opaque": opaque,
            "serializeTypeCurrentRPC": "JSON",
            "version": self._random.choice((513, 317, 121, 0, -1, 2**31 - 1)),
        }
        encoded = json.dumps({**head, "extFields": fields}, ensure_ascii=self.chance(0.5))
        if fields and self.chance(0.05):
            # The same name twice, which a dictionary cannot say.
            name = json.dumps(self._random.choice(list(fields)))
            encoded = encoded[:-2] + f",{name}:1" + encoded[-2:]
        return _frame(HeaderKind.JSON, encoded.encode(), body)


def binary_frame(code: int, opaque: int, flag: int, fields: dict[str, Any], body: bytes) -> bytes:
    """A request with a binary header; values that are no text are sent as JSON has them."""
    pieces = []
    for name, value in fields.items():
        text = (value if isinstance(value, str) else json.dumps(value)).encode()
        pieces += [struct.pack(">H", len(name.encode())), name.encode()]
        pieces += [struct.pack(">i", len(text)), text]
    encoded = b"".join(pieces)
    head = struct.pack(">hBhiii", (code + 2**15) % 2**16 - 2**15, 0, 513, opaque, flag, 0)
    return _frame(HeaderKind.BINARY, head + struct.pack(">i", len(encoded)) + encoded, body)


def whole(seed: Seed, opaque: int) -> bytes:
    """The request as it should be."""
    head = {"code": seed.code, "flag": 0, "opaque": opaque, "extFields": dict(seed.fields)}
    return _frame(HeaderKind.JSON, json.dumps(head).encode(), seed.body)


def _frame(kind: HeaderKind, header: bytes, body: bytes) -> bytes:
    size = 4 + len(header) + len(body)
    return struct.pack(">II", size, kind << 24 | len(header)) + header + body
