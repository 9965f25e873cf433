"""Selection of one of several items by their scores: exponential mechanism, permute-and-flip.

Permute-and-flip looks at items in random order and takes item r with probability a_r as soon as it
is its turn. If each has an independent uniform arrival time t, r is taken with probability
P(r) = a_r ∫₀¹ ∏_{s≠r} (1 − t a_s) dt, which sums to one if some a_s is one. Both mechanisms are
ε-differentially private for scores that differ by at most Δ each. Propose-test-release is
(ε₁ + ε₂, δ)-differentially private.

References
----------
F. McSherry, K. Talwar, "Mechanism Design via Differential Privacy", FOCS 2007. R. McKenna,
D. Sheldon, "Permute-and-Flip: A New Mechanism for Differentially Private Selection", NeurIPS 2020.
C. Dwork, J. Lei, "Differential Privacy and Robust Statistics", STOC 2009. D. Desfontaines, J. Voss,
B. Gipson, C. Mandayam, "Differentially Private Partition Selection", PoPETs 2022 (the recursion of
the test).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from math import exp, fsum, inf, isfinite

from mechanisms.arrays import Floats, Ints, np
from mechanisms.audit.cases import Case, law_release
from mechanisms.errors import ParameterError, check_at_least, check_probability

#: Nodes of the Gauss-Legendre rule on a panel; the integrand's logarithm falls on it by no more.
NODES, FALL = 24, 2.0
#: The integration ends where the integrand is below e to minus this.
END = 48.0


def float_flips(exponents: Sequence[float]) -> list[float]:
    """Return the law for acceptance probabilities e^x, x at most 0 and one of them 0, as floats.

    Each to about 1e-13 relatively, for any number of items, ties and gaps: the integrand is
    positive, so that nothing cancels, and is integrated by a Gauss rule on panels on which it falls
    by no more than a factor of e².
    """
    values, places, counts = np.unique(
        np.asarray(exponents, dtype=np.float64), return_inverse=True, return_counts=True
    )
    if not (values.size and values[-1] == 0):
        raise ParameterError("exponents must be at most 0, one of them 0")
    chances = np.exp(values)
    integrals = np.zeros(len(values))
    for times, weights in _panels(chances, counts):
        logs = np.log1p(-np.outer(times, chances))
        # The integral of all items; each then gives its own factor back.
        integrals += weights @ np.exp((logs @ counts)[:, None] - logs)
    law: list[float] = (chances * integrals)[places.ravel()].tolist()
    return law


def _panels(chances: Floats, counts: Ints) -> Iterator[tuple[Floats, Floats]]:
    """Yield nodes and weights that cover [0, 1] as far as the integrand counts."""
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    # The largest factor is left out of one integral and cannot end it.
    rest = counts.copy()
    rest[-1] -= 1
    start = 0.0
    while start < 1 and -(rest @ np.log1p(-start * chances)) <= END:
        slope = float((counts * chances / (1 - start * chances)).sum())
        end = min(1.0, start + FALL / slope)
        # Close to 1 a panel that leaves next to nothing takes it too.
        if 1 - end < 1e-3 * (1 - start):
            end = 1.0
        yield start + (end - start) * nodes, (end - start) * weights
        start = end


def exponents(scores: Sequence[float], epsilon: float, sensitivity: float = 1) -> list[float]:
    """Return ε (q_r − q*)/(2Δ) of each finite score: at most 0, correctly rounded.

    ``epsilon`` is at least 0, Δ = ``sensitivity`` positive.
    """
    if not (len(scores) and all(isfinite(score) for score in scores)):
        raise ParameterError("scores must be finite, and at least one")
    if not 0 <= epsilon < inf:
        raise ParameterError(f"epsilon must be finite and at least 0, not {epsilon}")
    if not 0 < sensitivity < inf:
        raise ParameterError(f"sensitivity must be positive, not {sensitivity}")
    best = Fraction(max(scores))
    scale = Fraction(epsilon) / Fraction(sensitivity) / 2
    least = Fraction(-(10**300))
    known = {score: float(max(scale * (Fraction(score) - best), least)) for score in set(scores)}
    return [known[score] for score in scores]


def expected_error(scores: Sequence[float], law: Sequence[float]) -> float:
    """Return the mean distance from the best score under a law."""
    best = max(scores)
    return fsum((best - score) * p for score, p in zip(scores, law, strict=True))


def exponential_pmf(scores: Sequence[float], epsilon: float, sensitivity: float = 1) -> list[float]:
    """Return the exponential mechanism's probabilities, proportional to e to the exponents.

    >>> [round(p, 4) for p in exponential_pmf([5, 3, 1], 1.0)]
    [0.6652, 0.2447, 0.09]
    """
    weights = [exp(x) for x in exponents(scores, epsilon, sensitivity)]
    total = fsum(weights)
    return [weight / total for weight in weights]


def permute_and_flip_pmf(
    scores: Sequence[float], epsilon: float, sensitivity: float = 1
) -> list[float]:
    """Return permute-and-flip's probabilities, e to the exponents being those of acceptance.

    Its expected error is never above the exponential mechanism's, and down to half of it.

    >>> [round(p, 4) for p in permute_and_flip_pmf([5, 3, 1], 1.0)]
    [0.765, 0.1756, 0.0594]
    """
    return float_flips(exponents(scores, epsilon, sensitivity))


def propose_test_release_pmf(
    scores: Sequence[int], test_epsilon: float, epsilon: float, delta: float
) -> list[float]:
    """Return the law of: the best item if a private test finds it far ahead, permute-and-flip else.

    (ε₁ + ε₂, δ)-differentially private with ε₁ = ``test_epsilon`` and ε₂ = ``epsilon``, for integer
    scores that differ by at most 1 each. *Proof.* The distance d = max(0, ⌈gap/2⌉ − 1) changes by
    at most 1, since the gap between the best two scores changes by at most 2. The test passes with
    probability s(d), s(0) = δ, and neither s nor 1 − s changes by a factor above e^ε₁ from one d to
    the next. Passing costs ε₁ and failing ε₁ + ε₂ if the best item is the same. Otherwise d = 0 on
    both sides and the test passes with probability δ.

    At the same total ε it is better than permute-and-flip only for about 1/δ items or more. With
    ε = 1, 20 items and a gap of 30, permute-and-flip is wrong with probability 2.9e-6:

    >>> scores = [30] + 19 * [0]
    >>> f"{1 - propose_test_release_pmf(scores, 0.5, 0.5, 1e-6)[0]:.1e}"
    '5.2e-03'
    """
    check_at_least("the number of scores", len(scores), 2)
    check_at_least("test_epsilon", test_epsilon, 0)
    check_probability("delta", delta)
    best, second = sorted(scores, reverse=True)[:2]
    distance = max(0, -(-(best - second) // 2) - 1)
    passing, growth = delta, exp(min(test_epsilon, 700))
    for _ in range(distance):
        passing = min(passing * growth, 1 - (1 - passing) / growth)
    law = [(1 - passing) * share for share in permute_and_flip_pmf(scores, epsilon)]
    law[scores.index(best)] += passing
    return law


def hockey_stick(law: Sequence[float], other: Sequence[float], epsilon: float) -> float:
    """Return the hockey-stick divergence Σ max(0, P − e^ε P'): the least δ that covers the pair."""
    # In two parts: e^ε may overflow where its product with a tiny probability does not.
    growth, more = exp(min(epsilon, 700)), exp(min(max(epsilon - 700, 0), 700))
    return fsum(max(0.0, p - growth * q * more) for p, q in zip(law, other, strict=True))


def claims() -> list[Case]:
    """Return the claims of both mechanisms, which hold, for neighbours that change both scores."""
    return [
        Case(
            f"{name}, scores (0, 6) and (1, 5)",
            source,
            1.0,
            1.0,
            law_release(law([0, 6], 1.0), law([1, 5], 1.0)),
            "",
        )
        for name, source, law in (
            ("exponential mechanism", "McSherry, Talwar 2007", exponential_pmf),
            ("permute-and-flip", "McKenna, Sheldon 2020", permute_and_flip_pmf),
        )
    ]
