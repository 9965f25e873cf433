"""What a ladder is worth: how estimates sharpen, and what else the budget would buy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TypeAlias

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.papers.noisy_sampling import Comparison, compare, noisy_sampling_epsilon

#: Builds a mechanism at one nominal micro-epsilon.
Builder: TypeAlias = Callable[[int], Mechanism]
#: The standard error of a mechanism at a level.
Errors: TypeAlias = Callable[[Mechanism, int], float]
#: The largest thousandth of epsilon that is tried.
MOST = 16_000


@dataclass(frozen=True)
class Step:
    """A rung beside independent reports for the same total.

    Attributes
    ----------
    level : int
    certified : int
        Micro-epsilon that the chain up to this rung costs, and so many reports together.
    relaxed : float
        Standard error by the newest rung of the chain.
    fresh : float or None
        Standard error of independent reports, one a rung, at the differences of the epsilons and
        averaged with the best weights; None where one of them cannot be had.
    """

    level: int
    certified: int
    relaxed: float
    fresh: float | None


def steps(chain: Mechanism, builder: Builder, error: Errors) -> list[Step]:
    """Compare every rung of a ladder with as many fresh reports at the same total cost.

    Parameters
    ----------
    chain : Mechanism
        With all rungs that are compared.
    builder : callable
        From a nominal micro-epsilon to the mechanism for a report of its own.
    error : callable
        From a mechanism and a level to the standard error that is compared, of any number of
        clients, each of whom reports all rungs.

    Notes
    -----
    Relaxed reports cost the last of them, fresh ones the sum. Weights by inverse variance, as taken
    here in favour of the fresh ones, are unbiased only where all clients report all of them.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> from mechanisms.planner.precision import precision
    >>> def error(mechanism, level):
    ...     return precision(mechanism, level).standard_error(10_000)
    >>> chain = GeneralizedRandomizedResponse((0.5, 2.0), 2)
    >>> fresh = lambda micro: GeneralizedRandomizedResponse(micro / 1e6, 2)
    >>> for step in steps(chain, fresh, error):
    ...     print(step.level, round(step.relaxed, 4), round(step.fresh, 4))
    0 0.0198 0.0198
    1 0.0043 0.0058
    """
    found: list[Step] = []
    information: float | None = 0.0
    for level in range(chain.levels):
        below = chain.nominal(level - 1) if level else 0
        alone = _alone(builder, chain.nominal(level) - below, error)
        if information is not None:
            information = None if alone is None else information + 1 / alone**2
        fresh = None if information is None else 1 / sqrt(information)
        found.append(Step(level, chain.certified(level), error(chain, level), fresh))
    return found


def _alone(builder: Builder, micro: int, error: Errors) -> float | None:
    try:
        return error(builder(micro), 0)
    except ParameterError:
        return None


def sampled_instead(ladder: Sequence[int], n: int) -> list[Comparison]:
    """Compare a ladder with noisy sampling of one permanent response, for one yes or no.

    The permanent response has the epsilon of the last rung, which is what all samples ever cost;
    each is a fresh response to it, the first at the cost of the first rung.

    Parameters
    ----------
    ladder : sequence of int
        Nominal micro-epsilon, weakest first, at least two.
    n : int
        Clients.

    Returns
    -------
    list of Comparison
        After as many samples as the ladder has rungs up to each.

    Raises
    ------
    ParameterError
        There are fewer than two rungs.

    Examples
    --------
    >>> for row in sampled_instead([500_000, 1_000_000, 2_000_000], 10_000):
    ...     print(row.samples, round(row.epsilon, 3), round(row.noisy_sampling**0.5, 4))
    1 0.5 0.0198
    2 0.954 0.0143
    3 1.325 0.0119
    """
    if len(ladder) < 2:
        raise ParameterError("noisy sampling is compared with ladders of at least two rungs")
    first, last = ladder[0] / MICRO, ladder[-1] / MICRO
    low, high = first, 700.0
    for _ in range(100):
        middle = (low + high) / 2
        if noisy_sampling_epsilon(last, middle, 1) < first:
            low = middle
        else:
            high = middle
    return compare(last, high, range(1, len(ladder) + 1), n)


def epsilon_for(
    builder: Builder, reached: Callable[[Mechanism], float], target: float
) -> int | None:
    """Return the micro-epsilon at which a measure of precision is small enough, if there is one.

    Parameters
    ----------
    builder : callable
        Builds the mechanism at one nominal micro-epsilon.
    reached : callable
        From such a mechanism to what it reaches.
    target : float
        What should be reached.

    Returns
    -------
    int or None
        Rounded up to a thousandth of epsilon; None if epsilon 16 is not enough.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> from mechanisms.planner.precision import precision
    >>> grr = lambda micro: GeneralizedRandomizedResponse(micro / 1e6, 2)
    >>> epsilon_for(grr, lambda made: precision(made, 0).standard_error(10_000), 0.01)
    963000
    """

    def enough(thousandths: int) -> bool:
        try:
            return reached(builder(thousandths * 1000)) <= target
        except ParameterError:
            return False

    low, high = 0, MOST
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * 1000
