"""The counting kernels against the slow and obvious way."""

import hypothesis.extra.numpy as hnp
import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from mechanisms.errors import ParameterError
from mechanisms.estimators.counting import grouped_bit_sums, grouped_counts


def obvious_sums(rows):
    return np.unpackbits(rows, axis=1, bitorder="little").sum(axis=0, dtype=np.int64)


def bit_sums(rows):
    return grouped_bit_sums(rows, np.zeros(len(rows), dtype=np.int64), 1)[0]


def random_rows(seed, n, width):
    return np.random.default_rng(seed).integers(0, 256, (n, width), dtype=np.uint8)


@pytest.mark.parametrize("width", [1, 2, 3, 5, 7, 8, 11, 16, 17, 31, 64, 100, 128])
@pytest.mark.parametrize("n", [0, 1, 2, 254, 255, 256, 4081, 8191, 8192, 20011])
def test_bit_sums_equal_the_obvious_sums(width, n):
    rows = random_rows(width * 100_003 + n, n, width)
    sums = bit_sums(rows)
    assert sums.dtype == np.int64
    assert sums.tolist() == obvious_sums(rows).tolist()


@pytest.mark.parametrize("value", [0, 255])
def test_no_counter_overflows(value):
    rows = np.full((70_001, 2), value, dtype=np.uint8)
    assert set(bit_sums(rows).tolist()) == {70_001 * (value & 1)}
    groups = np.arange(70_001) // 7000
    grouped = grouped_bit_sums(rows, groups, 11)
    assert grouped[:, 0].tolist() == [7000 * (value & 1)] * 10 + [value & 1]


def test_columns_cut_from_a_wider_array_are_accepted_and_left_alone():
    wide = random_rows(5, 9000, 24)
    before = wide.copy()
    assert bit_sums(wide[:, 4:15]).tolist() == obvious_sums(wide[:, 4:15]).tolist()
    groups = np.arange(9000) % 3
    grouped = grouped_bit_sums(wide[:, 4:15], groups, 3)
    assert grouped.sum(axis=0).tolist() == obvious_sums(wide[:, 4:15]).tolist()
    assert (wide == before).all()


@pytest.mark.parametrize("n_groups", [1, 3, 300, 70_000])
@pytest.mark.parametrize("shape", ["even", "skewed", "sorted"])
def test_grouped_sums_equal_the_sums_of_each_group(n_groups, shape):
    rng = np.random.default_rng(n_groups)
    rows = rng.integers(0, 256, (30_000, 5), dtype=np.uint8)
    groups = rng.integers(0, n_groups, 30_000)
    if shape == "skewed":
        groups[rng.random(30_000) < 0.9] = n_groups // 2
    if shape == "sorted":
        groups.sort()
    out = grouped_bit_sums(rows, groups, n_groups)
    assert out.shape == (n_groups, 40)
    for group in range(min(n_groups, 40)):
        assert out[group].tolist() == obvious_sums(rows[groups == group]).tolist()
    assert out.sum(axis=0).tolist() == obvious_sums(rows).tolist()


@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(0, 600), st.integers(1, 9))),
    st.integers(1, 5),
    st.integers(0, 2**32 - 1),
)
def test_counts_of_pieces_add_up(rows, n_groups, seed):
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, n_groups, len(rows))
    half = rng.random(len(rows)) < 0.5
    whole = grouped_bit_sums(rows, groups, n_groups)
    pieces = [grouped_bit_sums(rows[part], groups[part], n_groups) for part in (half, ~half)]
    assert (whole == sum(pieces)).all()
    expected = np.zeros_like(whole)
    np.add.at(expected, groups, np.unpackbits(rows, axis=1, bitorder="little").astype(np.int64))
    assert (whole == expected).all()


def test_grouped_counts():
    rng = np.random.default_rng(3)
    symbols, groups = rng.integers(0, 7, 1000, dtype=np.uint8), rng.integers(0, 4, 1000)
    out = grouped_counts(symbols, groups, 4, 7)
    expected = np.zeros((4, 7), dtype=np.int64)
    np.add.at(expected, (groups, symbols), 1)
    assert (out == expected).all()
    assert grouped_counts(symbols[:0], groups[:0], 2, 3).tolist() == [[0] * 3] * 2


def test_what_is_out_of_range_is_refused_not_counted_elsewhere():
    zero = np.zeros(1, dtype=np.int64)
    with pytest.raises(ParameterError, match="symbols"):
        grouped_counts(zero + 3, zero, 2, 3)
    with pytest.raises(ParameterError, match="groups"):
        grouped_counts(zero, zero + 2, 2, 3)
    with pytest.raises(ParameterError, match="groups"):
        grouped_bit_sums(np.zeros((1, 1), dtype=np.uint8), zero - 1, 2)
