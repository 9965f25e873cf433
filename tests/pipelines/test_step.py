"""The step against the rules of ``step_reference``, in every order and however it is cut."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_plans import DAY, HOUR, PERIOD, registry
from step_reference import Row, Rules

from pipelines import audit, deltas, keyed, state, step, table
from pipelines.rows import Rows
from pipelines.state import State
from sotto.errors import ParameterError
from sotto.reasons import Reason

REGISTRY = registry()
RULES = Rules(REGISTRY)
METRICS = REGISTRY.metrics
SHARD, NUMBER = 3, -2
START = NUMBER * PERIOD
KEY = bytes(range(1, 17))


def identifier(number: int) -> list[int]:
    """Return an id whose halves differ from those of other numbers, or only one of them."""
    return [number // 2 * 0x9E3779B97F4A7C15 % 2**64, number]


def rows_of(reports: list[Row]) -> Rows:
    widths = {m.id: m.metric.mechanism.payload_width for m in METRICS}
    payload = np.zeros((len(reports), max(widths.values())), dtype=np.uint8)
    for at, report in enumerate(reports):
        payload[at, : len(report.payload)] = list(report.payload)
    return Rows(
        shard=SHARD,
        period=NUMBER,
        widths=widths,
        metric=np.array([r.metric for r in reports], dtype=np.uint16),
        level=np.array([r.level for r in reports], dtype=np.uint8),
        pseudonym=np.array([identifier(r.pseudonym) for r in reports], np.uint64).reshape(-1, 2),
        chain=np.array([identifier(r.chain) for r in reports], dtype=np.uint64).reshape(-1, 2),
        event=np.array([r.event for r in reports], dtype=np.int64),
        append=np.array([r.append for r in reports], dtype=np.int64),
        countable=np.array([r.countable for r in reports], dtype=np.bool_),
        payload=payload,
    )


def reports_of(rows: Rows) -> list[Row]:
    return [
        Row(
            int(rows.pseudonym[at, 1]),
            int(rows.chain[at, 1]),
            metric := int(rows.metric[at]),
            int(rows.event[at]),
            int(rows.level[at]),
            rows.payload[at, : rows.widths[metric]].tobytes(),
            bool(rows.countable[at]),
            int(rows.append[at]),
        )
        for at in range(len(rows))
    ]


def counts(reports: Counter) -> dict:
    """Return the count vectors of reports, each added for itself."""
    vectors: dict = {}
    for (pseudonym, chain, metric, event, level, payload), times in reports.items():
        window = METRICS[metric].metric.window
        vector = METRICS[metric].metric.mechanism.accumulate(
            np.array([list(payload)], dtype=np.uint8),
            np.array([identifier(chain)], dtype=np.uint64),
            np.array([identifier(pseudonym)], dtype=np.uint64),
            np.zeros(1, dtype=np.int64),
            1,
        )[0]
        key = (metric, event // window * window, level)
        vectors[key] = vectors.get(key, 0) + times * vector
    return plain(vectors)


def plain(vectors: dict) -> dict:
    return {key: vector.tolist() for key, vector in vectors.items() if vector.any()}


def add(total: dict, more: dict) -> None:
    for key, vector in more.items():
        total[key] = total.get(key, 0) + vector


def audited(seen: State) -> dict:
    columns = seen.audit()
    return {
        int(pseudonym): (int(chains), int(accepted), int(observed), int(reason))
        for (_, pseudonym), chains, accepted, observed, reason in zip(
            columns.pseudonym,
            columns.chains,
            columns.accepted,
            columns.observed,
            columns.reason,
            strict=True,
        )
    }


def check_against_rules(calls: list[list[Row]], reload: bool = False) -> State:
    """Compare every call's outcome with the rules, and the state's audit after it."""
    seen: list[Row] = []
    now = State(REGISTRY, SHARD, NUMBER, KEY)
    for number, call in enumerate(calls):
        plus, minus, rejected = RULES.step(seen, call)
        now, changes, rejects = step.step(now, rows_of(call))
        expected = counts(plus)
        for key, vector in counts(minus).items():
            there = expected.get(key, [0] * len(vector))
            expected[key] = [a - b for a, b in zip(there, vector, strict=True)]
        assert plain(changes) == {key: vector for key, vector in expected.items() if any(vector)}
        found = reports_of(rejects.rows)
        assert len(found) == len({row.report for row in found}), "a row was rejected twice"
        assert all(row.countable for row in found)
        reasons = rejects.reason.tolist()
        assert {
            r.report: (why, r.append) for r, why in zip(found, reasons, strict=True)
        } == rejected
        seen += call
        if reload:
            data = now.canonical() if number % 2 else now.to_bytes()
            now = State.from_bytes(data, REGISTRY)
        expected_audit = {
            p: (a.chains, a.accepted, a.observed, a.reason) for p, a in RULES.audit(seen).items()
        }
        assert audited(now) == expected_audit
    return now


def run(calls: list[list[Row]]) -> tuple[bytes, dict, dict]:
    """Return the canonical state, the summed deltas and the rejected rows by reason."""
    now, total, rejected = State(REGISTRY, SHARD, NUMBER, KEY), {}, Counter()
    for call in calls:
        now, changes, rejects = step.step(now, rows_of(call))
        add(total, changes)
        rejected.update(reports_of(rejects.rows))
    assert not [row for row, times in rejected.items() if times > 1]
    return now.canonical(), plain(total), dict(rejected)


def cut(rows: list, cuts: list[int]) -> list[list]:
    places = sorted(place % (len(rows) + 1) for place in cuts)
    return [rows[a:b] for a, b in itertools.pairwise([0, *places, len(rows)])]


@st.composite
def a_row(draw) -> Row:
    """A row of a universe so small that rows repeat, supersede and contradict each other."""
    metric = draw(st.integers(0, len(METRICS) - 1))
    mechanism = METRICS[metric].metric.mechanism
    payload = draw(st.sampled_from([0, 0, 0, 0, 0, 1, 2]))
    return Row(
        pseudonym=draw(st.integers(0, 2)),
        # A chain mostly has one metric and one event time.
        chain=draw(st.sampled_from([metric, metric, metric, metric + 6, metric + 12, 0])),
        metric=metric,
        event=START + draw(st.sampled_from([30, 30, 30, 30, 30, 0, 167])) * HOUR,
        level=draw(st.integers(0, mechanism.levels - 1)),
        payload=bytes([payload]) + bytes(mechanism.payload_width - 1),
        countable=draw(st.sampled_from([True, True, True, False])),
        append=draw(st.integers(0, 3)),
    )


UNIVERSES = st.lists(a_row(), max_size=24)
CUTS = st.lists(st.integers(0, 24), max_size=4)


def random_rows(seed: int, size: int, pseudonyms: int, honest: float) -> list[Row]:
    """Rows of a larger universe: honest chains with some contradictions among them."""
    draw = random.Random(seed)
    rows = []
    for _ in range(size):
        chain = draw.randrange(4 * pseudonyms)
        own = random.Random(f"{seed} {chain}")
        metric = own.randrange(len(METRICS))
        event = START + own.randrange(168) * HOUR
        if draw.random() > honest:
            metric = draw.randrange(len(METRICS))
        mechanism = METRICS[metric].metric.mechanism
        level = draw.randrange(mechanism.levels)
        flaw = 0 if draw.random() < honest else 1
        payload = bytes([(chain + level + flaw) % 2]) + bytes(mechanism.payload_width - 1)
        rows.append(
            Row(
                chain % pseudonyms if draw.random() < honest else draw.randrange(pseudonyms),
                chain,
                metric,
                event + (DAY if draw.random() > honest and event < START + 6 * DAY else 0),
                level,
                payload,
                draw.random() < 0.9,
                draw.randrange(1000),
            )
        )
    return rows


@settings(max_examples=300, deadline=None)
@given(UNIVERSES, CUTS, st.booleans())
def test_every_call_does_what_the_rules_say(rows, cuts, reload):
    check_against_rules(cut(rows, cuts), reload)


@settings(max_examples=300, deadline=None)
@given(UNIVERSES, CUTS, CUTS, st.randoms(use_true_random=False))
def test_neither_order_nor_cutting_changes_anything(rows, cuts, other_cuts, random_order):
    state_bytes, total, _ = run(cut(rows, cuts))
    shuffled = rows + [row for row in rows if random_order.random() < 0.2]
    random_order.shuffle(shuffled)
    assert run(cut(shuffled, other_cuts))[:2] == (state_bytes, total)


@pytest.mark.parametrize("honest", [1, 0.998, 0.9])
@pytest.mark.parametrize("size", [1, 7, 400])
def test_larger_universes(honest, size):
    rows = random_rows(seed=size, size=1600, pseudonyms=60, honest=honest)
    whole = run([rows])
    calls = [rows[at : at + size] for at in range(0, len(rows), size)]
    if size > 1:
        check_against_rules(calls, reload=True)
    assert run(calls)[:2] == whole[:2]
    random.Random(size).shuffle(rows)
    assert run([rows[at : at + 97] for at in range(0, len(rows), 97)])[:2] == whole[:2]


@pytest.mark.parametrize("bits", [0, 2])
def test_hashes_that_collide_change_nothing(monkeypatch, bits):
    rows = random_rows(seed=5, size=500, pseudonyms=20, honest=0.98)
    calls = [rows[at : at + 50] for at in range(0, 500, 50)]
    expected = run(calls)
    # Only the tables' hash is weak: two payloads with one tag are one payload by definition.
    monkeypatch.setattr(
        table, "keyed_hash", lambda *args: keyed.keyed_hash(*args) & np.uint64(2**bits - 1)
    )
    assert run(calls) == expected
    check_against_rules(calls, reload=True)


def test_the_key_decides_nothing():
    rows = random_rows(seed=6, size=300, pseudonyms=20, honest=0.95)
    outcomes = []
    for key in (KEY, bytes(16)):
        now, changes, rejects = step.step(State(REGISTRY, SHARD, NUMBER, key), rows_of(rows))
        outcomes.append((plain(changes), sorted(reports_of(rejects.rows)), audited(now)))
    assert outcomes[0] == outcomes[1]


def test_a_newer_rung_supersedes_and_an_older_one_that_comes_late_does_not():
    weak, strong = (Row(0, 1, 0, START, level, bytes([level]), True, 5) for level in (0, 2))
    now, changes, rejects = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of([weak]))
    window = START // (2 * DAY) * 2 * DAY
    assert plain(changes) == {(0, window, 0): [1, 0, 0]}
    now, changes, _ = step.step(now, rows_of([strong]))
    assert plain(changes) == {(0, window, 0): [-1, 0, 0], (0, window, 2): [0, 0, 1]}
    now, changes, rejects = step.step(now, rows_of([weak, strong]))
    assert changes == {}
    assert len(rejects.rows) == 0
    assert now.totals().accepted == now.totals().observed == 2_000_000


def test_what_counted_is_taken_back_and_rejected_on_revocation():
    path = next(m.id for m in METRICS if m.metric.name == "path")
    payload = bytes(range(16))
    first = Row(7, 1, path, START, 1, payload, True, 11)
    now, changes, _ = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of([first]))
    second = first._replace(payload=payload[::-1], append=12)
    now, retraction, rejects = step.step(now, rows_of([second]))
    assert {key: (-vector).tolist() for key, vector in retraction.items()} == plain(changes)
    assert sorted(reports_of(rejects.rows)) == [first, second]
    assert rejects.reason.tolist() == [Reason.EQUIVOCATION] * 2
    third = first._replace(chain=2, append=13)
    now, changes, rejects = step.step(now, rows_of([third, third._replace(append=14), first]))
    assert changes == {}
    assert reports_of(rejects.rows) == [third]
    assert rejects.reason.tolist() == [Reason.REVOKED]
    assert now.totals().revoked == now.totals().equivocation == 1


def test_equivocation_is_recorded_even_after_the_budget_was_exceeded():
    rows = [Row(1, chain, 0, START, 2, b"\0", True, 0) for chain in range(3)]
    now, _, rejects = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of(rows))
    assert rejects.reason.tolist() == [Reason.OVER_BUDGET] * 3
    assert now.totals().over_budget == 1
    now, _, rejects = step.step(now, rows_of([rows[0]._replace(level=1), rows[1]]))
    assert rejects.reason.tolist() == [Reason.REVOKED]
    assert now.totals().over_budget == 1
    now, _, _ = step.step(now, rows_of([rows[0]._replace(payload=b"\1", countable=False)]))
    assert (now.totals().over_budget, now.totals().equivocation) == (0, 1)


def test_rows_that_do_not_count_are_observed_only():
    row = Row(1, 1, 0, START, 2, b"\0", False, 0)
    now, changes, rejects = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of([row]))
    assert changes == {}
    assert len(rejects.rows) == 0
    assert now.totals().observed == 2_000_000
    assert now.totals().accepted == 0
    assert now.totals().chains == 1
    now, changes, _ = step.step(now, rows_of([row._replace(countable=True)]))
    assert len(changes) == 1
    assert now.totals().accepted == 2_000_000


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
    assert now.chains(one) == [
        audit.ChainRecord(one, 0, START, (1, 0, 2), None),
        audit.ChainRecord(one, 1, START, (1, 0), None),
    ]
    assert now.chains(two) == [audit.ChainRecord(one, 0, START, (0, 1, 0), 1)]
    assert now.chains(three) == []


def test_the_input_is_left_as_it_was():
    rows = rows_of(random_rows(seed=1, size=50, pseudonyms=4, honest=0.9))
    before = rows.to_bytes()
    step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows)
    assert rows.to_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"shard": 2}, "shard 2"),
        ({"period": 0}, "period 0"),
        ({"metric": np.full(1, 6, dtype=np.uint16)}, "metric must be below 6"),
        ({"level": np.full(1, 3, dtype=np.uint8)}, "level must be a rung"),
        ({"event": np.full(1, START - 1)}, "event must lie"),
        ({"event": np.full(1, START + PERIOD)}, "event must lie"),
        ({"widths": {0: 2}}, "width of their metric"),
    ],
)
def test_rows_that_cannot_have_been_decoded_are_refused(change, message):
    now = State(REGISTRY, SHARD, NUMBER, KEY)
    rows = rows_of([Row(1, 1, 0, START, 2, b"\0", True, 0)])
    with pytest.raises(ParameterError, match=message):
        step.step(now, replace(rows, **change))
    assert now.canonical() == State(REGISTRY, SHARD, NUMBER, KEY).canonical()


def test_no_rows_change_nothing():
    now, changes, rejects = step.step(State(REGISTRY, SHARD, NUMBER, KEY), rows_of([]))
    assert (changes, len(rejects.rows), len(rejects.reason)) == ({}, 0, 0)
    assert now.totals() == audit.Totals(0, 0, 0, 0, 0, 0, 0, 0)


# Each is a mistake that the comparison with the rules must notice.
FAULTS = {
    "newest rung taken for the oldest": (
        step,
        "NEWEST",
        np.array([(mask & -mask).bit_length() for mask in range(256)], dtype=np.uint8),
    ),
    "nothing is superseded": (
        step,
        "changes",
        lambda catalog, plus, minus: deltas.changes(catalog, plus, minus.select(slice(0))),
    ),
    "the first append time is not kept": (step, "_keep_first_append", lambda *_: None),
    "repetitions are rejected twice": (step, "_first_of_each", lambda identity, append, at: at),
    "nobody is charged": (step, "_charge", lambda *_: None),
    "tags ignore the payload": (
        state,
        "payload_tags",
        lambda key, payloads: np.zeros(len(payloads), dtype=np.uint32),
    ),
    "a key is compared by its last column alone": (
        table,
        "_same",
        lambda columns, ids, keys: columns[-1][ids] == keys[-1],
    ),
    "rungs are not marked as seen": (step, "_set_bits", lambda *_: None),
    "contradictions cost nothing": (
        audit,
        "_conflicts",
        lambda state: (np.zeros(0, np.intp), np.zeros(0, np.int64), np.zeros(0, np.int64)),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults_are_noticed(monkeypatch, fault):
    rows = random_rows(seed=11, size=600, pseudonyms=30, honest=0.97)
    calls = [rows[at : at + 40] for at in range(0, 600, 40)]
    check_against_rules(calls)
    monkeypatch.setattr(*FAULTS[fault])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check_against_rules(calls)
