"""Where tasks leave files that are not of the lake yet.

    _staging/<query>/<batch>/<name of its own>

Every attempt of a task has names of its own, so attempts cannot disturb one another. What a batch
did not take is thrown away once the batch is done: it is of attempts that failed or were killed.
"""

import logging
import uuid
from typing import Final

from .place import Place

log = logging.getLogger(__name__)
_ROOT: Final = "_staging"


def staged_path(query: str, batch: str) -> str:
    """Not called Parquet, so that no search for such files finds it."""
    return f"{_ROOT}/{query}/{batch}/{uuid.uuid4().hex}.staged"


def sweep(place: Place, query: str, batch: int) -> None:
    """Throw away what batches up to this one left behind; or the next batch does. An attempt that
    nobody waits for may still be writing there, which is no failure of the batch."""
    for name in place.listed(f"{_ROOT}/{query}"):
        if name.isdigit() and int(name) <= batch:
            try:
                place.remove(f"{_ROOT}/{query}/{name}")
            except OSError as error:
                log.warning("%s is not tidied up yet: %s", place.url, error)
