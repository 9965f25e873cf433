"""What papers claim that is not so, and what happens to a claim when a condition is dropped.

Each entry has the epsilon that is claimed, the true one by exact calculation, and a sampler from
which two inputs are told apart. All samplers are the published procedures; their probabilities are
floating point where the papers' are, so that the true epsilon is that of the formulas.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.audit.attack import fair_bits
from mechanisms.audit.cases import Case, Release, Views, unit
from mechanisms.audit.guessing import key_of, score_key
from mechanisms.audit.loloha import loloha
from mechanisms.number.originals import LaplaceOriginal
from mechanisms.ordinal.qloss import exponential_rows
from mechanisms.papers.bitrand import FeatureRandomizedResponse, frr_losses
from mechanisms.papers.deck import ImprovedChristofides, deck_epsilon
from mechanisms.papers.exponential_randomized_response import (
    ExponentialRandomizedResponse,
    staircase,
)
from mechanisms.papers.relaxation import relaxation
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_ERR = "ERR, Theorem 1"
_BITRAND = "BitRand, Theorem 2"
_GRADUAL = "M. Pan 2024"


def published() -> tuple[Case, ...]:
    """Return all claims."""
    return (
        *_bitrand(),
        *_selection(),
        _census(),
        *_relaxations(),
        loloha(),
        *_exponentials(),
        _laplace(),
    )


def _law_release(one: Sequence[float], other: Sequence[float]) -> Release:
    """Return what draws from one of two laws of the same outcomes."""

    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        drawn = unit(len(secrets), source)
        outcomes = [
            np.minimum(np.searchsorted(np.cumsum(law), drawn, side="right"), len(law) - 1)
            for law in (one, other)
        ]
        return {"the outcome": key_of(np.where(secrets, outcomes[1], outcomes[0])[:, None])}

    return release


def _frr_release(frr: FeatureRandomizedResponse) -> Release:
    """Return what reports one of two vectors of which all bits differ."""

    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        # How much a bit of 1 speaks for the second vector: ln(p/q) where it is set there.
        losses = np.array(frr_losses(frr.epsilon, frr.features, frr.bits))
        ends = np.array([0.0, -frr.encoding.limit])
        signs = 2.0 * frr.encoding.encode(ends[1:])[0] - 1
        scores, block = np.empty(len(secrets)), max(1, 2**22 // (frr.features * frr.bits))
        for start in range(0, len(secrets), block):
            part = secrets[start : start + block].astype(np.int64)
            values = np.repeat(ends[part][:, None], frr.features, axis=1)
            bits = frr.randomize(values, source)
            scores[start : start + block] = -((2.0 * bits - 1) * signs * losses).sum(axis=(1, 2))
        return {"what is likelier": score_key(np.sign(scores)), "all bits": score_key(scores)}

    return release


def _bitrand() -> list[Case]:
    out = []
    for features in (1, 1000):
        frr = FeatureRandomizedResponse(1.0, features, 10, 5)
        out.append(
            Case(
                f"f-RR, 10 bits, r = {features}",
                _BITRAND,
                frr.epsilon,
                frr.certified_epsilon,
                _frr_release(frr),
                "the proof bounds the reciprocal ratio",
                max(1, features // 10),
            )
        )
    return out


def _selection() -> list[Case]:
    small, large = (ExponentialRandomizedResponse(0.5, epsilon) for epsilon in (0.1, 1.0))
    cases = [("scores (2, 0) and (1, 0)", small, ([2, 0], [1, 0]))]
    cases += [(f"a staircase of {n}", large, staircase(n)) for n in (10, 100)]
    return [
        Case(
            f"ERR, p = 1/2, {what}",
            _ERR,
            err.epsilon,
            err.loss(one, other),
            _law_release(err.pmf(one), err.pmf(other)),
            "neighbours have other near-best items",
        )
        for what, err, (one, other) in cases
    ]


def _census() -> Case:
    deck = ImprovedChristofides((40, 1, 59))
    return Case(
        "Improved Christofides, census of 100",
        "the same, Theorem 5.6",
        deck.nominal_epsilon,
        deck_epsilon(deck.deck, deck.size),
        _deck_release(deck),
        "other answers tell the last card",
        10,
    )


def _deck_release(deck: ImprovedChristofides) -> Release:
    """Return the cards of a census; the attacker knows all truths but one, and sees all answers."""

    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        numbers = np.repeat(np.arange(1, len(deck.deck) + 1), deck.deck)
        mirror = len(deck.deck) + 1
        words = source.words(len(secrets) * deck.size).reshape(-1, deck.size)
        cards = numbers[np.argsort(words, axis=1)]
        truths = fair_bits(cards.size, source).reshape(cards.shape)
        truths[:, 0] = secrets
        answers = np.where(truths, cards, mirror - cards)
        others = np.where(truths[:, 1:], answers[:, 1:], mirror - answers[:, 1:])
        left = numbers.sum() - others.sum(axis=1)
        return {"the last card and its answer": key_of(np.stack([left, answers[:, 0]], axis=1))}

    return release


def _relaxations() -> list[Case]:
    fresh = (0.5, 1.0, 2.0)
    rounded, redrawn, pair = (1.0, 1.5, 2.0), *_worst_rounding((1.0, 1.5, 2.0))
    return [
        Case(
            "relaxation 1, 1.5, 2, number rounded anew",
            f"{_GRADUAL}, 5.2, z not kept",
            rounded[-1],
            redrawn,
            _rounded_release(rounded, pair),
            "each report is about another draw of z",
        ),
        Case(
            "relaxation 1, 2, value changed between",
            f"{_GRADUAL}, 3, value not kept",
            2.0,
            2 * 1.0 + 2.0,
            _changed_release((1.0, 2.0)),
            "the second report corrects the first",
        ),
        Case(
            "randomized response 0.5, 1, 2, each fresh",
            "composition",
            fresh[-1],
            math.fsum(fresh),
            _fresh_release(fresh),
            "budgets add",
        ),
    ]


def _relaxed(
    before: NDArray[np.bool_],
    bits: NDArray[np.bool_],
    low: float,
    high: float,
    source: Source,
) -> NDArray[np.bool_]:
    """Return the stronger binary report given the weaker one and the bit."""
    import numpy as np

    law = relaxation(2, low, high)
    right = unit(len(bits), source) < np.where(before == bits, law.p_aa, law.p_ba)
    return bits ^ ~right


def _answered(bits: NDArray[np.bool_], epsilon: float, source: Source) -> NDArray[np.bool_]:
    return bits ^ (unit(len(bits), source) >= 1 / (1 + math.exp(-epsilon)))


def _columns(reports: Sequence[NDArray[np.bool_]]) -> Views:
    import numpy as np

    return {"all reports": key_of(np.stack(reports, axis=1).astype(np.int64))}


def _rounded_release(epsilons: Sequence[float], pair: tuple[float, float]) -> Release:
    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        values, n = np.where(secrets, pair[1], pair[0]), len(secrets)
        reports = [_answered(unit(n, source) < values, epsilons[0], source)]
        for low, high in itertools.pairwise(epsilons):
            bits = unit(n, source) < values
            reports.append(_relaxed(reports[-1], bits, low, high, source))
        return _columns(reports)

    return release


def _changed_release(epsilons: tuple[float, float]) -> Release:
    """Return reports of (0, 1) or of (1, 0): the bit is another one at the second level."""

    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        first = _answered(secrets, epsilons[0], source)
        return _columns([first, _relaxed(first, ~secrets, *epsilons, source)])

    return release


def _fresh_release(epsilons: Sequence[float]) -> Release:
    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        return _columns([_answered(secrets, epsilon, source) for epsilon in epsilons])

    return release


def _worst_rounding(epsilons: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Return the loss of relaxing a number in [0, 1] that is rounded anew, and where it occurs."""
    grid = [place / 100 for place in range(101)]
    worst, pair = 0.0, (0.0, 1.0)
    for outs in itertools.product((0, 1), repeat=len(epsilons)):
        chances = [_rounded_chance(epsilons, outs, x) for x in grid]
        low, high = min(chances), max(chances)
        if math.log(high / low) > worst:
            worst = math.log(high / low)
            pair = grid[chances.index(low)], grid[chances.index(high)]
    return worst, pair


def _rounded_chance(epsilons: Sequence[float], outs: Sequence[int], x: float) -> float:
    keep = 1 / (1 + math.exp(-epsilons[0]))
    chance = x * keep + (1 - x) * (1 - keep) if outs[0] else x * (1 - keep) + (1 - x) * keep
    for (low, high), (before, after) in zip(
        itertools.pairwise(epsilons), itertools.pairwise(outs), strict=True
    ):
        law = relaxation(2, low, high)
        step = 0.0
        for bit, weight in ((1, x), (0, 1 - x)):
            right = law.p_aa if before == bit else law.p_ba
            step += weight * (right if after == bit else 1 - right)
        chance *= step
    return chance


def _exponentials() -> list[Case]:
    """Return the exponential mechanism over 20 points, by how its exponent is scaled."""
    points, epsilon = 20, 1.0
    out = []
    for what, exponent, source, why in (
        (
            "epsilon / (2 delta)",
            epsilon / 2,
            "BRR, Definition 2.5",
            "epsilon / delta is exact here",
        ),
        ("delta of 1", epsilon * (points - 1) / 2, "the same misread", "scores differ by up to 19"),
    ):
        rows = exponential_rows(points, exponent)
        true = max(math.log(max(column) / min(column)) for column in zip(*rows, strict=True))
        release = _law_release(rows[0], rows[-1])
        name = f"exponential mechanism, 20 points, {what}"
        out.append(Case(name, source, epsilon, true, release, why))
    return out


def _laplace() -> Case:
    """Return Laplace noise in floating point, and what its last digits tell."""
    laplace = LaplaceOriginal(1.0)

    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        generator = np.random.default_rng(source.words(4))
        drawn = laplace.simulate(secrets.astype(np.float64), generator) * 2.0**53
        # Near zero 1 + noise is a multiple of 2**-53, and noise alone need not be.
        return {"the last digits": score_key((np.rint(drawn) == drawn).astype(np.float64))}

    return Case(
        "Laplace noise, of numbers 0 and 1, as floats",
        "Dwork et al. 2006; Mironov 2012",
        laplace.epsilon,
        laplace.certified_epsilon,
        release,
        "some floats come from one value alone",
    )
