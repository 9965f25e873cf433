"""What a ladder is worth: how estimates sharpen, and what else the budget would buy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.gradual.noisy_sampling import Comparison, compare, noisy_sampling_epsilon
from mechanisms.ladders import LadderedMechanism, build
from mechanisms.precision import Assumed, precision

#: Builds a mechanism at one nominal micro-epsilon, its parameters as they are best there.
Builder = Callable[[int], LadderedMechanism]


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


def steps(
    spec: Mapping[str, Any],
    ladder: Sequence[int],
    n: int,
    assumed: Assumed | None = None,
    *,
    scale: float = 1.0,
) -> list[Step]:
    """Compare every rung of a ladder with as many fresh reports at the same total cost.

    Parameters
    ----------
    spec : mapping
        As :func:`mechanisms.ladders.build` takes it.
    ladder : sequence of int
        Nominal micro-epsilon, weakest first.
    n : int
        Clients, each of whom reports all rungs.
    assumed : Assumed, optional
    scale : float
        The length of the range.

    Notes
    -----
    Relaxed reports cost the last of them, fresh ones the sum. Weights by inverse variance, as taken
    here in favour of the fresh ones, are unbiased only where all clients report all of them.

    Examples
    --------
    >>> for step in steps({"name": "grr", "domain_size": 2}, [500_000, 2_000_000], 10_000):
    ...     print(step.level, round(step.relaxed, 4), round(step.fresh, 4))
    0 0.0198 0.0198
    1 0.0043 0.0058
    """
    chain = build(spec, ladder, "planning")
    found: list[Step] = []
    information: float | None = 0.0
    for level, micro in enumerate(ladder):
        relaxed = precision(chain, level, assumed, scale=scale).standard_error(n)
        alone = _error(spec, micro - (ladder[level - 1] if level else 0), n, assumed, scale)
        if information is not None:
            information = None if alone is None else information + 1 / alone**2
        fresh = None if information is None else 1 / sqrt(information)
        found.append(Step(level, chain.certified(level), relaxed, fresh))
    return found


def _error(
    spec: Mapping[str, Any], micro: int, n: int, assumed: Assumed | None, scale: float
) -> float | None:
    try:
        alone = build(spec, [micro], "planning")
    except ParameterError:
        return None
    return precision(alone, 0, assumed, scale=scale).standard_error(n)


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
    builder: Builder,
    measure: str,
    target: float,
    n: int,
    assumed: Assumed | None = None,
    *,
    scale: float = 1.0,
    confidence: float = 0.95,
    most: int = 16 * MICRO,
) -> int | None:
    """Return the micro-epsilon at which ``n`` reports are precise enough, or None if none is.

    Parameters
    ----------
    builder : callable
        Builds the mechanism at one nominal micro-epsilon.
    measure, target, n, assumed, scale, confidence
        As of :class:`~mechanisms.precision.Precision`.
    most : int
        The largest micro-epsilon that is tried.

    Returns
    -------
    int or None
        Rounded up to a thousandth of epsilon.

    Examples
    --------
    >>> grr = lambda micro: build({"name": "grr", "domain_size": 2}, [micro], "late")
    >>> epsilon_for(grr, "error", 0.01, 10_000)
    963000
    """

    def enough(thousandths: int) -> bool:
        try:
            found = precision(builder(thousandths * 1000), 0, assumed, scale=scale)
            return found.measure(measure, n, confidence) <= target
        except ParameterError:
            return False

    low, high = 0, most // 1000
    if not enough(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high * 1000
