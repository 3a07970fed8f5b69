"""Remoting commands and their frames. No sockets here: bytes in, commands out, and back.

    int32  bytes that follow
    int8   kind of the header: 0 JSON, 1 binary
    int24  length of the header
    header, body

Header fields of requests stay encoded until a handler asks for them as a typed structure; numbers
and booleans travel as text, and some clients send them bare. Both are read.
"""

import enum
import functools
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

import msgspec

from .codes import PROTOCOL_VERSION, Language
from .errors import ProtocolError
from .numbers import Int32

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
_PIECE_BYTES_MIN: Final = 4096
_PREFIX = struct.Struct(">II")
_BINARY_HEAD = struct.Struct(">hBhiii")
_SHORT = struct.Struct(">H")
_INT = struct.Struct(">i")

RESPONSE = 0x1
ONEWAY = 0x2

Body = bytes | Sequence[bytes | memoryview]
"""Several pieces where they need not be joined before they are written."""

Fields = TypeVar("Fields", bound=msgspec.Struct)

_HEADER_BYTES_MAX = 2**24 - 1
_LANGUAGES = {int(language): language for language in Language}
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""All that msgspec raises for bytes that are not the JSON it looks for."""


class HeaderKind(enum.IntEnum):
    JSON = 0
    BINARY = 1


class MalformedFrame(ProtocolError):
    """What came is not this protocol; the connection is of no further use."""

    before: "Sequence[Command]" = ()
    """What came complete ahead of it in the same bytes, and is still to be answered."""


class MalformedFields(ProtocolError):
    """A command's fields are not those that its code asks for."""


class _JsonHead(msgspec.Struct, gc=False):
    code: Int32
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str | None = None
    version: Int32 = 0
    remark: str | None = None
    extFields: msgspec.Raw = msgspec.Raw(b"{}")  # noqa: N815 - its name on the wire


class Command(msgspec.Struct, gc=False):
    """A request or a response as it came."""

    code: int
    opaque: int
    flag: int
    language: Language
    version: int
    remark: str | None
    encoded_fields: msgspec.Raw | dict[str, str]
    body: bytes
    kind: HeaderKind
    received: float = 0.0
    """When it came, on the clock of who asks how long it took; 0: nobody does."""
    held: bool = False
    """Whether its answer waited until there was something to say."""

    @property
    def is_response(self) -> bool:
        return self.flag & RESPONSE != 0

    @property
    def is_oneway(self) -> bool:
        return self.flag & ONEWAY != 0

    def fields(self, kind: type[Fields]) -> Fields:
        """The header's own fields as a structure; unknown ones are left out."""
        encoded = self.encoded_fields
        try:
            if isinstance(encoded, dict):
                return msgspec.convert(encoded, kind, strict=False)
            try:
                decoded: Fields = _decoder(kind).decode(encoded)
                return decoded
            except msgspec.ValidationError:
                # A number where text belongs: everything to text first, then as from others.
                return msgspec.convert(self.text_fields(), kind, strict=False)
        except _UNREADABLE as error:
            raise MalformedFields(f"request {self.code}: {error}") from None

    def text_fields(self) -> dict[str, str]:
        """All fields as text, as RocketMQ itself sees them."""
        encoded = self.encoded_fields
        if isinstance(encoded, dict):
            return encoded
        try:
            found = msgspec.json.decode(encoded)
            if not isinstance(found, dict):
                return {}
            return {key: as_text(value) for key, value in found.items() if value is not None}
        except _UNREADABLE as error:
            raise MalformedFields(f"request {self.code}: {error}") from None


class Request(msgspec.Struct, gc=False):
    """A request to be sent."""

    code: int
    fields: Mapping[str, str] = {}
    body: Body = b""


class Response(msgspec.Struct, gc=False):
    """An answer to be sent."""

    code: int = 0
    remark: str | None = None
    fields: Mapping[str, str] = {}
    body: Body = b""


def encode_request(request: Request, opaque: int, *, oneway: bool = False) -> list[bytes]:
    """A frame as pieces. Requests go with JSON headers: every peer reads them."""
    flag = ONEWAY if oneway else 0
    header = _json_header(request.code, opaque, flag, None, request.fields)
    return _frame(HeaderKind.JSON, header, request.body)


def encode_response(response: Response, opaque: int, kind: HeaderKind) -> list[bytes]:
    """A frame as pieces, with the kind of header in which the request came."""
    encode = _json_header if kind is HeaderKind.JSON else _binary_header
    header = encode(response.code, opaque, RESPONSE, response.remark, response.fields)
    return _frame(kind, header, response.body)


class FrameParser:
    """Takes bytes as they come and gives the commands that are complete.

    Holds at most one unfinished frame; one that announces more than `frame_bytes_max` is refused
    when its length is read, before anything is kept for it.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._kept: list[bytes | bytearray] = []
        """What has come of an unfinished frame. Large pieces stay as they came and are put together
        once, when the frame is whole: an answer to a pull comes in several."""
        self._missing = 0
        """Bytes without which there is nothing to be read."""

    @property
    def is_midway(self) -> bool:
        return bool(self._kept)

    def feed(self, data: bytes, take: Callable[[bytes], int] | None = None) -> list[Command]:
        """The commands that are complete; but `take` may have those first that it wants, as bytes,
        and tells where it stopped."""
        if self._kept:
            self._missing -= len(data)
            if self._missing > 0:
                self._add(data)
                return []
            data = b"".join((*self._kept, data))
            self._kept = []
        commands: list[Command] = []
        try:
            start = take(data) if take is not None else 0
            end = self._read_frames(data, start, commands)
        except MalformedFrame as error:
            error.before = commands
            raise
        if end < len(data):
            self._keep(data[end:])
        return commands

    def _read_frames(self, data: bytes, at: int, commands: list[Command]) -> int:
        """Append the commands that are complete; where the rest begins."""
        end = len(data)
        while end - at >= 8:
            size, word = _PREFIX.unpack_from(data, at)
            header_at = at + 8
            header_end = header_at + (word & 0xFFFFFF)
            frame_end = at + 4 + size
            if size > self._frame_bytes_max or header_end > frame_end:
                raise MalformedFrame(
                    f"a frame of {size} bytes with a header of {word & 0xFFFFFF}; "
                    f"{self._frame_bytes_max} are allowed"
                )
            if frame_end > end:
                break
            header, body = data[header_at:header_end], data[header_end:frame_end]
            commands.append(_decode(word >> 24, header, body))
            at = frame_end
        return at

    def _keep(self, rest: bytes) -> None:
        self._kept = [rest]
        wanted = 4 + int.from_bytes(rest[:4], "big") if len(rest) >= 8 else 8
        self._missing = wanted - len(rest)

    def _add(self, data: bytes) -> None:
        """Small pieces go together: each by itself would take more memory than it has bytes."""
        if len(data) >= _PIECE_BYTES_MIN:
            self._kept.append(data)
        elif isinstance(last := self._kept[-1], bytearray):
            last += data
        else:
            self._kept.append(bytearray(data))


def _decode(kind: int, header: bytes, body: bytes) -> Command:
    if kind == HeaderKind.JSON:
        return _decode_json(header, body)
    if kind == HeaderKind.BINARY:
        return _decode_binary(header, body)
    raise MalformedFrame(f"a header of unknown kind {kind}")


_head_decoder = msgspec.json.Decoder(_JsonHead, strict=False)


def _decode_json(header: bytes, body: bytes) -> Command:
    try:
        head = _head_decoder.decode(header)
    except _UNREADABLE as error:
        raise MalformedFrame(f"a JSON header that cannot be read: {error}") from None
    language = Language.of(head.language or "")
    return Command(
        head.code, head.opaque, head.flag, language, head.version, head.remark,
        head.extFields, body, HeaderKind.JSON,
    )  # fmt: skip


def _decode_binary(header: bytes, body: bytes) -> Command:
    try:
        code, language, version, opaque, flag, remark_size = _BINARY_HEAD.unpack_from(header)
        at = _BINARY_HEAD.size
        remark, at = _take(header, at, remark_size)
        (fields_size,) = _INT.unpack_from(header, at)
        fields = _binary_fields(header, at + 4, at + 4 + fields_size)
    except (struct.error, ValueError) as error:  # of the latter kind is UnicodeDecodeError
        raise MalformedFrame(f"a binary header that cannot be read: {error}") from None
    speaker = _LANGUAGES.get(language, Language.OTHER)
    return Command(
        code, opaque, flag, speaker, version, remark or None, fields, body, HeaderKind.BINARY
    )


def _binary_fields(header: bytes, at: int, end: int) -> dict[str, str]:
    if end > len(header) or end < at:
        raise ValueError("its fields do not fit")
    fields = {}
    while at < end:
        (size,) = _SHORT.unpack_from(header, at)
        name, at = _take(header, at + 2, size)
        (size,) = _INT.unpack_from(header, at)
        value, at = _take(header, at + 4, size)
        if at > end:
            raise ValueError("a field does not fit")
        if value:  # RocketMQ reads an empty text as absent.
            fields[name] = value
    return fields


def _take(header: bytes, at: int, size: int) -> tuple[str, int]:
    if size < 0 or at + size > len(header):
        raise ValueError("a text does not fit")
    return header[at : at + size].decode(), at + size


_json_encoder = msgspec.json.Encoder()


def _json_header(
    code: int, opaque: int, flag: int, remark: str | None, fields: Mapping[str, str]
) -> bytes:
    head: dict[str, Any] = {
        "code": code,
        "flag": flag,
        "language": "PYTHON",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": PROTOCOL_VERSION,
    }
    if remark is not None:
        head["remark"] = remark
    if fields:
        head["extFields"] = fields
    return _json_encoder.encode(head)


def _binary_header(
    code: int, opaque: int, flag: int, remark: str | None, fields: Mapping[str, str]
) -> bytes:
    said = (remark or "").encode()
    pieces = [
        _BINARY_HEAD.pack(
            _low_16_bits(code), Language.PYTHON, PROTOCOL_VERSION, opaque, flag, len(said)
        ),
        said,
        b"",
    ]
    for name, value in fields.items():
        name_bytes, value_bytes = name.encode(), value.encode()
        pieces += (
            _SHORT.pack(len(name_bytes)), name_bytes, _INT.pack(len(value_bytes)), value_bytes
        )  # fmt: skip
    pieces[2] = _INT.pack(sum(map(len, pieces[3:])))
    return b"".join(pieces)


def _low_16_bits(code: int) -> int:
    """Codes over 32767 do not fit into the binary header; RocketMQ cuts them."""
    return (code & 0xFFFF) - (0x10000 if code & 0x8000 else 0)


def _frame(kind: HeaderKind, header: bytes, body: Body) -> list[bytes]:
    header_size = len(header)
    if header_size > _HEADER_BYTES_MAX:
        raise ProtocolError(f"a header of {header_size} bytes; {_HEADER_BYTES_MAX} are possible")
    word = kind << 24 | header_size
    if isinstance(body, bytes):
        return [_PREFIX.pack(4 + header_size + len(body), word) + header, body]
    pieces = cast("list[bytes]", list(body))
    size = 4 + header_size + sum(map(len, pieces))
    return [_PREFIX.pack(size, word) + header, *pieces]


@functools.cache
def _decoder(kind: type[Any]) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind, strict=False)


def as_text(value: object) -> str:
    """A value as header fields carry it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
