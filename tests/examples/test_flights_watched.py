"""Watched devices: which row each report was made of, and what a network does to messages."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial

import pytest
from test_replay import HOUR, PLAN, WEEK, messages, read, rows, table

from examples.flights.watched import WatchedFleet
from sotto.plan.compile import parse_plan
from sotto_cli.simulation.playback import Replay
from sotto_cli.simulation.table import Columns

COLOURS = parse_plan(PLAN).compile()
COLUMNS = Columns.of_plan(COLOURS, "who", "when")


class Late:
    """A network that brings every message an hour late, and twice."""

    def carry(self, device, sent, message):
        return [(sent + HOUR, message), (sent + 2 * HOUR, message)]


LATE = partial(WatchedFleet, network=Late())


def test_the_rows_that_stayed_are_named(tmp_path):
    before = [metric.mechanism for metric in COLOURS.metrics]
    found = read(tmp_path / "t.csv", COLOURS, table(40, 30), COLUMNS)
    played = Replay(tmp_path / "log", processes=1, fleet=LATE).run(COLOURS, found)
    assert all(m.mechanism is old for m, old in zip(COLOURS.metrics, before, strict=True))
    time = dict(zip(found.row.tolist(), found.time.tolist(), strict=True))
    by_key = {(k.metric, k.device, k.period): k.row for k in played.kept}
    assert len(by_key) == len(played.kept)
    first = {}
    for device in range(found.devices):
        for entry in range(found.starts[device], found.starts[device + 1]):
            key = device, int(found.time[entry]) // WEEK
            first.setdefault(key, int(found.row[entry]))
    for metric in COLOURS.metrics:
        assert {key[1:] for key in by_key if key[0] == metric.name} == set(first)
    for (metric, device, period), row in by_key.items():
        if metric != "size":
            assert row == first[device, period]
        assert time[row] // WEEK == period
    places = Counter(
        row - first[device, period]
        for (metric, device, period), row in by_key.items()
        if metric == "size"
    )
    # Each of eleven or more rows is kept as often: one place alone less than once in 11**79.
    assert len(places) > 1
    sent = {(metric, row.chain): row.event for _, metric, row in rows(tmp_path / "log")}
    for metric in COLOURS.metrics:
        events = Counter(event for (index, _), event in sent.items() if index == metric.index)
        kept = Counter(
            COLOURS.truncate(time[k.row]) for k in played.kept if k.metric == metric.name
        )
        assert events == kept


@pytest.mark.real_randomness
def test_a_network_carries_the_messages_of_each_process(tmp_path):
    found = read(tmp_path / "t.csv", COLOURS, table(5, 20), COLUMNS)
    played = Replay(tmp_path / "log", processes=2, fleet=LATE).run(COLOURS, found)
    times = defaultdict(list)
    for append, body in messages(tmp_path / "log"):
        times[body].append(append)
    assert {max(each) - min(each) for each in times.values()} == {HOUR}
    assert {len(each) for each in times.values()} == {2}
    assert played.messages == 2 * len(times)
    assert len(played.networks) == 2
    assert {kept.row for kept in played.kept if kept.metric == "colour"} >= {0, 20, 40, 60, 80}
