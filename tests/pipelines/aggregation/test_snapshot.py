"""The bytes of a state: pinned, checked when read, and of any registry that has its plans."""

from __future__ import annotations

import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from step_plans import category, plan, plans, registry
from step_universe import (
    KEY,
    NUMBER,
    REGISTRY,
    SHARD,
    audited,
    canonical,
    plain,
    random_rows,
    rows_of,
)

from pipelines.aggregation.audit import totals
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.snapshot import LAYOUT, StateSnapshot, StoredMetric
from pipelines.aggregation.state import State
from pipelines.aggregation.step import step
from sotto.errors import FormatError, ParameterError, PlanError
from sotto.plan.registry import Registry

GOLDEN = Path(__file__).parent / "golden" / "state-1.hex"


def snapshot() -> StateSnapshot:
    """Two metrics, three pseudonyms of which one is revoked, four entries, two conflicts."""
    columns = {
        ("pseudonyms", "low"): [3, 1, 2**64 - 1],
        ("pseudonyms", "high"): [0, 5, 9],
        ("pseudonyms", "reason"): [0, 13, 0],
        ("entries", "pseudonym"): [2, 0, 1, 0],
        ("entries", "low"): [11, 12, 13, 2**63],
        ("entries", "high"): [21, 22, 23, 24],
        ("entries", "event"): [-3_600_000, 0, 7_200_000, 3_600_000],
        ("entries", "append"): [5, -6, 0, 0],
        ("entries", "metric"): [1, 0, 1, 1],
        ("entries", "seen"): [3, 5, 1, 2],
        ("entries", "countable"): [2, 4, 1, 0],
        ("entries", "cell"): [0, 0, 0, 0],
        ("entries", "tags"): [[7, 2**32 - 1, 0], [1, 0, 2], [9, 0, 0], [0, 8, 0]],
        ("conflicts", "entry"): [2, 2],
        ("conflicts", "metric"): [0, 1],
        ("conflicts", "event"): [-1, 7_200_000],
        ("conflicts", "level"): [2, 0],
        ("conflicts", "tag"): [3, 4],
        ("conflicts", "countable"): [True, False],
        ("conflicts", "cell"): [0, 0],
    }
    return StateSnapshot(
        shard=513,
        period=-2,
        key=bytes(range(16)),
        metrics=(StoredMetric(b"a" * 32, 4, 3, 1), StoredMetric(b"b" * 32, 0, 2, 16)),
        columns={
            (table, name): np.array(columns[table, name], dtype=kind)
            for table, name, kind in LAYOUT
        },
        payloads={16: np.arange(16, dtype=np.uint8).reshape(1, 16)},
    )


def sealed(body: bytes) -> bytes:
    return body + zlib.crc32(body).to_bytes(4, "little")


def filled(seed: int = 3, reports: int = 300, rows: Rows | None = None) -> State:
    made = random_rows(seed=seed, size=reports, pseudonyms=30, honest=0.98)
    return step(State(REGISTRY, SHARD, NUMBER, KEY), rows or rows_of(made)).state


def test_the_bytes_of_a_state_are_those_of_its_version():
    golden = bytes.fromhex(GOLDEN.read_text())
    assert snapshot().to_bytes() == golden
    again = StateSnapshot.from_bytes(golden)
    for place, column in snapshot().columns.items():
        assert again[place].tolist() == column.tolist(), place
    assert again.metrics == snapshot().metrics
    assert (again.shard, again.period, again.key) == (513, -2, bytes(range(16)))
    assert again.payloads[16].tolist() == [list(range(16))]
    assert again.counted.tolist() == [2, 3, 0, 0]
    celled = snapshot()
    celled["entries", "cell"][:] = [0, 63, 0, 1]
    celled["conflicts", "cell"][:] = [2, 0]
    data = celled.to_bytes()
    assert data == bytes.fromhex(GOLDEN.with_name("state-2.hex").read_text())
    again = StateSnapshot.from_bytes(data)
    assert again["entries", "cell"].tolist() == [0, 63, 0, 1]
    assert again["conflicts", "cell"].tolist() == [2, 0]


@pytest.mark.parametrize("reports", [0, 300])
def test_what_is_read_is_what_was_written(reports):
    state = filled(reports=reports)
    again = State.from_bytes(state.to_bytes(), REGISTRY)
    assert again.to_bytes() == state.to_bytes()
    assert (again.shard, again.period, again.key) == (SHARD, NUMBER, KEY)
    assert canonical(again) == canonical(state)
    assert (audited(again), totals(again)) == (audited(state), totals(state))
    for name in ("accepted", "reason"):
        assert again.pseudonyms[name].tolist() == state.pseudonyms[name].tolist()
    counted = np.flatnonzero(state.entries["counted"])
    assert state.counted(counted).to_bytes() == again.counted(counted).to_bytes()


def test_metrics_get_the_ids_of_the_registry_that_reads():
    other = Registry([plan(3, 4, category("new", 5, 0.5, 1)), *reversed(plans())])
    ids = {(each.fingerprint, each.metric.index): each.id for each in other.metrics}
    renamed = np.array([ids[each.fingerprint, each.metric.index] for each in REGISTRY.metrics])
    reports = random_rows(seed=4, size=400, pseudonyms=30, honest=0.98)
    first, second = rows_of(reports[:200]), rows_of(reports[200:])
    translated = replace(
        second,
        metric=renamed[second.metric].astype(np.uint16),
        widths={int(renamed[metric]): width for metric, width in second.widths.items()},
    )
    before = step(State(REGISTRY, SHARD, NUMBER, KEY), first).state.to_bytes()
    here = step(State.from_bytes(before, REGISTRY), second)
    there = step(State.from_bytes(before, other), translated)
    assert canonical(here.state) == canonical(there.state)
    assert plain(there.deltas) == {
        (renamed[metric], *key): vector for (metric, *key), vector in plain(here.deltas).items()
    }
    assert len(here.deltas) > 5


def test_a_state_of_an_unknown_plan_is_refused_by_its_fingerprint():
    known, _ = plans()
    data = filled().to_bytes()
    missing = registry().plans[1].fingerprint
    with pytest.raises(PlanError, match=missing.hex()):
        State.from_bytes(data, Registry([known]))


def test_only_plans_that_occur_are_needed():
    reports = random_rows(seed=4, size=400, pseudonyms=30, honest=1)
    first = rows_of([report for report in reports if report.metric < 2])
    data = filled(rows=first).to_bytes()
    assert State.from_bytes(data, Registry(plans()[:1])).entries.size > 10


def test_a_metric_of_another_shape_is_refused():
    stored = StateSnapshot.from_bytes(filled().to_bytes())
    at = next(at for at, metric in enumerate(stored.metrics) if metric.width == 1)
    narrow = stored.metrics[at]._replace(width=2)
    changed = (*stored.metrics[:at], narrow, *stored.metrics[at + 1 :])
    with pytest.raises(FormatError, match="payloads"):
        State.from_bytes(replace(stored, metrics=changed).to_bytes(), REGISTRY)


def test_damage_is_noticed_and_a_wrong_length_even_if_the_checksum_is_right():
    data = snapshot().to_bytes()
    for at in range(len(data)):
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]):
            with pytest.raises(FormatError):
                StateSnapshot.from_bytes(damaged)
    body = data[:-4]
    for wrong in (body[:-1], body + b"\0", body[:70]):
        with pytest.raises(FormatError, match="state"):
            StateSnapshot.from_bytes(sealed(wrong))
    with pytest.raises(FormatError, match="version 3"):
        StateSnapshot.from_bytes(sealed(body[:8] + b"\3" + body[9:]))


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("entries", "pseudonym"), 3, "entries pseudonym of a state must be below 3"),
        (("conflicts", "entry"), 2**32 - 1, "conflicts entry of a state must be below 4"),
        (("entries", "metric"), 2, "entries metric of a state must be below 2"),
        (("conflicts", "metric"), 2, "conflicts metric of a state must be below 2"),
        (("entries", "seen"), 7, "levels that its metric or it does not have"),
        (("entries", "countable"), 128, "levels that its metric or it does not have"),
        (("conflicts", "level"), 3, "a level that its metric does not have"),
        (("pseudonyms", "reason"), 14, "revoked for no known reason"),
    ],
)
def test_what_refers_to_nothing_is_refused_even_if_the_checksum_is_right(place, value, said):
    stored = snapshot()
    stored.columns[place][0] = value
    with pytest.raises(FormatError, match=said):
        StateSnapshot.from_bytes(stored.to_bytes())


@pytest.mark.parametrize("levels", [0, 2, 9, 65535])
def test_the_levels_of_a_metric_are_those_that_entries_have(levels):
    stored = snapshot()
    changed = replace(
        stored, metrics=(stored.metrics[0]._replace(levels=levels), stored.metrics[1])
    )
    with pytest.raises(FormatError, match="levels"):
        StateSnapshot.from_bytes(changed.to_bytes())


def test_no_byte_changed_under_a_right_checksum_is_an_error_of_another_kind():
    body = filled(seed=6).to_bytes()[:-4]
    draw = np.random.default_rng(0)
    places = {*range(min(len(body), 400)), *draw.integers(0, len(body), 600).tolist()}
    for at in sorted(places):
        changed = bytearray(body)
        changed[at] ^= 0x81
        try:
            State.from_bytes(sealed(bytes(changed)), REGISTRY)
        except (FormatError, PlanError):
            continue


def test_a_key_has_16_bytes():
    with pytest.raises(ParameterError, match="16 bytes, not 8"):
        State(REGISTRY, 0, 0, bytes(8))
