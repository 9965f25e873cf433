"""What a ladder is worth: relaxed reports beside fresh ones, and beside noisy sampling.

Noisy sampling is RAPPOR's way to release more: one permanent response, and fresh responses to it.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, equations
65 and 68. Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR", CCS 2014.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from math import exp, expm1, log1p, sqrt
from typing import NamedTuple, TypeAlias

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO

#: Builds a mechanism at one nominal micro-epsilon.
Builder: TypeAlias = Callable[[int], Mechanism]
#: The standard error of a mechanism at a level.
Errors: TypeAlias = Callable[[Mechanism, int], float]
#: The largest thousandth of epsilon that is tried.
MOST = 16_000
#: The largest epsilon of the closed forms.
MAX_EPSILON = 700


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse an epsilon for which the closed forms do not hold."""
    if not 0 < epsilon <= MAX_EPSILON:
        raise ParameterError(f"{name} must lie in (0, {MAX_EPSILON}], not {epsilon}")


def bit_noise(epsilon: float) -> float:
    """Return e^ε/(e^ε − 1)², the variance of one debiased binary response."""
    check_epsilon(epsilon)
    return exp(-epsilon) / expm1(-epsilon) ** 2


class Step(NamedTuple):
    """A level beside independent reports for the same total.

    ``relaxed`` is the standard error by the newest level of the chain, which costs ``certified``
    micro-epsilon up to here; ``fresh`` that of as many independent reports, at the differences of
    the epsilons and averaged with the best weights, None where one of them cannot be had.
    """

    level: int
    certified: int
    relaxed: float
    fresh: float | None


def steps(chain: Mechanism, builder: Builder, error: Errors) -> list[Step]:
    """Compare every level of a ladder with as many fresh reports at the same total cost.

    ``builder`` makes a mechanism for a report of its own from a nominal micro-epsilon; ``error``
    gives the standard error of a level that is compared, of any number of clients, each of whom
    reports all levels. Relaxed reports cost the last of them, fresh ones the sum. Weights by
    inverse variance, as taken here in favour of the fresh ones, are unbiased only where all clients
    report all of them.
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


def noisy_sampling_epsilon(permanent: float, sample: float, samples: int) -> float:
    """Return what ``samples`` noisy samples of one permanent response cost (equation 65).

    Epsilons of the permanent response and of one sample lie in (0, 700]; the result increases with
    ``samples`` towards ``permanent``, which it never reaches.
    """
    check_epsilon(permanent, "permanent")
    check_epsilon(sample, "sample")
    if not samples >= 1:
        raise ParameterError(f"samples must be at least 1, not {samples}")
    low, high = sorted((permanent, samples * sample))
    return log1p(expm1(low) * -expm1(-high) / (1 + exp(low - high)))


class Comparison(NamedTuple):
    """Relaxation beside noisy sampling after so many samples, at equal total cost ``epsilon``.

    Both are variances of a share of n bits; that of relaxation is never larger, and equal after one
    sample.
    """

    samples: int
    epsilon: float
    noisy_sampling: float
    relaxation: float


def compare(permanent: float, sample: float, samples: Sequence[int], n: int) -> list[Comparison]:
    """Compare relaxation with noisy sampling at equal cost of n clients, by number of samples."""
    if not n >= 1:
        raise ParameterError(f"n must be at least 1, not {n}")
    rows = []
    for count in samples:
        epsilon = noisy_sampling_epsilon(permanent, sample, count)
        # Equation 68 in epsilons: 1/(1 − 2α)² is 1 + 4 f(ε), which loses nothing near one half.
        spread = 1 + 4 * bit_noise(permanent)
        noisy = bit_noise(sample) / count * spread + bit_noise(permanent)
        rows.append(Comparison(count, epsilon, noisy / n, bit_noise(epsilon) / n))
    return rows


def sampled_instead(ladder: Sequence[int], n: int) -> list[Comparison]:
    """Compare a ladder with noisy sampling of a permanent response, for one yes or no of n clients.

    The permanent response has the epsilon of the last level, which is what all samples ever cost;
    each is a fresh response to it, the first at the cost of the first level. There is a row for as
    many samples as the ladder, of at least two levels, has levels up to each.
    """
    if len(ladder) < 2:
        raise ParameterError("noisy sampling is compared with ladders of at least two levels")
    first, last = ladder[0] / MICRO, ladder[-1] / MICRO
    # Solve equation 65 for the epsilon of a sample that alone costs the first level.
    sample = log1p(expm1(first) * (1 + exp(-last)) / -expm1(first - last))
    return compare(last, sample, range(1, len(ladder) + 1), n)


def epsilon_for(
    builder: Builder, reached: Callable[[Mechanism], float], target: float
) -> int | None:
    """Return the micro-epsilon at which a measure of precision is small enough, if there is one.

    ``reached`` is what a mechanism that ``builder`` makes of a micro-epsilon reaches. Rounded up to
    a thousandth of epsilon; None if epsilon 16 is not enough.
    """

    def enough(thousandths: int) -> bool:
        try:
            return reached(builder(thousandths * 1000)) <= target
        except ParameterError:
            return False

    return 1000 * (1 + bisect_left(range(1, MOST), True, key=enough)) if enough(MOST) else None
