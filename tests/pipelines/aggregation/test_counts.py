"""Counts: packing, addition, and pages that know what changed when."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.aggregation import counts
from pipelines.aggregation.counts import WindowCounts, WindowKey
from sotto.errors import FormatError

keys = st.builds(
    WindowKey,
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**16 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 63),
)
matrices = st.builds(
    lambda levels, length, seed: np.random.default_rng(seed).integers(
        0, 2**40, (levels, length), dtype=np.int64
    ),
    st.integers(1, 8),
    st.integers(1, 40),
    st.integers(0, 2**32),
)
pages = st.dictionaries(keys, st.builds(WindowCounts, st.integers(1, 2**40), matrices), max_size=5)


def plain(page: dict[WindowKey, WindowCounts]) -> dict[WindowKey, tuple[int, list[list[int]]]]:
    return {key: (window.revision, window.counts.tolist()) for key, window in page.items()}


@given(pages)
def test_a_page_comes_back_as_it_was_packed(page):
    packed = counts.pack_page(page)
    assert plain(counts.unpack_page(packed)) == plain(page)
    assert counts.pack_page(dict(reversed(page.items()))) == packed


@given(pages, st.data())
def test_a_page_cut_short_is_noticed(page, data):
    packed = counts.pack_page(page)
    ends = {len(counts.pack_page(dict(sorted(page.items())[:n]))) for n in range(len(page) + 1)}
    at = data.draw(st.integers(0, len(packed)))
    if at in ends:
        assert len(counts.unpack_page(packed[:at])) <= len(page)
    else:
        with pytest.raises(FormatError):
            counts.unpack_page(packed[:at])


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=6), st.randoms())
def test_adding_packed_changes_is_adding(seeds, random):
    parts = [
        np.random.default_rng(seed).integers(-(2**40), 2**40, (3, 7), dtype=np.int64)
        for seed in seeds
    ]
    packed = [counts.pack_change(key(), part) for part in parts]
    total = counts.summed(packed)
    assert [(matrix == sum(parts)).all() for _, matrix in counts.unpack_changes(total)] == [True]
    cut = len(packed) // 2
    halves = [counts.summed(half) for half in (packed[:cut], packed[cut:]) if half]
    assert counts.summed(reversed(halves)) == total


@pytest.mark.parametrize("data", [b"", b"\1\0\1\0\0\0\0\0", b"\1\0\1\0\0\0\0\0" + bytes(7)])
def test_what_is_no_matrix_is_refused(data):
    with pytest.raises(FormatError):
        counts.unpack_matrix(data)


def key(start: int = 0) -> WindowKey:
    return WindowKey(bytes(32), 1, start)


def test_merging_adds_and_marks_what_changed():
    page = {
        key(0): WindowCounts(1, np.array([[5, 2]])),
        key(9): WindowCounts(2, np.array([[1, 1]])),
    }
    changes = [
        (key(0), np.array([[-4, 1]])),
        (key(9), np.array([[0, 0]])),
        (key(7), np.array([[3, 0]])),
    ]
    merged = counts.merge(page, changes, 8)
    assert plain(merged) == {key(0): (8, [[1, 3]]), key(9): (2, [[1, 1]]), key(7): (8, [[3, 0]])}
    assert plain(page)[key(0)] == (1, [[5, 2]])


def test_counts_below_zero_are_an_error():
    with pytest.raises(FormatError, match="negative"):
        counts.merge({key(): WindowCounts(1, np.array([[1]]))}, [(key(), np.array([[-2]]))], 2)
    with pytest.raises(FormatError, match="negative"):
        counts.merge({}, [(key(), np.array([[-2]]))], 2)


def test_counts_of_another_shape_are_an_error():
    with pytest.raises(FormatError, match="shape"):
        counts.merge({key(): WindowCounts(1, np.array([[1]]))}, [(key(), np.array([[1, 2]]))], 2)


@pytest.mark.parametrize(("start", "page"), [(0, 0), (6, 0), (7, 1), (-1, -1), (-8, -2)])
def test_a_window_is_on_the_page_it_starts_in(start, page):
    assert counts.page_of(key(start), 7) == page
