"""Draws from integers are exact: every sequence of bits is tried."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from sources import ScriptedSource, exact_law
from statistical import check_counts

from mechanisms.chains.bits import bernoulli_lanes, bernoulli_mask, planes_of
from mechanisms.randomness import choose, uniform_below
from mechanisms.testing import SeededSource

SEED = 1414213562


class OneTry:
    """Lets a rejection end the experiment, so that all of its sequences can be tried."""

    class OverError(Exception):
        pass

    def __init__(self, source: ScriptedSource) -> None:
        self._source, self._used = source, False

    def bits(self, n: int) -> int:
        if self._used:
            raise self.OverError
        self._used = True
        return self._source.bits(n)


def law_of_one_try(draw: Callable[[OneTry], int]) -> dict[int | None, Fraction]:
    def attempt(source: ScriptedSource) -> int | None:
        try:
            return draw(OneTry(source))
        except OneTry.OverError:
            return None

    return exact_law(attempt)


@pytest.mark.parametrize("bound", [1, 2, 3, 5, 8, 13])
def test_uniform_integers(bound: int) -> None:
    law = law_of_one_try(lambda source: uniform_below(bound, source))
    law.pop(None, None)
    assert set(law) == set(range(bound))
    assert len(set(law.values())) == 1


def test_a_rejected_draw_is_drawn_again() -> None:
    assert uniform_below(5, ScriptedSource([7, 5, 4])) == 4


def test_keys_come_with_their_integer_weights() -> None:
    weights = {10: 3, 11: 0, 12: 5, 13: 1}
    law = law_of_one_try(lambda source: choose(weights, source))
    law.pop(None, None)
    whole = sum(law.values())
    assert {key: share / whole for key, share in law.items()} == {
        10: Fraction(3, 9),
        12: Fraction(5, 9),
        13: Fraction(1, 9),
    }


def independent_bits(thresholds: list[int], width: int) -> dict[int, Fraction]:
    shares = [
        Fraction(t, 2**64) for t in (thresholds if len(thresholds) > 1 else thresholds * width)
    ]
    law = {}
    for mask in range(1 << width):
        law[mask] = Fraction(1)
        for i, share in enumerate(shares):
            law[mask] *= share if mask >> i & 1 else 1 - share
    return {mask: share for mask, share in law.items() if share}


@pytest.mark.parametrize(
    ("thresholds", "width"),
    [
        ([5 << 61], 1),
        ([5 << 61], 2),
        ([1 << 63], 3),
        ([7 << 61], 2),
        ([3 << 60], 2),
        ([0], 2),
        ([1 << 61, 3 << 62], 2),
        ([0, 7 << 61, 1 << 63], 3),
    ],
)
def test_masks_of_biased_bits(thresholds: list[int], width: int) -> None:
    planes = planes_of(thresholds, width)
    law = exact_law(lambda source: bernoulli_mask(planes, width, source))
    assert law == independent_bits(thresholds, width)


def test_all_64_planes_count() -> None:
    """A word of 64 bits equal to the threshold is not below it, one less is."""
    threshold = 0xDEADBEEF12345679
    planes = planes_of([threshold], 1)
    assert len(planes) == 64

    class Bits:
        """Gives a word's bits from the top, in the order that planes are asked for."""

        def __init__(self, word: int) -> None:
            self.left = f"{word:064b}"

        def bits(self, n: int) -> int:
            taken, self.left = self.left[:n], self.left[n:]
            return int(taken[::-1], 2)

    for word in (0, threshold - 1, threshold, threshold + 1, 2**64 - 1, 1 << 63):
        assert bernoulli_mask(planes, 1, Bits(word)) == (word < threshold)


def neighbour_counts(bits: np.ndarray) -> list[list[int]]:
    """How often each bit and the next one are 00, 01, 10, 11."""
    pairs = 2 * bits[:, :-1] + bits[:, 1:]
    return [np.bincount(column, minlength=4).tolist() for column in pairs.T]


def check_bits(bits: np.ndarray, shares: list[float]) -> None:
    for index, counts in enumerate(neighbour_counts(bits)):
        one, two = shares[index], shares[index + 1]
        law = [(1 - one) * (1 - two), (1 - one) * two, one * (1 - two), one * two]
        check_counts(
            counts, law, false_failure_rate=1e-9 / len(shares), label=f"seed {SEED}, bit {index}"
        )


@pytest.mark.parametrize("threshold", [0x123456789ABCDEF1, 0xF000000000000001, 1 << 63])
def test_many_bits_of_one_threshold(threshold: int) -> None:
    """Every bit of three lanes, and every pair of neighbours, in both ways of drawing."""
    n, width, share = 4_000, 150, threshold / 2**64
    planes = planes_of([threshold], width)
    lanes = bernoulli_lanes(planes, 3, n, SeededSource(SEED))
    assert lanes.shape == (n, 3)
    assert lanes.dtype == np.uint64
    spread = np.unpackbits(lanes.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    check_bits(spread[:, :width].astype(int), [share] * width)
    source = SeededSource(SEED)
    masks = [bernoulli_mask(planes, width, source).to_bytes(19, "little") for _ in range(n)]
    rows = np.frombuffer(b"".join(masks), dtype=np.uint8).reshape(n, 19)
    check_bits(
        np.unpackbits(rows, axis=1, bitorder="little")[:, :width].astype(int), [share] * width
    )


def test_many_bits_of_their_own_thresholds() -> None:
    n, thresholds = 20_000, [(i + 1) * 0x0707070707070707 for i in range(33)]
    planes = planes_of(thresholds, 33)
    lanes = bernoulli_lanes(planes, 1, n, SeededSource(SEED))
    spread = np.unpackbits(lanes.astype("<u8").view(np.uint8), axis=1, bitorder="little")
    shares = [threshold / 2**64 for threshold in thresholds]
    check_bits(spread[:, :33].astype(int), shares)
    with pytest.raises(AssertionError):
        check_bits(spread[:, :33].astype(int), [0.95 * share for share in shares])
