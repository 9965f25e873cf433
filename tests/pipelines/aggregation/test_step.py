"""The step against the rules of ``step_reference``, in every order and however it is cut."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_plans import HOUR, PERIOD
from step_reference import Row
from step_universe import (
    KEY,
    METRICS,
    NUMBER,
    REGISTRY,
    RULES,
    SHARD,
    START,
    add,
    audited,
    canonical,
    counts,
    cut,
    identifier,
    plain,
    random_rows,
    reports_of,
    rows_of,
)

from pipelines.aggregation import audit, step, table
from pipelines.aggregation import counts as deltas
from pipelines.aggregation.state import State
from sotto.errors import ParameterError
from sotto.wire.reasons import Reason


def check_against_rules(calls: list[list[Row]], reload: bool = False) -> State:
    """Compare every call's outcome with the rules, and the state's audit after it."""
    seen: list[Row] = []
    now = State(REGISTRY, SHARD, NUMBER, KEY)
    for call in calls:
        plus, minus, rejected, superseded = RULES.step(seen, call)
        now, changes, rejects = step.step(now, rows_of(call))
        pairs, before = RULES.pairs(seen + call), RULES.pairs(seen)
        expected = counts(plus, pairs - before)
        for key, vector in counts(minus, before - pairs).items():
            there = expected.get(key, [0] * len(vector))
            expected[key] = [a - b for a, b in zip(there, vector, strict=True)]
        assert plain(changes) == {key: vector for key, vector in expected.items() if any(vector)}
        found = reports_of(rejects.rows)
        assert len(found) == len({row.report for row in found}), "a row was rejected twice"
        assert all(row.countable for row in found)
        assert set(rejects.reason.tolist()) <= {Reason.REVOKED}
        assert {row.report: row.append for row in found} == rejected
        assert rejects.superseded == superseded
        seen += call
        if reload:
            now = State.from_bytes(now.to_bytes(), REGISTRY)
        expected_audit = RULES.audit(seen)
        assert audited(now) == expected_audit
        costs = expected_audit.values()
        reasons = [each.reason for each in costs]
        assert audit.totals(now) == audit.Totals(
            len(costs),
            reasons.count(Reason.OVER_BUDGET),
            reasons.count(Reason.EQUIVOCATION),
            sum(each.chains for each in costs),
            sum(each.accepted for each in costs),
            sum(each.observed for each in costs),
            max((each.accepted for each in costs), default=0),
            max((each.observed for each in costs), default=0),
        )
    return now


def run(calls: list[list[Row]]) -> tuple[bytes, dict, int, dict]:
    """Return the canonical state, the summed deltas, how many rows are rejected, and which."""
    now, total, rejected = State(REGISTRY, SHARD, NUMBER, KEY), {}, Counter()
    superseded = 0
    for call in calls:
        now, changes, rejects = step.step(now, rows_of(call))
        add(total, changes)
        rejected.update(reports_of(rejects.rows))
        superseded += rejects.superseded
    assert not [row for row, times in rejected.items() if times > 1]
    return canonical(now), plain(total), len(rejected) + superseded, dict(rejected)


@st.composite
def a_row(draw, contradictions) -> Row:
    """A row of a universe so small that rows repeat, supersede and contradict each other."""
    metric = draw(st.sampled_from([0, 0, 0, *range(len(METRICS))]))
    mechanism = METRICS[metric].metric.mechanism
    rest = bytes(mechanism.payload_width - 1)
    # A decoded payload is an output of its mechanism.
    possible = [
        first
        for first in (0, 0, 0, 0, 1, 2)
        if mechanism.valid(np.array([[first, *rest]], dtype=np.uint8))[0]
    ]
    payload = draw(st.sampled_from(possible)) if contradictions else 0
    chain = metric + len(METRICS) * draw(st.integers(0, 2))
    hours = st.sampled_from([30, 30, 30, 30, 0, 167])
    return Row(
        pseudonym=draw(st.integers(0, 2)),
        chain=draw(st.sampled_from([chain, chain, chain, 0])) if contradictions else chain,
        metric=metric,
        event=START + (draw(hours) if contradictions else 10 * metric) * HOUR,
        level=draw(st.integers(0, mechanism.levels - 1)),
        payload=bytes([payload]) + rest,
        countable=draw(st.sampled_from([True, True, True, False])),
        append=draw(st.integers(0, 3)),
        cell=draw(st.sampled_from([5, 5, 5, 5, 5, 0])) if contradictions else metric,
    )


UNIVERSES = st.one_of(
    st.lists(a_row(contradictions=True), max_size=24),
    st.lists(a_row(contradictions=True), min_size=6, max_size=24),
    st.lists(a_row(contradictions=False), min_size=12, max_size=30),
)
CUTS = st.lists(st.integers(0, 40), max_size=4)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(UNIVERSES, CUTS, st.booleans())
def test_every_call_does_what_the_rules_say(rows, cuts, reload):
    check_against_rules(cut(rows, cuts), reload)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(UNIVERSES, CUTS, CUTS, st.randoms(use_true_random=False))
def test_neither_order_nor_cutting_changes_anything(rows, cuts, other_cuts, random_order):
    outcome = run(cut(rows, cuts))[:3]
    assert outcome[2] == RULES.rejected(rows)
    shuffled = rows + [row for row in rows if random_order.random() < 0.2]
    random_order.shuffle(shuffled)
    assert run(cut(shuffled, other_cuts))[:3] == outcome


@pytest.mark.parametrize("honest", [1, 0.97])
def test_larger_universes(honest):
    rows = random_rows(seed=400, size=500, pseudonyms=30, honest=honest)
    pieces = {size: cut(rows, list(range(0, 500, size))) for size in (1, 97, 250)}
    check_against_rules(pieces[250], reload=True)
    outcomes = [run(calls)[:3] for calls in ([rows], *pieces.values())]
    random.Random(5).shuffle(rows)
    outcomes.append(run(cut(rows, [300, 301, 1000]))[:3])
    assert all(outcome == outcomes[0] for outcome in outcomes)


@pytest.mark.parametrize("bits", [0, 2])
def test_hashes_that_collide_change_nothing(monkeypatch, bits):
    rows = random_rows(seed=5, size=500, pseudonyms=20, honest=0.98)
    calls = [rows[at : at + 50] for at in range(0, 500, 50)]
    expected = run(calls)
    # Only the tables' hash is weak: two payloads with one tag are one payload by definition.
    strong = table.keyed_hash
    monkeypatch.setattr(table, "keyed_hash", lambda *args: strong(*args) & np.uint64(2**bits - 1))
    assert run(calls) == expected
    check_against_rules(calls, reload=True)


def test_the_chains_of_a_pseudonym_can_be_looked_at():
    rows = [
        Row(1, 1, 0, START, 0, b"\0", True, 0),
        Row(1, 1, 0, START, 2, b"\0", True, 0),
        Row(1, 1, 0, START, 2, b"\1", True, 0),
        Row(1, 1, 1, START, 0, b"\1", True, 0),
        Row(2, 1, 0, START, 1, b"\0", True, 0),
    ]
    now, _, _ = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of(rows))
    one, two, three = (np.array(identifier(number), dtype="<u8").tobytes() for number in (1, 2, 3))
    about = [
        [(line.chain, line.metric, line.event, line.payloads, line.counted) for line in lines]
        for lines in (audit.chains_of(now, each) for each in (one, two, three))
    ]
    names = [registered.metric.name for registered in now.registry.metrics]
    assert about == [
        [(one.hex(), names[0], START, (1, 0, 2), None), (one.hex(), names[1], START, (1, 0), None)],
        [(one.hex(), names[0], START, (0, 1, 0), 1)],
        [],
    ]


def test_a_chain_in_two_cells_is_equivocation_and_what_is_rejected_keeps_them():
    rows = [
        Row(1, 1, 0, START, 0, b"\0", True, 0, cell=5),
        Row(1, 1, 0, START, 1, b"\0", True, 0, cell=6),
        Row(2, 2, 0, START, 0, b"\0", True, 0, cell=5),
    ]
    now = check_against_rules([rows[:1], rows[1:]], reload=True)
    assert audited(now)[1][3] == Reason.EQUIVOCATION
    assert audited(now)[2][3] == 0
    blocks = [rows_of([row]).to_bytes() for row in rows]
    stepped = step.step_blocks(State(REGISTRY, SHARD, NUMBER, KEY), blocks)
    assert sorted(reject.message[3] for reject in stepped.rejects) == [5, 6]
    assert {key.cell: matrix.sum() for key, matrix in stepped.changes.items()} == {5: 1}


@pytest.mark.parametrize("spare", [0, 3, 40])
def test_the_padding_of_payloads_does_not_matter(spare):
    rows = random_rows(seed=9, size=300, pseudonyms=20, honest=0.95)
    narrow = rows_of([row for row in rows if len(row.payload) <= 2])
    payload = np.zeros((len(narrow), 2 + spare), dtype=np.uint8)
    payload[:, :2] = narrow.payload[:, :2]
    cut = replace(narrow, widths={0: 1, 1: 1, 2: 1, 3: 2}, payload=payload)
    expected = step.step(State(REGISTRY, SHARD, NUMBER, KEY), narrow)
    now = step.step(State(REGISTRY, SHARD, NUMBER, KEY), cut)
    assert canonical(now.state) == canonical(expected.state)
    assert plain(now.deltas) == plain(expected.deltas)
    assert reports_of(now.rejects.rows) == reports_of(expected.rejects.rows)
    assert len(now.rejects.rows) > 0
    again = step.step(now.state, rows_of(rows))
    assert canonical(again.state) == run([rows])[0]


@pytest.mark.parametrize("cells", [1, 40, 1000])
def test_counting_in_passes_changes_nothing(cells, monkeypatch):
    rows = random_rows(seed=11, size=400, pseudonyms=40, honest=0.97)
    expected = run([rows[:200], rows[200:]])
    made = []
    accumulated = deltas._counts

    def counted(mechanism, *args):
        counts = accumulated(mechanism, *args)
        made.append((counts.size, mechanism.count_length))
        return counts

    monkeypatch.setattr(deltas, "PASS_CELLS", cells)
    monkeypatch.setattr(deltas, "_counts", counted)
    assert run([rows[:200], rows[200:]]) == expected
    assert all(size <= max(cells, length) for size, length in made)
    assert len(made) > len({length for _, length in made})


def test_rows_that_are_counted_already_change_the_state_alone():
    rows = rows_of(random_rows(seed=1, size=200, pseudonyms=90, honest=0.9))
    given = rows.to_bytes()
    now, before = (
        step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows, counted=each) for each in (False, True)
    )
    assert before.state.to_bytes() == now.state.to_bytes()
    assert now.deltas
    assert not before.deltas
    assert rows.to_bytes() == given, "rows are left as they were"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard": 2}, "shard 2"),
        ({"period": 0}, "period 0"),
        ({"metric": np.full(1, 6, dtype=np.uint16)}, "metric must be below 6"),
        ({"level": np.full(1, 3, dtype=np.uint8)}, "level must be a level"),
        ({"event": np.full(1, START - 1)}, "event must lie"),
        ({"event": np.full(1, START + PERIOD)}, "event must lie"),
        ({"widths": {0: 2}}, "width of their metric"),
        ({"widths": {}}, "width of their metric"),
    ],
)
def test_rows_that_cannot_have_been_decoded_are_refused(change, message):
    now = State(REGISTRY, SHARD, NUMBER, KEY)
    rows = rows_of([Row(1, 1, 0, START, 2, b"\0", True, 0)])
    with pytest.raises(ParameterError, match=message):
        step.step(now, replace(rows, **change))
    assert canonical(now) == canonical(State(REGISTRY, SHARD, NUMBER, KEY))
