"""Claims about relaxation from which a condition of the paper is dropped."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from mechanisms.arrays import Bools
from mechanisms.audit.cases import Case, Views, unit
from mechanisms.audit.guessing import key_of
from mechanisms.randomness import Source
from papers.gradual_release.formulas import relaxation


def claims() -> list[Case]:
    """Return what relaxation costs if a condition is dropped: the value, or its rounding, kept."""
    fresh = (0.5, 1.0, 2.0)
    rounded, redrawn, pair = (1.0, 1.5, 2.0), *_worst_rounding((1.0, 1.5, 2.0))
    return [
        Case(
            "relaxation 1, 1.5, 2, number rounded anew",
            "M. Pan 2024, 5.2, z not kept",
            rounded[-1],
            redrawn,
            partial(_rounded, rounded, pair),
            "each report is about another draw of z",
        ),
        Case(
            "relaxation 1, 2, value changed between",
            "M. Pan 2024, 3, value not kept",
            2.0,
            2 * 1.0 + 2.0,
            _changed,
            "the second report corrects the first",
        ),
        Case(
            "randomized response 0.5, 1, 2, each fresh",
            "composition",
            fresh[-1],
            math.fsum(fresh),
            partial(_fresh, fresh),
            "budgets add",
        ),
    ]


def _relaxed(before: Bools, bits: Bools, low: float, high: float, source: Source) -> Bools:
    """Return the stronger binary report given the weaker one and the bit."""
    law = relaxation(2, low, high)
    right = unit(len(bits), source) < np.where(before == bits, law.p_aa, law.p_ba)
    return bits ^ ~right


def _answered(bits: Bools, epsilon: float, source: Source) -> Bools:
    return bits ^ (unit(len(bits), source) >= 1 / (1 + math.exp(-epsilon)))


def _columns(reports: Sequence[Bools]) -> Views:
    return {"all reports": key_of(np.stack(reports, axis=1).astype(np.int64))}


def _rounded(
    epsilons: Sequence[float], pair: tuple[float, float], secrets: Bools, source: Source
) -> Views:
    values, n = np.where(secrets, pair[1], pair[0]), len(secrets)
    reports = [_answered(unit(n, source) < values, epsilons[0], source)]
    for low, high in itertools.pairwise(epsilons):
        reports.append(_relaxed(reports[-1], unit(n, source) < values, low, high, source))
    return _columns(reports)


def _changed(secrets: Bools, source: Source) -> Views:
    """Report (0, 1) or (1, 0) at epsilons 1 and 2: the bit is another one at the second level."""
    first = _answered(secrets, 1.0, source)
    return _columns([first, _relaxed(first, ~secrets, 1.0, 2.0, source)])


def _fresh(epsilons: Sequence[float], secrets: Bools, source: Source) -> Views:
    return _columns([_answered(secrets, epsilon, source) for epsilon in epsilons])


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
