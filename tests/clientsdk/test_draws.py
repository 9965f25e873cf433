"""The SDK's own draws: exactly uniform, and nothing where there is nothing to draw."""

from __future__ import annotations

from collections import Counter

import pytest
from statistical import check_binomial, check_counts

from clientsdk import draws
from mechanisms.testing import SeededSource


class Scripted:
    """Draws what it is told to, and notes the widths asked for."""

    def __init__(self, *drawn: int) -> None:
        self.drawn = list(drawn)
        self.widths: list[int] = []

    def bits(self, n: int) -> int:
        self.widths.append(n)
        return self.drawn.pop(0)


def test_below_rejects_and_never_reduces() -> None:
    source = Scripted(7, 5, 4)
    assert draws.below(source, 5) == 4  # type: ignore[arg-type]
    assert source.widths == [3, 3, 3]


def test_a_bound_of_one_draws_nothing() -> None:
    source = Scripted()
    assert draws.below(source, 1) == 0  # type: ignore[arg-type]
    assert draws.replaces(source, 1)  # type: ignore[arg-type]
    assert source.widths == []


@pytest.mark.parametrize("bound", [2, 3, 7, 8])
def test_below_is_uniform(bound: int) -> None:
    seed = 41
    source = SeededSource(seed)
    counts = Counter(draws.below(source, bound) for _ in range(20_000))
    check_counts([counts[i] for i in range(bound)], [1 / bound] * bound, label=seed)


def test_replacing_has_probability_one_in_seen() -> None:
    seed = 42
    source = SeededSource(seed)
    for seen in (2, 3, 10):
        hits = sum(draws.replaces(source, seen) for _ in range(20_000))
        check_binomial(hits, 20_000, 1 / seen, label=seed)


def test_a_reduction_instead_of_rejection_would_be_seen() -> None:
    """The planted fault: 2 bits modulo 3."""
    seed = 43
    source = SeededSource(seed)
    counts = Counter(source.bits(2) % 3 for _ in range(20_000))
    with pytest.raises(AssertionError):
        check_counts([counts[i] for i in range(3)], [1 / 3] * 3, label=seed)


def test_identifiers_are_sixteen_bytes() -> None:
    source = SeededSource(44)
    ids = {draws.identifier(source) for _ in range(100)}
    assert len(ids) == 100
    assert {len(each) for each in ids} == {16}
