"""`cometmq store`: look after the files of a broker that is not running."""

import argparse
import dataclasses
import shutil
import sys
from pathlib import Path
from typing import Any

import msgspec

from cometmq.protocol.scan import split_queue_key
from cometmq.store.config import StoreConfig
from cometmq.store.message_store import MessageStore
from cometmq.store.recovery import RecoveryReport


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    recover = actions.add_parser(
        "recover",
        help="check a store, repair what a crash left, and say what is in it",
        description="Verifies the log, cuts a torn tail, and brings queues and index in line. "
        "Works on stores of CometMQ and of Apache RocketMQ. The broker must not be running.",
    )
    recover.add_argument("directory", type=Path, help="the store's root directory")
    recover.add_argument(
        "--rebuild", action="store_true", help="make ConsumeQueues and index anew from the log"
    )
    defaults = StoreConfig(root=Path())
    for key, default in (
        ("--max-hash-slot-num", defaults.index_slots),
        ("--max-index-num", defaults.index_items),
    ):
        recover.add_argument(
            key, type=int, default=default, metavar="N", help=f"as the broker has it ({default})"
        )
    recover.add_argument("-o", "--output", choices=("table", "json"), default="table")
    recover.set_defaults(run=run_recover)


def run_recover(options: argparse.Namespace) -> int:
    root: Path = options.directory
    if not (root / "commitlog").is_dir():
        sys.stderr.write(f"cometmq: {root} is no store: it has no directory `commitlog`\n")
        return 2
    config = config_of(root, options.max_hash_slot_num, options.max_index_num)
    store = MessageStore(config)
    if options.rebuild:
        # The lock first: nobody else may be at work while files go away.
        with store:
            pass
        for directory in (config.consume_queue_dir, config.index_dir):
            shutil.rmtree(directory, ignore_errors=True)
        store = MessageStore(config)
    report = store.open()
    try:
        facts = {**msgspec.to_builtins(report), "queues": queue_facts(store)}
    finally:
        store.close()
    if options.output == "json":
        sys.stdout.write(msgspec.json.encode(facts).decode() + "\n")
    else:
        sys.stdout.write(as_table(report, facts["queues"]))
    return 1 if report.damaged or report.lost else 0


def config_of(root: Path, slots: int, items: int) -> StoreConfig:
    """The settings that the files themselves tell; the others as by default."""
    config = StoreConfig(root=root)
    return dataclasses.replace(
        config,
        commit_log_file_bytes=_first_size(config.commit_log_dir) or config.commit_log_file_bytes,
        consume_queue_file_bytes=_first_size(config.consume_queue_dir)
        or config.consume_queue_file_bytes,
        index_slots=slots,
        index_items=items,
    )


def _first_size(directory: Path) -> int:
    names = "[0-9]" * 20
    return next((path.stat().st_size for path in sorted(directory.rglob(names))), 0)


def queue_facts(store: MessageStore) -> list[dict[str, Any]]:
    facts = []
    for key, queue in sorted(store.queues):
        topic, queue_id = split_queue_key(key)
        facts.append(
            {
                "topic": topic,
                "queue": queue_id,
                "min_offset": queue.min_offset,
                "max_offset": queue.max_offset,
            }
        )
    return facts


def as_table(report: RecoveryReport, queues: list[dict[str, Any]]) -> str:
    megabytes = (report.log_end - report.log_start) / 1024**2
    lines = [
        f"last stop        {'in order' if report.clean else 'crash'}",
        f"log              {report.log_start} to {report.log_end} ({megabytes:.1f} MiB)",
        f"verified         {report.verified_bytes} bytes in {report.seconds:.2f} s",
        f"cut off          {report.cut_bytes} bytes" + (" (durable once!)" if report.lost else ""),
        f"dispatched       {report.dispatched_bytes} bytes",
        f"damaged          {len(report.damaged)} places",
    ]
    lines += [f"  {d.start} to {d.end}: {d.damage.describe()}" for d in report.damaged]
    width = max((len(q["topic"]) for q in queues), default=5)
    lines += ["", f"{'TOPIC':<{width}}  QUEUE         MIN         MAX"]
    lines += [
        f"{q['topic']:<{width}}  {q['queue']:>5}  {q['min_offset']:>10}  {q['max_offset']:>10}"
        for q in queues
    ]
    return "\n".join(lines) + "\n"
