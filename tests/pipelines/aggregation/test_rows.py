"""Rows and the packed block."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_plans import HOUR, PERIOD, registry

from mechanisms.coins import shards_of
from pipelines.aggregation.decode import rows_of
from pipelines.aggregation.rows import Rows
from sotto.errors import FormatError, ParameterError
from sotto.wire.decode import Batch

GOLDEN = Path(__file__).parent / "golden" / "block-1.hex"
#: The same with cells, which are a column after the others.
WITH_CELLS = GOLDEN.with_name("block-2.hex")
COLUMNS = ("metric", "level", "pseudonym", "chain", "event", "append", "countable", "cell")
REGISTRY = registry()


def block(n: int, widths: dict[int, int], seed: int = 0) -> Rows:
    draw = np.random.default_rng(seed)
    metric = draw.choice(list(widths), n).astype(np.uint16)
    payload = draw.integers(0, 256, (n, max(widths.values())), dtype=np.uint8)
    for number, width in widths.items():
        payload[metric == number, width:] = 0
    return Rows(
        shard=5,
        period=-7,
        widths=widths,
        metric=metric,
        level=draw.integers(0, 8, n).astype(np.uint8),
        pseudonym=draw.integers(0, 2**64, (n, 2), dtype=np.uint64),
        chain=draw.integers(0, 2**64, (n, 2), dtype=np.uint64),
        event=draw.integers(-(2**60), 2**60, n),
        append=draw.integers(-(2**60), 2**60, n),
        countable=draw.integers(0, 2, n).astype(np.bool_),
        cell=draw.integers(0, 64, n).astype(np.uint8) * np.uint8(seed % 2),
        payload=payload,
    )


def same(a: Rows, b: Rows) -> bool:
    width = max((a.widths[metric] for metric in np.unique(a.metric)), default=0)
    return (
        (a.shard, a.period, len(a)) == (b.shard, b.period, len(b))
        and all(np.array_equal(getattr(a, name), getattr(b, name)) for name in COLUMNS)
        and np.array_equal(a.payload[:, :width], b.payload[:, :width])
        and all(a.widths[metric] == b.widths[metric] for metric in np.unique(a.metric))
    )


@settings(deadline=None)
@given(
    st.integers(0, 30),
    st.dictionaries(st.integers(0, 9), st.integers(1, 20), min_size=1, max_size=5),
    st.integers(0, 2**32),
)
def test_a_block_comes_back_as_it_was(n, widths, seed):
    rows = block(n, widths, seed)
    again = Rows.from_bytes(rows.to_bytes())
    assert same(rows, again)
    assert again.to_bytes() == rows.to_bytes()


def test_the_bytes_of_a_block_are_those_of_its_version():
    rows = replace(
        block(3, {2: 1, 300: 5}),
        metric=np.array([300, 2, 300], dtype=np.uint16),
        level=np.array([0, 1, 7], dtype=np.uint8),
        pseudonym=np.arange(6, dtype=np.uint64).reshape(3, 2) + np.uint64(2**63),
        chain=np.arange(6, 12, dtype=np.uint64).reshape(3, 2),
        event=np.array([-1, 0, 1]),
        append=np.array([2**40, -(2**40), 5]),
        countable=np.array([True, False, True]),
        payload=np.array([[1, 2, 3, 4, 5], [6, 0, 0, 0, 0], [7, 8, 9, 10, 11]], dtype=np.uint8),
    )
    golden = bytes.fromhex(GOLDEN.read_text())
    assert rows.to_bytes() == golden
    assert same(rows, Rows.from_bytes(golden))
    celled = replace(rows, cell=np.array([0, 63, 5], dtype=np.uint8))
    assert celled.to_bytes() == bytes.fromhex(WITH_CELLS.read_text())
    assert same(celled, Rows.from_bytes(celled.to_bytes()))


def test_what_is_no_block_is_refused():
    data = block(4, {0: 1, 1: 9}, seed=1).to_bytes()
    cuts = [data[:cut] for cut in (0, 10, 31, 40, 60, 200, -1)]
    for wrong in (*cuts, b"X" + data[1:], data[:8] + b"\3" + data[9:], data + b"\0"):
        with pytest.raises(FormatError):
            Rows.from_bytes(wrong)


def test_concat_joins_what_was_cut():
    rows = block(20, {0: 1, 1: 16})
    parts = [rows.select(slice(0, 7)), rows.select(slice(7, 7)), rows.select(slice(7, 20))]
    assert same(Rows.concat(parts), rows)
    narrow = replace(rows.select(rows.metric == 0), widths={0: 1})
    narrow = replace(narrow, payload=narrow.payload[:, :1])
    wide = rows.select(rows.metric == 1)
    assert same(Rows.concat([narrow, wide]), Rows.concat([rows.select(rows.metric == 0), wide]))


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [block(1, {0: 1}), replace(block(1, {0: 1}), shard=6)],
        [block(1, {0: 1}), replace(block(1, {0: 1}), period=0)],
        [block(1, {0: 1}), block(1, {0: 2})],
    ],
)
def test_what_does_not_belong_together_is_not_joined(parts):
    with pytest.raises(ParameterError):
        Rows.concat(parts)


@pytest.mark.parametrize(
    "change",
    [
        {"level": np.zeros(2, dtype=np.uint8)},
        {"chain": np.zeros((3, 3), dtype=np.uint64)},
        {"payload": np.zeros((2, 1), dtype=np.uint8)},
        {"payload": np.zeros(3, dtype=np.uint8)},
        {"widths": {0: 2}},
    ],
)
def test_columns_that_do_not_fit_are_refused(change):
    with pytest.raises(ParameterError):
        replace(block(3, {0: 1}), **change)


def batch(metric: int, n: int, seed: int) -> Batch:
    draw = np.random.default_rng(seed)
    width = REGISTRY.metrics[metric].metric.mechanism.payload_width
    return Batch(
        metric=metric,
        level=draw.integers(0, 2, n).astype(np.uint8),
        pseudonym=draw.integers(0, 2**64, (n, 2), dtype=np.uint64),
        chain=draw.integers(0, 2**64, (n, 2), dtype=np.uint64),
        event=draw.integers(-300, 300, n) * HOUR,
        append=draw.integers(0, 2**40, n),
        payload=draw.integers(1, 256, (n, width), dtype=np.uint8),
        cell=draw.integers(0, 64, n).astype(np.uint8),
    )


def row(columns: Rows | Batch, at: int, width: int) -> tuple[object, ...]:
    """Return one row of columns, without its metric and chain."""
    return (
        int(columns.level[at]),
        columns.pseudonym[at].tobytes(),
        int(columns.event[at]),
        int(columns.append[at]),
        int(columns.cell[at]),
        columns.payload[at, :width].tobytes(),
    )


@pytest.mark.parametrize("countable", [True, False])
def test_batches_are_sorted_by_shard_and_period(countable):
    batches = [batch(1, 40, 1), batch(5, 30, 2), batch(3, 0, 3), batch(0, 1, 4)]
    parts = rows_of(batches, REGISTRY, countable=countable)
    places = [(part.shard, part.period) for part in parts]
    assert places == sorted(set(places))
    assert sum(map(len, parts)) == 71
    found = {}
    for part in parts:
        assert (shards_of(part.pseudonym, REGISTRY.shards) == part.shard).all()
        assert (part.event // PERIOD == part.period).all()
        assert (part.countable == countable).all()
        for at in range(len(part)):
            width = part.widths[int(part.metric[at])]
            assert not part.payload[at, width:].any()
            found[part.chain[at].tobytes()] = (int(part.metric[at]), *row(part, at, width))
    assert found == {
        each.chain[at].tobytes(): (each.metric, *row(each, at, each.payload.shape[1]))
        for each in batches
        for at in range(len(each.level))
    }


def test_no_batches_are_no_rows():
    assert rows_of([], REGISTRY) == rows_of([batch(0, 0, 1)], REGISTRY) == []
