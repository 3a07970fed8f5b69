"""Where an example runs: at the NameServer given on its command line, or at a broker of its own."""

import contextlib
import sys
from collections.abc import Iterator

from cometmq.testing import EmbeddedBroker


@contextlib.contextmanager
def namesrv(**settings: object) -> Iterator[str]:
    """The NameServer's address. `settings` are those of a broker of one's own, in RocketMQ's names;
    at a cluster that is given they must have been made."""
    if len(sys.argv) > 1:
        yield sys.argv[1]
    else:
        with EmbeddedBroker(in_memory=True, settings=settings) as broker:
            yield broker.namesrv
