"""Settings by which operators watch a server, the same for every role: metrics and logs."""

import dataclasses
import enum
import re
from typing import Final

from .logs import LogFormat, parse_levels
from .settings import BadSetting, setting

BROKER_METRICS_PORT: Final = 5557
NAMESRV_METRICS_PORT: Final = 5558
"""RocketMQ's NameServer has no metrics; one beside the broker's, so that both fit a machine."""
_LABEL: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class MetricsExporter(enum.Enum):
    DISABLE = "DISABLE"
    PROM = "PROM"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Observed:
    metrics_exporter: MetricsExporter = setting(
        "metricsExporterType",
        MetricsExporter.DISABLE,
        "PROM answers Prometheus, and probes at /health and /ready",
    )
    metrics_host: str = setting(
        "metricsPromExporterHost", "", "address of that endpoint, if not bindAddress"
    )
    metrics_port: int = setting(
        "metricsPromExporterPort", BROKER_METRICS_PORT, "its port; 0 takes a free one"
    )
    metrics_label: str = setting(
        "metricsLabel", "", "labels that every sample gets: name:value, `,` between them"
    )
    log_format: LogFormat = setting(
        "log.format", LogFormat.TEXT, "lines of text, or a JSON object a line"
    )
    log_level: str = setting(
        "log.level",
        "WARNING",
        "from which level on is logged; more for parts of it: WARNING,cometmq.store=DEBUG",
        live=True,
    )

    def check_observed(self) -> None:
        """BadSetting for what cannot be."""
        if not 0 <= self.metrics_port <= 65535:
            raise BadSetting(f"metricsPromExporterPort={self.metrics_port}: 0 to 65535 is expected")
        self.metrics_labels()
        try:
            parse_levels(self.log_level)
        except ValueError as error:
            raise BadSetting(f"log.level={self.log_level}: {error}") from None

    def metrics_labels(self) -> dict[str, str]:
        labels = {}
        for pair in filter(None, self.metrics_label.split(",")):
            name, colon, value = pair.strip().partition(":")
            if not colon or not _LABEL.fullmatch(name):
                raise BadSetting(f"metricsLabel={self.metrics_label}: name:value is expected")
            labels[name] = value
        return labels
