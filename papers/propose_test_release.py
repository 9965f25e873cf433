"""Propose-test-release: the best item itself, if a private test finds it far ahead."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from mechanisms.errors import ParameterError
from mechanisms.exact import ceil_fraction, exp_micro, to_micro
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source
from papers.selection import PermuteAndFlipSelection, gaps


@dataclass(frozen=True)
class ProposeTestRelease:
    """Return the best item if it is provably stable, and permute-and-flip's otherwise.

    ``test_epsilon`` ε₁, in [1e-3, 40], is that of the test, ``delta`` δ lies in [2**-63, 1/2]; the
    others are those of :class:`.PermuteAndFlipSelection`, with ε₂ = ``epsilon``.

    Privacy
    -------
    (ε₁ + ε₂, δ)-differentially private, for score vectors that differ by at most Δ in every entry.
    *Proof.* The distance d = max(0, ⌈gap/2Δ⌉ − 1) changes by at most 1, since the gap between the
    best two scores changes by at most 2Δ (Δ where monotone). The test passes with probability
    s(d)/2^64, integers with s(0) <= δ 2^64 whose ratios, and those of 2^64 − s, are at most e^ε₁
    from one d to the next. Where the best item is the same, passing costs ε₁ and failing ε₁ + ε₂.
    Where it is not, the gap is at most 2Δ on both sides, so that d = 0 and the test passes with at
    most δ.

    Relaxation
    ----------
    As any symbol: the selected item degraded by ρI + (1−ρ)uniform.

    Utility
    -------
    Wrong with probability (1 − s(d)/2^64) times permute-and-flip's at ε₂. The test with Laplace
    noise passes no more often than this one, which rises as fast as ε₁ allows.

    Use
    ---
    Seldom: at the same total ε it helps only where there are about 1/δ items or more. With ε = 1,
    20 items and a gap of 30, permute-and-flip alone is wrong with probability 2.9e-6, this with
    5.2e-3 (ε₁ = ε₂ = 1/2, δ = 1e-6).

    References
    ----------
    C. Dwork, J. Lei, "Differential Privacy and Robust Statistics", STOC 2009. D. Desfontaines,
    J. Voss, B. Gipson, C. Mandayam, "Differentially Private Partition Selection", PoPETs 2022 (the
    recursion of s).

    Examples
    --------
    >>> test = ProposeTestRelease(test_epsilon=0.5, epsilon=0.5, delta=1e-6)
    >>> test.distance([30, 0, 0]), round(test.passing(14) / 2**64, 5)
    (14, 0.0011)
    """

    test_epsilon: float
    epsilon: float
    delta: float
    sensitivity: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        if not 1e-3 <= self.test_epsilon <= 40:
            raise ParameterError(f"test_epsilon must lie in [0.001, 40], not {self.test_epsilon}")
        if not 2**-63 <= self.delta <= 0.5:
            raise ParameterError(f"delta must lie in [2**-63, 0.5], not {self.delta}")
        self.otherwise  # noqa: B018 - checks epsilon and sensitivity

    @cached_property
    def otherwise(self) -> PermuteAndFlipSelection:
        """What selects where the test fails."""
        return PermuteAndFlipSelection(self.epsilon, self.sensitivity, self.monotone)

    @property
    def certified(self) -> int:
        """The total ε₁ + ε₂ in micro-epsilon; δ comes beside it."""
        return to_micro(self.test_epsilon) + self.otherwise.certified

    def distance(self, scores: Sequence[int]) -> int:
        """Return how many steps between neighbours the best item certainly stays the best."""
        ranked = sorted(gaps(scores))
        if len(ranked) == 1:
            return 0
        return max(0, -(-ranked[1] // self.otherwise.thresholds.span) - 1)

    def passing(self, distance: int) -> int:
        """Return s(d), the probability over 2**64 that the test passes."""
        table = self._passing
        growth = exp_micro(to_micro(self.test_epsilon))[0]
        while len(table) <= distance and (len(table) < 2 or table[-1] > table[-2]):
            last = table[-1]
            table.append(min(int(last * growth), GRAINS - ceil_fraction((GRAINS - last) / growth)))
        return table[min(distance, len(table) - 1)]

    @cached_property
    def _passing(self) -> list[int]:
        return [int(Fraction(self.delta) * GRAINS)]

    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the exact probabilities with which :meth:`select` draws, ``(n,)``."""
        passed = Fraction(self.passing(self.distance(scores)), GRAINS)
        law = [(1 - passed) * share for share in self.otherwise.exact_pmf(scores)]
        law[gaps(scores).index(0)] += passed
        return tuple(law)

    def pmf(self, scores: Sequence[int]) -> list[float]:
        """Return the probabilities of the items in floating point, ``(n,)``."""
        passed = self.passing(self.distance(scores))
        law = [(GRAINS - passed) / GRAINS * share for share in self.otherwise.pmf(scores)]
        law[gaps(scores).index(0)] += passed / GRAINS
        return law

    def select(self, scores: Sequence[int], source: Source) -> int:
        """Return the place of an item, drawn in integers, of integer scores."""
        if source.bits(64) < self.passing(self.distance(scores)):
            return gaps(scores).index(0)
        return self.otherwise.select(scores, source)


def hockey_stick(law: Sequence[Fraction], other: Sequence[Fraction], micro: int) -> Fraction:
    """Return the hockey-stick divergence of two laws, Σ max(0, P − e^ε P'), rounded up.

    The least δ for which (ε, δ) covers these two in this direction; e^ε is taken at its lower
    bound, 1e-49 below it.
    """
    factor = exp_micro(micro)[0]
    terms = (max(Fraction(0), p - factor * q) for p, q in zip(law, other, strict=True))
    return sum(terms, Fraction(0))
