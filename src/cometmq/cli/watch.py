"""Where Prometheus and probes may look at a server that runs here, for as long as it runs."""

import asyncio
from types import TracebackType
from typing import Self

from cometmq.observed import MetricsExporter, Observed
from cometmq.web.endpoint import Endpoint
from cometmq.web.pages import Observable, pages

from .serving import Reread, on_hangup, say_ready


class Watch:
    """The endpoint for Prometheus and probes, if the settings want one. There while entered."""

    def __init__(self, config: Observed, bind_address: str, *servers: Observable) -> None:
        self._config = config
        self._host = config.metrics_host or bind_address
        self._endpoint = Endpoint(pages(servers))
        self.address = ""
        """Where it is; empty when there is none."""

    async def __aenter__(self) -> Self:
        """OSError if its address is taken."""
        if self._config.metrics_exporter is MetricsExporter.DISABLE:
            return self
        try:
            bound = await self._endpoint.listen(self._host, self._config.metrics_port)
        except OSError as error:
            raise OSError(
                f"no metrics at {self._host}:{self._config.metrics_port}: {error}"
            ) from None
        self.address = f"http://{bound}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._endpoint.stop()


async def serve_until(
    ended: asyncio.Event, ready: str, watch: Watch, reread: Reread | None = None
) -> None:
    """Say that a server is ready, and leave it to itself until the end. SIGHUP reads its settings
    again, if they came from a file."""
    async with watch:
        if reread is not None:
            on_hangup(reread)
        say_ready(ready, watch.address)
        await ended.wait()
