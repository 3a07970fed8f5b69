"""What a master does by itself, and no slave: deliver what is due, and ask about transactions.

All of it begins where files and log say. So a broker that becomes master has new duties, and one
that is master no more lets them go.
"""

from collections.abc import Callable, Iterable

import msgspec

from cometmq.store.config_file import ConfigFile
from cometmq.store.disk import Disk
from cometmq.store.errors import StoreFailed

from .clockwork import Clockwork
from .context import Context
from .delays import DelayProgress, Delays
from .inbox import Inbox
from .timers.timers import Timers
from .transactions.transactions import Transactions


class Duties:
    def __init__(
        self,
        context: Context,
        inbox: Inbox,
        disk: Disk,
        on_failure: Callable[[StoreFailed], None] | None,
    ) -> None:
        self._context = context
        self._clockwork = Clockwork()
        self._is_active = False

        def file(name: str) -> ConfigFile:
            return config_file(context, disk, name)

        self.delays = Delays(context.store, inbox, context.clock, file("delayOffset"))
        self.transactions = Transactions(context, inbox, file("transactionChecks"))
        has_timers = context.config.timers and context.is_master
        self.timers = Timers(context, inbox, disk, on_failure) if has_timers else None

    def start(self) -> None:
        config, every = self._context.config, self._clockwork.every
        self._is_active = True
        self.delays.start()
        self.transactions.start()
        if self.timers is not None:
            self.timers.start()
            every(config.timer_save_interval_ms / 1000, self.timers.save_soon)
        every(config.delay_save_interval_ms / 1000, self.delays.save)

    async def stop(self) -> None:
        """Begin nothing more."""
        self._is_active = False
        self._clockwork.stop()
        self.delays.stop()
        self.transactions.stop()
        if self.timers is not None:
            await self.timers.stop()

    def abandon(self) -> None:
        """Let go of files as they are, after `stop`."""
        if self.timers is not None:
            self.timers.abandon()

    def arrived(self, queues: Iterable[bytes]) -> None:
        """These queues got messages."""
        if self._is_active:
            self.delays.arrived(queues)
            if self.timers is not None:
                self.timers.arrived(queues)

    def poke(self) -> None:
        """The clock was moved: look at once for what has become due."""
        if self._is_active:
            self.delays.poke()
            self.transactions.look()
            if self.timers is not None:
                self.timers.poke()

    def progress(self) -> tuple[dict[int, int], int]:
        """What changes when anything is delivered or comes to wait."""
        waiting = self.timers.waiting if self.timers is not None else 0
        return self.delays.now().offset_table, waiting

    def save_offsets(self) -> None:
        """How far transactions are, which stands among the offsets of consumers."""
        if self._context.is_master:
            self.transactions.save()

    def finish(self) -> None:
        """The last thing to do before the store is closed."""
        if self._context.is_master:
            self.delays.save()
        if self.timers is not None:
            self.timers.finish()


def config_file(context: Context, disk: Disk, name: str) -> ConfigFile:
    return ConfigFile(context.store.config.root / "config" / f"{name}.json", disk)


def keep_delays(context: Context, disk: Disk, told: DelayProgress) -> None:
    """Put the progress of another broker's delays where ours begin."""
    config_file(context, disk, "delayOffset").save(msgspec.to_builtins(told, str_keys=True))
