"""The cost of an OpenTelemetry instrument beside ``record``: the same recordings, made in turns.

A device records a number, once by ``client.record``, once by a histogram that feeds the same
metric, and by one that finds a category's value, or a segment, among its attributes. *Durable* is a
recording in the state file, *in memory* one with ``NO_LIFETIME_BOUND``, *refused* one in a period
that is full. The limit is 1.2 times ``record`` for what is recorded.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Table, race
from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from clientsdk.otel import SottoMeterProvider
from sotto.plan.compile import parse_plan

LIMIT = 1.2
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
ATTRIBUTES: dict[str, str | int] = {
    "http.request.method": "GET",
    "server.address": "127.0.0.1",
    "status": 200,
}


def _contenders(state: Path | None, limit: int, segments: str) -> dict[str, Callable[[], object]]:
    plan = parse_plan(PLAN.format(limit=limit, segments=segments)).compile()
    clients = [
        Client(
            plan,
            state=state / f"{number}.db" if state else NO_LIFETIME_BOUND,
            publisher=MemoryPublisher(),
            background=False,
        )
        for number in range(4)
    ]
    for client in clients:
        client.give_consent()
    one, two, three, four = clients
    histogram = SottoMeterProvider(two).get_meter("a").create_histogram
    amount = histogram("http.client.request.duration", "s").record
    calls = SottoMeterProvider(four).get_meter("a").create_counter("http.client.calls").add
    return {
        "record, a number": lambda: one.record("took", 0.25),
        "histogram, a number": lambda: amount(0.25, ATTRIBUTES),
        "record, a category": lambda: three.record("status", "200"),
        "counter, a category": lambda: calls(1, ATTRIBUTES),
    }


def main() -> None:
    """Print microseconds a recording, and how many times those of ``record`` they are."""
    warnings.simplefilter("ignore")
    table = Table(f"{'what':<33}<", "record, µs", "instrument, µs", "ratio", f"at most {LIMIT}")
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
            kinds = {"a number": (of_number, by_number), "a category": (*categories,)}
            for kind, (record, instrument) in kinds.items():
                ratio = instrument / record
                verdict = "" if limit == 1 else "met" if ratio <= LIMIT else "NOT MET"
                microseconds = [f"{each * 1e6:.2f}" for each in (record, instrument)]
                table.row(f"{kind}, {what}", *microseconds, f"{ratio:.2f}", verdict)


if __name__ == "__main__":
    main()
