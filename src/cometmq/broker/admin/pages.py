"""Tables that are too long for one answer are given page by page, in the order of their names.

A reader tells which version of the table its last page came from. If that is not the version of
now it gets the first page again, since places may have shifted.
"""

from collections.abc import Iterable

import msgspec

from cometmq.protocol.data_version import DataVersion

PAGE_MAX = 2000


def page(
    names: Iterable[str],
    version: DataVersion,
    *,
    start: int | None,
    count: int | None,
    seen: str | None,
) -> list[str]:
    """The names of one page; all of them for a reader that knows of no pages."""
    ordered = sorted(names)
    if start is None and count is None and seen is None:
        return ordered
    first = max(start or 0, 0) if _is_current(seen, version) else 0
    size = PAGE_MAX if count is None else max(0, min(count, PAGE_MAX))
    return ordered[first : first + size]


def _is_current(seen: str | None, version: DataVersion) -> bool:
    if not seen:
        return False
    try:
        return msgspec.json.decode(seen, type=DataVersion, strict=False) == version
    except msgspec.MsgspecError:
        return False
