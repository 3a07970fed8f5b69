"""What a server does when its data cannot be made durable: say so and end at once."""

import logging
import os

from .errors import StoreFailed

log = logging.getLogger(__name__)
EXIT_CODE = 74
"""EX_IOERR of sysexits.h."""


def exit_on_failure(failure: StoreFailed) -> None:
    """For `MessageStore(on_failure=…)`. No clean-up: after a failed sync the page cache may show
    data that the disk does not have, so nothing may be written on its word."""
    log.critical("stopping with exit code %d: %s", EXIT_CODE, failure)
    logging.shutdown()
    os._exit(EXIT_CODE)
