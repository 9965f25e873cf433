"""Play a table back as devices with the real SDK in them, into an embedded log.

Try a plan on data that you have: what devices would send is written to --out, and sotto aggregate
and sotto estimates show what would be learnt from it. With --topic it goes to Kafka as well, or
instead; there the broker's time counts, so that a table of long ago comes late (sotto log --help).

Every distinct value of --device-column is one device, with the SDK, a store in memory and a
clock of its own that follows --time-column. Each row is recorded when its time comes: for every
metric of the plan, the cell in the column of that name (or in the one that --map gives it).
With measures each row is one use of the app, and a column is named after what the app counts or
records: of {count: export} the cells of "export" say how often it happened, or true or false, of
{max: load} those of "load" are numbers, of {furthest: ...} those of the metric's name are steps; an
empty cell adds nothing. {days: app} and {age: ...} need no column. A period is answered when it is
over, if the device has a row in it.
Values are randomized, held back and released as the plan says, and what devices send arrives in the
log at the simulated times: a device wakes to send at most once a day. A row of a top item is one
occurrence; of a constant metric the first row is what a device reports in every period in which it
has one. After its last row its clock runs on until its last level is delivered, or to --until. A
device under a plan with panels records in its turns alone, as a real one; with --ignore-panels it
records always.

The input is CSV in UTF-8 with a line of column names, or Parquet; columns that no metric has are
not read. Times are ISO 8601 (UTC unless they have an offset) or numbers of --time-unit since 1970;
a Parquet timestamp is what it says. Rows may come in any order. An empty cell is a missing value
where the plan has "missing: true"; where it has not, nothing is recorded. The columns of --segment
say what a device was, by the plan's segments; the arm of an experiment each device draws itself.

A row without a device or a time, or with too many cells or too few, is skipped, and so is a cell of
the wrong type: all others are played back. Skipped rows are counted, and named on standard error by
column and line, never by value. So are times that were read and look wrong.

Exit status: 0, everything was read; 1, the table was played back, with warnings about the input;
2, nothing was played back.

Randomness is the operating system's, and no two replays are alike. With --seed they are, to the
byte for the same --processes; others divide the same messages into other partitions. Whoever knows
the seed can undo the randomization: keep such a log as the table itself is kept.

The file of --devices joins each device of the table with its pseudonyms, and so with every report
of it in the log. It re-identifies: keep it as the table itself is kept, or do not ask for it.

examples:
  sotto replay --plan plan.yaml --input flights.csv.gz --device-column tailnum \\
               --time-column scheduled --out build/log --devices build/devices.csv
  sotto replay --plan plan.yaml --input usage.parquet --device-column user --time-column seen \\
               --time-unit s --map startup=start_ms --null NA --ignore-panels --out replayed
  sotto aggregate --plan plan.yaml --log replayed --state state && sotto estimates --state state
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from sotto.clocks import now_ms
from sotto.errors import ParameterError
from sotto.exit_status import ExitStatus
from sotto.plan.durations import duration_text
from sotto.plan.files import plan_of
from sotto_cli import options
from sotto_cli.log import send

if TYPE_CHECKING:
    from sotto.kafka.brokers import Broker
    from sotto.kafka.topics import ReportTopic


_SEEDED = (
    "warning: whoever knows the seed can undo the randomization of this log: it protects nobody. "
    "Keep it as the input is kept."
)
_REIDENTIFIES = (
    "warning: {} joins each device of the input with its pseudonyms, and so with all its reports "
    "in the log. It re-identifies: keep it as the input is kept."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = partial(options.add, parser)
    add("--plan FILE", "the collection plan (YAML, or compiled JSON)", required=True)
    add("--input FILE", ".csv, .csv.gz or .parquet", required=True)
    add("--device-column COLUMN", "what distinguishes devices", required=True)
    add("--time-column COLUMN", "when a row was recorded", required=True)
    unit = "what a time that is a number counts since 1970: s, ms, us or ns"
    add("--time-unit UNIT", unit, "ms", choices=["s", "ms", "us", "ns"])
    add("--out DIR", "the log; empty or new")
    add("--topic NAME", "send it to this topic, by its full name, when all is played back")
    options.add_broker(parser.add_mutually_exclusive_group())
    renamed = "the column of a metric, or of what is measured, by its name (may be repeated)"
    add("--map NAME=COLUMN", renamed, [], type=options.renamed, action="append")
    segment = "a segment's column (may be repeated); without one it is 'other'"
    add("--segment NAME=COLUMN", segment, [], type=options.renamed, action="append")
    null = "cells of this text count as empty, such as NA (may be repeated)"
    add("--null TEXT", null, [], action="append")
    add("--processes N", "how many play devices back", 2, type=options.whole(1, 64))
    seed = "draw from this number instead of the operating system: the log then protects nobody"
    add("--seed N", seed, type=options.whole(0))
    always = "devices answer in every period, whatever the plan's panels: to try a plan out"
    add("--ignore-panels", always)
    add("--until TIME", "stop all clocks then, delivered or not")
    ledgers = (
        "write the devices' own ledgers, to compare with the aggregator's audit; it re-identifies, "
        "so keep it as the input is kept"
    )
    add("--devices OUT.csv", ledgers, type=Path)


def run(args: argparse.Namespace) -> int:
    from tqdm import tqdm

    from sotto_cli.simulation.devices import Schedule
    from sotto_cli.simulation.playback import Replay, write_audit
    from sotto_cli.simulation.table import Columns, read_recordings

    started, target = time.perf_counter(), _target(args)
    plan = plan_of(args.plan).compiled
    named = dict(args.map), args.null, args.time_unit, dict(args.segment)
    columns = Columns.of_plan(plan, args.device_column, args.time_column, *named)
    schedule = Schedule(until=args.until, every_period=args.ignore_panels)
    for segment, _ in plan.segments:
        if segment not in dict(args.segment):
            options.warn(
                f"no column for the segment '{segment}': all devices will be 'other' "
                f"(--segment {segment}=COLUMN)"
            )
    recordings = read_recordings(args.input, plan, columns)
    for problem in recordings.problems:
        print(f"warning: {problem}", file=sys.stderr)
    times = recordings.time
    playable = len(times if args.until is None else times[times < args.until])
    if not playable:
        print(f"warning: no row of {args.input} can be played back", file=sys.stderr)
    late = int((recordings.time + plan.horizon < now_ms()).sum()) if target else 0
    if late:
        options.warn(
            f"{late:,} of {len(recordings):,} rows are older than the plan accepts reports for "
            f"({duration_text(plan.horizon)}): in the topic they come late, and do not count"
        )
    if args.seed is not None:
        print(_SEEDED, file=sys.stderr)
    rows = len(recordings)
    with tempfile.TemporaryDirectory(prefix="sotto-replay-") as folder:
        out = args.out or Path(folder)
        replay = Replay(out, schedule, args.processes, seed=args.seed)
        with tqdm(total=rows, unit=" rows", desc="replay", disable=None, file=sys.stderr) as bar:
            played = replay.run(plan, recordings, bar.update)
        if args.devices:
            write_audit(args.devices, played.audit)
            print(_REIDENTIFIES.format(args.devices), file=sys.stderr)
        print("\n".join(played.lines(plan, recordings)))
        seconds = time.perf_counter() - started
        print(f"{args.out or 'replay'}: done in {seconds:.1f} s, {rows / seconds:,.0f} rows/s")
        left = send(out, *target) if target and played.messages else 0
    return ExitStatus.found(recordings.problems or not playable or left)


def _target(args: argparse.Namespace) -> tuple[Broker, ReportTopic] | None:
    """Return the topic that takes what is played back, if one is named; it must be there."""
    if args.out is None and args.topic is None:
        raise ParameterError("--out DIR is missing, or --topic NAME with --kafka or --broker")
    if bool(args.kafka or args.broker) != bool(args.topic):
        raise ParameterError("--topic goes with --kafka or --broker")
    if args.topic is None:
        return None
    from sotto.kafka.admin import connected

    broker, topic = options.broker_of(args), options.topics_of(args.topic)[0]
    with connected(broker) as topics:
        topics.require(topic)
    return broker, topic
