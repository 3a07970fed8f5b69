"""Messages of a lake, a store's files or a topic sent again: `replay("127.0.0.1:9876", lake=…)`.

With a checkpoint a replay that was stopped or killed goes on where it was, and every message is
sent once: of the step that was under way, the target itself tells what is there. Without one, who
runs it again sends everything again. Order inside of each source queue is kept; every message has
where it came from as property REPLAYED_FROM.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

from cometmq.client.blocking import Admin
from cometmq.protocol.errors import IllegalMessage
from cometmq.protocol.names import check_topic

from ..connection import CONNECTION, cluster_of
from ..errors import BadOption, NotThere
from ..log.files import files_at, log_segments
from .failures import plainly
from .lake.place import Place
from .replay_checkpoint import Checkpoint, CheckpointDirectory, checkpoint_directory
from .replay_plan import mark
from .replay_run import Replayed, Run
from .replay_sources import Choice, LakeSource, Source, StoreSource, TopicSource
from .sessions import when_needed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from .sessions import Given

READING: Final = ("tolerateDamage", "failOnDataLoss")
"""Options of the log reader that a replay of a store hands over."""
SPECULATION: Final = "spark.speculation"
_PATTERN: Final = frozenset("*?[{")
"""Signs by which Spark takes a path for many."""


def replay(
    namesrv: str,
    *,
    lake: str = "",
    store: str = "",
    source_namesrv: str = "",
    to: str = "",
    choice: Choice = Choice(),  # noqa: B008 - it cannot be changed
    keep_queues: bool = False,
    rate: float | None = None,
    checkpoint: str = "",
    dry_run: bool = False,
    options: Mapping[str, str] | None = None,
    spark: "Given" = None,
    on_progress: Callable[[Replayed], object] = lambda _: None,
) -> Replayed:
    """Send messages again that a `lake` (or any directory of Parquet with such columns), a broker's
    `store` directory, or the chosen topics of a cluster (`source_namesrv`, else the same) have.

    They go `to` a topic, or to those of their own names; from each source queue to one queue there,
    with `keep_queues` to that of the same number. `rate` is messages a second, at most.
    `checkpoint` is a directory, in which the replay keeps how far it is. `dry_run` counts and shows
    some. `options` say how to reach the clusters, and of a store what to do about damage and loss.
    Errors are those of `cometmq.spark.errors`.
    """
    given = options or {}
    _check(namesrv, lake, store, source_namesrv, to, choice, rate, given)
    reading = {name: value for name, value in given.items() if name in READING}
    how = {name: value for name, value in given.items() if name not in READING}
    target = {**how, "namesrvAddr": namesrv}
    with plainly():
        asked = mark((namesrv, lake, store, source_namesrv, to, choice.asked(), keep_queues))
        with Admin(cluster_of(target)) as admin, checkpoint_directory(checkpoint) as kept:
            at = _kept_plan(kept, asked)
            if at is not None:
                choice = choice.of_times(at.plan.since_ms, at.plan.until_ms)
            if at is None:
                own = () if lake or store or source_namesrv else choice.topics
                _check_there(lake, store, (*own, to), admin)
            running = when_needed(spark, "cometmq-replay")()
            _check_session(running)
            there = {**how, "namesrvAddr": source_namesrv or namesrv}
            source = _source(running, lake, store, there, choice, reading)
            run = Run(running, source, target, admin, kept, on_progress)
            if at is None:
                at = run.plan(asked, choice, to, rate, keep_queues=keep_queues)
            return run.shown(at) if dry_run else run.run(at, rate)


def _source(
    spark: "SparkSession",
    lake: str,
    store: str,
    cluster: Mapping[str, str],
    choice: Choice,
    reading: Mapping[str, str],
) -> Source:
    if lake:
        return LakeSource(spark, lake, choice)
    if store:
        return StoreSource(spark, store, choice, reading)
    return TopicSource(spark, cluster, choice)


def _kept_plan(kept: CheckpointDirectory | None, asked: str) -> Checkpoint | None:
    """That of an earlier run. BadOption when it is of another replay."""
    at = kept.load() if kept is not None else None
    if at is not None and at.plan.asked != asked:
        raise BadOption(
            "checkpoint: it is of another replay (other source, target or choice): ask for "
            "the same, or take another directory"
        )
    return at


def _check_there(lake: str, store: str, topics: Iterable[str], admin: Admin) -> None:
    """What can be told before Spark starts. `topics` are those of the target's cluster, if any."""
    if store:
        log_segments(files_at(store))
    if lake and _PATTERN.isdisjoint(lake) and (place := Place(lake)).is_local and not place.has(""):
        raise NotThere(f"there is no {lake}")
    known = admin.topics.names(internal=True)
    if missing := [topic for topic in topics if topic and topic not in known]:
        raise NotThere(f"there is no topic {missing[0]}: create it first")


def _check_session(spark: "SparkSession") -> None:
    if (spark.conf.get(SPECULATION, "false") or "").lower() == "true":
        raise BadOption(
            f"{SPECULATION}: two attempts at a task at once would send its messages twice; set it "
            "to false for a replay"
        )


def _is_same_cluster(namesrv: str, other: str) -> bool:
    """As far as their addresses tell."""
    one, two = ({part.strip() for part in text.split(";")} for text in (namesrv, other))
    return not one.isdisjoint(two - {""})


def _check(
    namesrv: str,
    lake: str,
    store: str,
    source_namesrv: str,
    to: str,
    choice: Choice,
    rate: float | None,
    options: Mapping[str, str],
) -> None:
    if sum(map(bool, (lake, store, source_namesrv))) > 1:
        raise BadOption("lake, store and source_namesrv exclude each other: name one source")
    is_own = not (lake or store) and _is_same_cluster(namesrv, source_namesrv or namesrv)
    if is_own and to in ("", *choice.topics):
        raise BadOption("a topic would be replayed into itself: name another one as target")
    if not (lake or store or choice.topics):
        raise BadOption("name the topics to replay")
    try:
        if to:
            check_topic(to)
    except IllegalMessage as error:
        raise BadOption(str(error)) from None
    if rate is not None and not 0 < rate < math.inf:
        raise BadOption("rate: more than 0 messages a second are possible, and not endlessly many")
    possible = (*CONNECTION[1:], *(READING if store else ()))
    wrong = [name for name in options if name not in possible]
    if wrong:
        raise BadOption(f"{wrong[0]}: a replay takes {', '.join(possible)}")
