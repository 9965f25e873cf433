"""From messages to rows: what others make up costs no more than what it takes to decode it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from step_plans import DAY, HOUR, PERIOD, category, plan

from mechanisms.coins import shards_of
from pipelines.aggregation import decode
from pipelines.aggregation.decode import CHAINS, Parts, arrivals, parts_for, rows_of
from pipelines.aggregation.state import State
from pipelines.aggregation.step import STEP_ROWS, joined, step
from sotto.plan.registry import Registry
from sotto.wire.decode import Batch, row_dtype
from sotto.wire.format import GROUP, HEADER, MAGIC, VERSION

WIDE = 40_000
REGISTRY = Registry(
    [plan(1, 60, category("narrow", 3, 0.5), category("wide", WIDE, 0.5, mechanism="oue"))]
)
NOW = 2800 * PERIOD + 3 * DAY
PSEUDONYM = np.arange(2, dtype=np.uint64)
SHARD = int(shards_of(PSEUDONYM[None], REGISTRY.shards)[0])


def message(metric: int, events: np.ndarray) -> bytes:
    registered = REGISTRY.metrics[metric]
    width = registered.metric.mechanism.payload_width
    rows = np.zeros(len(events), row_dtype(width))
    rows["pseudonym"] = PSEUDONYM
    rows["chain"] = np.random.default_rng(0).integers(0, 2**63, (len(events), 2))
    rows["event"] = events
    run = GROUP.pack(registered.metric.index, width, len(rows))
    header = HEADER.pack(MAGIC, VERSION, 0, SHARD, 1, registered.fingerprint)
    return header + run + rows.tobytes()


def block(*messages: bytes) -> SimpleNamespace:
    lengths = np.array([len(each) for each in messages])
    return SimpleNamespace(
        buffer=b"".join(messages),
        lengths=lengths,
        offsets=np.cumsum(lengths) - lengths,
        append=np.full(len(messages), NOW, dtype=np.int64),
        corrupt=(),
    )


def test_one_wide_payload_does_not_widen_the_narrow_ones():
    narrow, wide = np.full(20_000, NOW - HOUR), np.full(3, NOW - HOUR)
    found = arrivals(block(message(0, narrow), message(1, wide), message(0, narrow)), REGISTRY, 0)
    assert sorted((len(rows), rows.payload.shape[1]) for rows in found.rows) == [
        (3, WIDE // 8),
        (40_000, 1),
    ]
    assert found.reports == 40_003


def test_steps_never_mix_widths_and_are_cut_by_bytes():
    narrow, wide = np.full(STEP_ROWS // 10, NOW - HOUR), np.full(200, NOW - HOUR)
    few = [message(0, narrow), message(1, wide)]
    parts = [rows for _ in range(20) for rows in arrivals(block(*few), REGISTRY, 0).rows]
    pieces = list(joined(parts))
    assert sum(map(len, pieces)) == 20 * (narrow.size + 200)
    sizes = [(len(rows), rows.payload.shape[1]) for rows in pieces]
    assert sorted(sizes) == [(800, WIDE // 8), (3200, WIDE // 8), (STEP_ROWS, 1), (STEP_ROWS, 1)]


def test_made_up_periods_are_dropped_before_rows_are_sorted(monkeypatch):
    sorted_rows = []
    by_place = decode._by_place

    def counted(everything, registry, parts):
        sorted_rows.append(len(everything))
        return by_place(everything, registry, parts)

    monkeypatch.setattr(decode, "_by_place", counted)
    found = arrivals(block(message(0, (np.arange(20_000) - 10_000) * PERIOD)), REGISTRY, 0)
    assert found.reports == 20_000
    # The current period and the one before are within the plan's horizon.
    assert sum(sorted_rows) == sum(map(len, found.rows)) <= 3


def test_untimely_rows_of_open_periods_are_seen():
    inside, before = NOW + 2 * HOUR, NOW - 30 * PERIOD
    found = arrivals(block(message(0, np.array([inside, before]))), REGISTRY, None)
    (rows,) = found.rows
    assert (rows.period, rows.event.tolist(), rows.countable.tolist()) == (2800, [inside], [False])
    assert sum(reject.rows for reject in found.rejects) == 2
    assert arrivals(block(message(0, np.array([inside]))), REGISTRY, 2801).rows == []


@pytest.mark.parametrize("shards", [1, 64, 65536])
def test_periods_may_be_as_far_apart_as_64_bits_allow(shards):
    events = np.array([-(2**63), 2**63 - 1, 0, -1, 2**62, 2**63 - 1])
    identifiers = np.arange(12, dtype=np.uint64).reshape(6, 2)
    batch = Batch(
        metric=0,
        level=np.zeros(6, dtype=np.uint8),
        pseudonym=identifiers,
        chain=identifiers,
        event=events,
        append=np.arange(6),
        payload=np.zeros((6, 1), dtype=np.uint8),
        cell=np.zeros(6, dtype=np.uint8),
    )
    parts = rows_of([batch], SimpleNamespace(shards=shards, period=1))
    assert sum(map(len, parts)) == 6
    for rows in parts:
        assert set(rows.event.tolist()) == {rows.period}
        assert rows.append.tolist() == sorted(rows.append.tolist())
        assert set(shards_of(rows.pseudonym, shards).tolist()) == {rows.shard}
    places = [(rows.shard, rows.period) for rows in parts]
    assert places == sorted(set(places))


def test_a_revocation_does_not_widen_what_is_rejected():
    (wide,) = arrivals(block(message(1, np.full(1, NOW - HOUR))), REGISTRY, 0).rows
    (narrow,) = arrivals(block(message(0, NOW - HOUR * np.arange(60))), REGISTRY, 0).rows
    state, _, rejects = step(State(REGISTRY, SHARD, 2800, bytes(16)), wide)
    assert len(rejects.rows) == 0
    # The second value of its chain: all that the pseudonym sent is taken back or refused.
    other = replace(narrow, chain=np.repeat(wide.chain, len(narrow), axis=0))
    state, deltas, rejects = step(state, other)
    sizes = [(len(part.rows), part.rows.payload.shape[1]) for part in rejects.parts]
    assert sizes == [(1, WIDE // 8), (60, 1)]
    assert [metric for metric, *_ in deltas] == [1]
    assert (len(rejects.rows), len(rejects.reason)) == (61, 61)


def test_many_are_placed_as_each_is():
    parts = Parts({-3: 1, 5: 8, 7: 64}, new=4)
    draw = np.random.default_rng(5)
    shards, periods = draw.integers(0, 64, 1000), draw.choice([-3, 5, 6, 7, 2**40], 1000)
    placed = parts.place(shards, periods)
    assert placed.tolist() == [
        shard % parts.of(period)
        for shard, period in zip(shards.tolist(), periods.tolist(), strict=True)
    ]
    assert len(set(placed[periods == 7].tolist())) > 32
    assert set(placed[periods == -3].tolist()) == {0}


def test_a_part_is_expected_to_have_few_chains_and_shards_are_the_limit():
    assert [parts_for([1, chains], 6) for chains in (0, 1, CHAINS)] == [1, 1, 1]
    assert [parts_for([chains, 0], 6) for chains in (CHAINS + 1, 3 * CHAINS, 5 * CHAINS)] == [
        2,
        4,
        6,
    ]
