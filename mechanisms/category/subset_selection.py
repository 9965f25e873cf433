"""Subset selection: report a random subset of the categories, with the true one in it or not."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from math import expm1

from mechanisms.arrays import Any
from mechanisms.base import Epsilon
from mechanisms.category.oracle import FrequencyOracle
from mechanisms.chains.subsets import SubsetChain
from mechanisms.chains.supporting import support_thresholds
from mechanisms.errors import ParameterError, check_int, check_positive
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen

#: A report has a bit a category, 128 bytes at most. Larger domains are for local hashing, which has
#: nearly the same error with reports of a few bytes.
MAX_DOMAIN = 1024


@frozen
class SubsetSelection(FrequencyOracle):
    """Report a random subset of k categories, with the true one in it more often than not.

    ``epsilon`` lies in [1e-6, 40], ``domain_size``, the number m of categories, in [2, 1024], and
    ``subset_size``, k, in [1, m/2]; by default it is the one of least variance, close to m / (e^ε +
    1).

    Privacy
    -------
    Any two categories are neighbours. The true one is in the set with p; given that, all sets are
    equally likely. The largest likelihood ratio is exactly p (m−k) / ((1−p) k).

    Relaxation
    ----------
    Always, with fixed k: keep the set, or replace it by a uniform one.

    Utility
    -------
    Another category is in the set with q = (k−p)/(m−1). The share of a category of true share π has
    variance [π p(1−p) + (1−π) q(1−q)] / (n (p−q)²): of all mechanisms, the least worst-case one for
    the sum over categories, to leading order.

    Use
    ---
    For domains of some tens to a thousand categories where the payload, a bit a category, is
    acceptable: never worse than generalized randomized response (k = 1) or unary encoding.

    References
    ----------
    M. Ye, A. Barg, "Optimal Schemes for Discrete Distribution Estimation under Locally Differential
    Privacy", IEEE Transactions on Information Theory 64(8), 2018, eq. 9. S. Wang, L. Huang, P.
    Wang, Y. Nie, H. Xu, W. Yang, X. Li, C. Qiao, "Mutual Information Optimally Local Private
    Discrete Distribution Estimation", arXiv:1607.08025.

    Examples
    --------
    >>> subset = SubsetSelection(epsilon=1.0, domain_size=10)
    >>> subset.subset_size, round(subset.p, 4), round(subset.q, 4), subset.certified()
    (3, 0.5381, 0.2735, 1000000)
    """

    epsilon: Epsilon
    domain_size: int
    subset_size: int = 0

    name = "subset"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"subset_size": best_subset_size(micro / MICRO, given["domain_size"])}

    def _check(self) -> None:
        size = self.domain_size
        _check_size(size)
        if not 1 <= self.subset_size <= size // 2:
            raise ParameterError(
                f"subset_size must lie in [1, {size // 2}], half of the domain, "
                f"not {self.subset_size!r}"
            )

    @cached_property
    def chain(self) -> SubsetChain:
        share = Fraction(self.subset_size, self.domain_size)
        thresholds = support_thresholds(share, self.micros)
        return SubsetChain(*thresholds, self.domain_size, self.subset_size)


def best_subset_size(epsilon: float, domain_size: int) -> int:
    """Return the subset size of least variance summed over categories (Ye, Barg, section III)."""
    _check_size(domain_size)
    check_positive(epsilon)
    gain = expm1(min(epsilon, 300.0))
    ideal = domain_size / (gain + 2)
    nearby = {min(max(int(ideal) + step, 1), domain_size // 2) for step in (-1, 0, 1, 2)}
    return min(sorted(nearby), key=lambda k: _variance(gain, domain_size, k))


def _check_size(domain_size: int) -> None:
    if type(domain_size) is int and domain_size > MAX_DOMAIN:
        raise ParameterError(
            f"domain_size must lie in [2, {MAX_DOMAIN}], not {domain_size}: a report of subset "
            "selection has a bit a category, and local_hashing nearly the same error in a few bytes"
        )
    check_int("domain_size", domain_size, 2, MAX_DOMAIN)


def _variance(gain: float, m: int, k: int) -> float:
    """Return n times the variance, summed over categories, up to a factor that k leaves alone."""
    # p (k e + m − k) = k e, and p − q = k (m − k) gain / ((m − 1) (k e + m − k)).
    weight = k * gain + m
    p, rest = k * (gain + 1) / weight, (m - k) / weight
    q = (k - p) / (m - 1)
    return (p * rest + (m - 1) * q * (1 - q)) * (weight / (k * (m - k))) ** 2
