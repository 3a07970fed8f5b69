"""What a broker says about itself in numbers, under the names and in the forms of RocketMQ's tools.

What is not measured here (latencies, queues of thread pools that do not exist) is given as 0, since
tools expect to find it.
"""

import math
import shutil

from cometmq.protocol.admin_headers import StatsFields
from cometmq.protocol.codes import (
    PROTOCOL_VERSION,
    PROTOCOL_VERSION_NAME,
    RequestCode,
    ResponseCode,
)
from cometmq.protocol.command import Command, Response
from cometmq.transport.connection import Connection, Handlers, Refusal

from ..bodies import json_response
from ..context import Context
from ..delays import Delays
from ..inbox import Inbox
from ..stats import Meter
from ..topics import SCHEDULE_TOPIC

_RATES_OVER_MS = (10_000, 60_000, 600_000)
_OF_BROKER = "BROKER_"
_LATENCIES = (
    "<=0ms", "0~10ms", "10~50ms", "50~100ms", "100~200ms", "200~500ms", "500ms~1s", "1~2s", "2~3s",
    "3~4s", "4~5s", "5~10s", "10s~",
)  # fmt: skip
_NOT_MEASURED = {
    "putMessageEntireTimeMax": "0",
    "putMessageDistributeTime": "".join(f"[{latency}]:0 " for latency in _LATENCIES),
    "getMessageEntireTimeMax": "0",
    "putLatency99": "0.00",
    "putLatency999": "0.00",
    "dispatchMaxBuffer": "0",
    "pageCacheLockTimeMills": "0",
    "startAcceptSendRequestTimeStamp": "0",
    "remainHowManyDataToCommit": "0 B",
    "remainTransientStoreBufferNumbs": "0",
    "timerReadBehind": "0",
    "timerOffsetBehind": "0",
    "timerCongestNum": "0",
    "timerEnqueueTps": "0.0",
    "timerDequeueTps": "0.0",
    "EndTransactionQueueSize": "0",
    "EndTransactionThreadPoolQueueCapacity": "0",
}


class Figures:
    def __init__(self, context: Context, inbox: Inbox, delays: Delays) -> None:
        self._context = context
        self._inbox = inbox
        self._delays = delays

    def handlers(self) -> Handlers:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime_info,
            RequestCode.VIEW_BROKER_STATS_DATA: self.stats_data,
        }

    def runtime_info(self, _: Connection, __: Command) -> Response:
        table = {
            **_NOT_MEASURED,
            **self._life(),
            **self._traffic(),
            **self._totals(),
            **self._disk(),
            **self._waiting(),
            **self._delayed(),
            **self._conflicts(),
            **self._context.archive.figures(),
        }
        return json_response({"table": table})

    def stats_data(self, _: Connection, command: Command) -> Response:
        fields = command.fields(StatsFields)
        # RocketMQ keeps the figures of a whole broker under the cluster's name.
        of_broker = fields.stats_name.startswith(_OF_BROKER)
        meter = self._context.stats.find(fields.stats_name, "" if of_broker else fields.stats_key)
        if meter is None:
            raise Refusal(
                ResponseCode.SYSTEM_ERROR,
                f"The stats <{fields.stats_name}> <{fields.stats_key}> not exist",
            )
        now_ms = self._context.clock.now_ms()
        return json_response(
            {
                "statsMinute": meter.minute(now_ms),
                "statsHour": meter.hour(now_ms),
                "statsDay": meter.day(now_ms),
            }
        )

    # -- parts of the runtime info ---------------------------------------------------------------

    def _conflicts(self) -> dict[str, str]:
        """Groups whose members subscribe differently; no key when there are none."""
        return {
            f"subscriptionConflicts_{group.name}": ", ".join(group.conflicts)
            for group in self._context.clients.consumer_groups()
            if group.conflicts
        }

    def _life(self) -> dict[str, str]:
        context = self._context
        return {
            "brokerActive": "true",
            "brokerVersion": str(PROTOCOL_VERSION),
            "brokerVersionDesc": PROTOCOL_VERSION_NAME,
            "bootTimestamp": str(context.started_ms),
            "runtime": _duration(context.clock.now_ms() - context.started_ms),
        }

    def _traffic(self) -> dict[str, str]:
        stats = self._context.stats
        return {
            "putTps": self._rates(stats.put),
            "getFoundTps": self._rates(stats.pulls_found),
            "getMissTps": self._rates(stats.pulls_missed),
            "getTotalTps": self._rates(stats.pulls_found, stats.pulls_missed),
            "getTransferredTps": self._rates(stats.got),
        }

    def _rates(self, *meters: Meter) -> str:
        now_ms = self._context.clock.now_ms()
        return " ".join(
            str(sum(meter.rate(now_ms, back_ms) for meter in meters)) for back_ms in _RATES_OVER_MS
        )

    def _totals(self) -> dict[str, str]:
        stats = self._context.stats
        put, put_bytes = stats.put.total, stats.put_bytes.total
        return {
            "putMessageTimesTotal": str(put),
            "putMessageFailedTimes": str(stats.put_failed.total),
            "putMessageSizeTotal": str(put_bytes),
            "putMessageAverageSize": str(put_bytes / max(put, 1)),
            "msgPutTotalYesterdayMorning": str(stats.put_mornings.yesterday),
            "msgPutTotalTodayMorning": str(stats.put_mornings.today),
            "msgPutTotalTodayNow": str(put),
            "msgGetTotalYesterdayMorning": str(stats.got_mornings.yesterday),
            "msgGetTotalTodayMorning": str(stats.got_mornings.today),
            "msgGetTotalTodayNow": str(stats.got.total),
        }

    def _disk(self) -> dict[str, str]:
        store = self._context.store
        used = str(round(store.disk_used_percent() / 100, 2))
        usage = shutil.disk_usage(store.config.root)
        first = store.message_at(store.commit_log.start_offset)
        return {
            "commitLogMinOffset": str(store.commit_log.start_offset),
            "commitLogMaxOffset": str(store.appended.value),
            "commitLogDiskRatio": used,
            f"commitLogDiskRatio_{store.config.commit_log_dir}": used,
            "consumeQueueDiskRatio": used,
            "commitLogDirCapacity": f"Total : {_bytes(usage.total)}, Free : {_bytes(usage.free)}.",
            "earliestMessageTimeStamp": str(first.store_timestamp if first is not None else -1),
            "dispatchBehindBytes": str(store.appended.value - store.dispatched.value),
            "remainHowManyDataToFlush": _bytes(store.appended.value - store.flushed.value),
        }

    def _waiting(self) -> dict[str, str]:
        """RocketMQ's queues before its thread pools. Ours are the sends that wait for the disk;
        a pull that waits for messages waits in none of them there."""
        config = self._context.config
        capacities = {"send": config.sends_waiting_max, "pull": config.pulls_held_max}
        table = {}
        for kind in ("send", "pull", "litePull", "query", "ack"):
            table[f"{kind}ThreadPoolQueueSize"] = "0"
            table[f"{kind}ThreadPoolQueueCapacity"] = str(capacities.get(kind, 0))
            table[f"{kind}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        table["sendThreadPoolQueueSize"] = str(self._inbox.waiting)
        return table

    def _delayed(self) -> dict[str, str]:
        """Of every delay level that was used: what is delivered next, and where its queue ends."""
        store = self._context.store
        levels = range(1, len(store.config.delays_ms()) + 1)
        ends = {level: store.max_offset(SCHEDULE_TOPIC, level - 1) for level in levels}
        return {
            f"scheduleMessageOffset_{level}": f"{self._delays.next_offset(level)},{end}"
            for level, end in ends.items()
            if end
        }


def _duration(milliseconds: int) -> str:
    minutes, seconds = divmod(max(milliseconds, 0) // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    return f"[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]"


def _bytes(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    power = int(math.log(count, 1024))
    return f"{count / 1024**power:.1f} {'KMGTPE'[power - 1]}iB"
