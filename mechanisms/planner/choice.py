"""Which mechanism answers a question best: all that can, ranked by their predicted error.

Predictions come from the realised probabilities of the last rung of the ladder asked for
(:mod:`mechanisms.planner.predictions`), for a question, a domain, a number of reports and, where
that matters, a picture of the data; without one, for the data that are worst for each mechanism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import sqrt
from typing import TYPE_CHECKING, Any

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.planner.predictions import mean_variance
from mechanisms.planner.ranking import Ranking, Spec, rank

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

#: Points of a grid, bits and draws with which mechanisms for a mean are tried.
GRID_POINTS, SAMPLED_BITS, DRAWS, SPLIT_BITS = 65, 10, (2, 4), (4, 8)
#: So many numbers stand for uniform data.
UNIFORM = 1000


def for_frequencies(
    domain_size: int, ladder: Sequence[int], n: int, shares: ArrayLike | None = None
) -> Ranking:
    """Rank the mechanisms for the shares of categories.

    Parameters
    ----------
    domain_size : int
        Categories, ``other`` and ``missing`` included.
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    shares : array_like, shape (domain_size,), optional
        The true shares; by default all alike. The sum of the variances over all categories hardly
        depends on them (not at all, but for Hadamard response).

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder and the domain, or the shares are no distribution.

    Examples
    --------
    >>> [for_frequencies(m, [1_000_000], 10_000).best.spec["name"] for m in (2, 4)]
    ['grr', 'grr']
    """
    import numpy as np

    _check_reports(n)
    if shares is None:
        true = np.full(max(domain_size, 1), 1 / max(domain_size, 1))
    else:
        true = np.asarray(shares, dtype=np.float64)
    if true.shape != (domain_size,) or not (true >= 0).all() or not abs(true.sum() - 1) <= 1e-9:
        raise ParameterError("shares must be non-negative, one a category, with sum 1")

    def error(mechanism: Any, level: int) -> float:
        return sqrt(float(mechanism.variances(level, true).mean()) / n)

    specs = _category_specs(domain_size, ladder)
    return rank("a share", specs, ladder, n, error)


def for_mean(
    ladder: Sequence[int],
    n: int,
    values: ArrayLike | str | None = None,
    *,
    missing: bool = False,
    public_coins: bool = True,
) -> Ranking:
    """Rank the mechanisms for the mean of a number.

    Parameters
    ----------
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    values : array_like, shape (N,), or "uniform", optional
        In [0, 1], a picture of the data; by default for each mechanism those that are worst.
    missing : bool
        Whether it must be possible to say that a value is missing.
    public_coins : bool
        Whether mechanisms with coins from the chain id can be had.

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder, or the values are no numbers in [0, 1].

    Examples
    --------
    >>> [for_mean([e * 1_000_000], 10_000).best.spec["name"] for e in (1, 2, 4)]
    ['threshold', 'hybrid', 'hybrid']
    """
    _check_reports(n)
    picture = _picture(values)

    def error(mechanism: Mechanism, level: int) -> float:
        return sqrt(mean_variance(mechanism, level, picture, n) / n)

    specs = _number_specs(missing)
    if not public_coins:
        specs = [spec for spec in specs if spec["name"] not in _COINS]
    return rank("a mean, in parts of the range,", specs, ladder, n, error)


def for_distribution(
    ladder: Sequence[int], n: int, values: ArrayLike | str, *, runs: int = 20, seed: int = 0
) -> Ranking:
    """Rank the mechanisms for the quantiles of a number, by simulation.

    The errors of quantiles after isotonic regression or smoothing have no closed form: counts
    are drawn from the realised probabilities ``runs`` times, the estimator is run on each, and
    the root mean square over the quantiles 0.1, 0.25, 0.5, 0.75 and 0.9 is what it was.

    Parameters
    ----------
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    values : array_like, shape (N,), or "uniform"
        In [0, 1], a picture of the data.
    runs : int, at least 2
    seed : int
        Equal seeds give equal rankings.

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder, or the values are no numbers in [0, 1].
    """
    from mechanisms.planner.simulation import quantile_error

    _check_reports(n)
    picture = _picture(values)
    if picture is None or not runs >= 2:
        raise ParameterError("quantiles need a picture of the data and at least 2 runs")

    def error(mechanism: Mechanism, level: int) -> float:
        return quantile_error(mechanism, level, picture, n, runs, seed)

    specs: list[Spec] = [
        {"name": "threshold", "missing": False},
        {"name": "square_wave", "points": GRID_POINTS, "missing": False},
    ]
    specs += [{"name": name, "domain_size": 16} for name in ("grr", "oue")]
    return rank("a quantile, in parts of the range,", specs, ladder, n, error)


def for_strings(
    ladder: Sequence[int],
    n: int,
    shares: ArrayLike,
    *,
    known: bool,
    bits: int = 128,
    hashes: int = 2,
    cohorts: int = 16,
) -> Ranking:
    """Rank the mechanisms for the shares of the most frequent strings.

    Parameters
    ----------
    ladder : sequence of int
        Micro-epsilon, weakest first; the error is that of the last rung.
    n : int
        Reports.
    shares : array_like, shape (m,)
        The true shares of the strings that are looked for; the rest has another one.
    known : bool
        Whether the strings are known before the collection begins, so that devices can be told
        them as categories, with one for all others.
    bits, hashes, cohorts : int
        Of the Bloom filters.

    Raises
    ------
    ParameterError
        No mechanism can honour the ladder, or the shares are none.

    Notes
    -----
    The error of a Bloom filter is the estimator's own standard error at the expected counts.
    """
    import numpy as np

    _check_reports(n)
    true = np.asarray(shares, dtype=np.float64)
    if true.ndim != 1 or not true.size or not (true >= 0).all() or not true.sum() <= 1 + 1e-9:
        raise ParameterError("shares must be non-negative, one a string, with a sum of at most 1")
    whole = np.append(true, max(0.0, 1 - float(true.sum())))

    def error(mechanism: Any, level: int) -> float:
        return float(mechanism.share_error(level, true, n))

    specs: list[Spec] = [{"name": "rappor", "bits": bits, "hashes": hashes, "cohorts": cohorts}]
    if known:
        specs += _category_specs(len(whole), ladder)
    return rank("the share of a string", specs, ladder, n, error)


def _category_specs(domain_size: int, ladder: Sequence[int]) -> list[Spec]:
    """Return the mechanisms for categories with the parameters that are best at the last rung."""
    from mechanisms.category.hadamard import best_blocks
    from mechanisms.category.local_hashing import best_buckets
    from mechanisms.category.subset_selection import best_subset_size

    epsilon = ladder[-1] / MICRO if ladder else 0.0
    specs: list[Spec] = [
        {"name": name, "domain_size": domain_size} for name in ("grr", "oue", "sue")
    ]
    tuned: tuple[tuple[str, str, Callable[[float, int], int]], ...] = (
        ("local_hashing", "buckets", best_buckets),
        ("subset", "subset_size", best_subset_size),
        ("hadamard", "blocks", best_blocks),
    )
    for name, field, best in tuned:
        try:
            parameter = best(epsilon, domain_size)
        except ParameterError:
            continue
        specs.append({"name": name, "domain_size": domain_size, field: parameter})
    return specs


def _number_specs(missing: bool) -> list[Spec]:
    specs: list[Spec] = [{"name": name, "missing": missing} for name in ("threshold", "duchi")]
    specs += [
        {"name": name, "points": GRID_POINTS, "missing": missing}
        for name in ("hybrid", "piecewise", "square_wave")
    ]
    specs.append({"name": "sampled_bit", "bits": SAMPLED_BITS, "missing": missing})
    specs += [
        {"name": "sampled_bits", "bits": SAMPLED_BITS, "count": count, "missing": missing}
        for count in DRAWS
    ]
    specs += [{"name": "split_bits", "bits": bits, "missing": missing} for bits in SPLIT_BITS]
    return specs


def _picture(values: ArrayLike | str | None) -> Any:
    import numpy as np

    if values is None:
        return None
    if isinstance(values, str):
        if values != "uniform":
            raise ParameterError(f"values must be numbers or 'uniform', not {values!r}")
        return (np.arange(UNIFORM) + 0.5) / UNIFORM
    picture = np.asarray(values, dtype=np.float64)
    if picture.ndim != 1 or not picture.size or not ((picture >= 0) & (picture <= 1)).all():
        raise ParameterError("values must be one row of numbers in [0, 1]")
    return picture


def _check_reports(n: int) -> None:
    if not n >= 1:
        raise ParameterError(f"n must be at least 1, not {n}")


#: Mechanisms whose reports are read with a coin that is hashed from the chain id.
_COINS = frozenset({"threshold", "sampled_bit", "sampled_bits"})
