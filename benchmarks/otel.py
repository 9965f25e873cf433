"""The cost of an OpenTelemetry instrument beside ``record``: the same recordings, made in turns.

A device records a number, once by ``client.record``, once by a histogram that feeds the same
metric, and by one that finds a category's value, or a segment, among its attributes. *Durable* is a
recording in the state file, *in memory* one with ``NO_LIFETIME_BOUND``, *refused* one in a period
that is full. The limit is 1.2 times ``record`` for what is recorded. ``client.count`` of a measure
is to take at most .6 of a durable recording.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path

from benchmarks.harness import Table, race
from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from clientsdk.otel import SottoMeterProvider
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

LIMIT, COUNT_LIMIT = 1.2, 0.6
PLAN = """\
collector: bench.example
plan: instruments
version: 1
owner: owner@bench.example
expires: 2099-12-31
period: 7d
ceilings: {{period: 1000000, lifetime: 1000000}}
resolution: 1h
{segments}
metrics:
  took:
    {{type: number, range: [0, 5], unit: s, outside: clip, window: 28d, ladder: &ladder
     [{{epsilon: 0.5}}, {{epsilon: 1, after: 1d}}, {{epsilon: 2, after: 7d}}],
     repeat: {{every: {limit}}}, otel: {{instrument: http.client.request.duration}}}}
  status:
    {{type: category, domain: ["200", "404"], outside: other, window: 28d, ladder: *ladder,
     repeat: {{every: {limit}}}, otel: {{instrument: http.client.calls, attribute: status}}}}
"""
MEASURE = """\
  exports:
    {type: ordinal, edges: [0, 1, 2, 5, 10, 50], measure: {count: export}, stored: true,
     window: 7d, ladder: [{epsilon: 2}]}
"""
ATTRIBUTES: dict[str, str | int] = {
    "http.request.method": "GET",
    "server.address": "127.0.0.1",
    "status": 200,
}


def _client(plan: CompiledPlan, state: Path | None, number: int) -> Client:
    file = state / f"{number}.db" if state else NO_LIFETIME_BOUND
    client = Client(plan, state=file, publisher=MemoryPublisher(), background=False)
    client.give_consent()
    return client


def _contenders(state: Path | None, limit: int, segments: str) -> dict[str, Callable[[], object]]:
    plan = parse_plan(PLAN.format(limit=limit, segments=segments)).compile()
    one, two, three, four = (_client(plan, state, number) for number in range(4))
    histogram = SottoMeterProvider(two).get_meter("a").create_histogram
    amount = histogram("http.client.request.duration", "s").record
    calls = SottoMeterProvider(four).get_meter("a").create_counter("http.client.calls").add
    return {
        "record, a number": lambda: one.record("took", 0.25),
        "histogram, a number": lambda: amount(0.25, ATTRIBUTES),
        "record, a category": lambda: three.record("status", "200"),
        "counter, a category": lambda: calls(1, ATTRIBUTES),
    }


def _increments(state: Path) -> dict[str, Callable[[], object]]:
    plan = parse_plan(PLAN.format(limit=200_000, segments="") + MEASURE).compile()
    client = _client(plan, state, 0)
    return {
        "record": lambda: client.record("status", "200"),
        "count": lambda: client.count("export"),
    }


def main() -> None:
    """Print microseconds a recording, and how many times those of ``record`` they are."""
    warnings.simplefilter("ignore")
    table = Table(f"{'what':<33}<", "record, µs", "the other, µs", "ratio", "limit")
    segmented = "segments: {http.request.method: [GET, POST]}"
    with tempfile.TemporaryDirectory() as folder:
        for what, stored, limit, segments in (
            ("durable", True, 200_000, ""),
            ("durable, in a segment", True, 200_000, segmented),
            ("in memory", False, 200_000, ""),
            ("refused", False, 1, ""),
        ):
            state = Path(folder, what) if stored else None
            if state:
                state.mkdir()
            of_number, by_number, *categories = race(_contenders(state, limit, segments)).values()
            most = LIMIT if limit > 1 else None
            _row(table, f"a number, {what}", (of_number, by_number), most)
            _row(table, f"a category, {what}", categories, most)
        _row(table, "count, durable", race(_increments(Path(folder))).values(), COUNT_LIMIT)


def _row(table: Table, what: str, seconds: Iterable[float], most: float | None) -> None:
    record, other = seconds
    ratio = other / record
    verdict = "" if most is None else f"{most}: {'met' if ratio <= most else 'NOT MET'}"
    table.row(what, f"{record * 1e6:.2f}", f"{other * 1e6:.2f}", f"{ratio:.2f}", verdict)


if __name__ == "__main__":
    main()
