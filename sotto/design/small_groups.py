"""How many reports groups take, each of which needs a minimum for its figures to be published."""

from __future__ import annotations

from bisect import bisect_left
from functools import cache
from math import exp, fsum, isqrt, lgamma, log, log1p


def short_of(mean: float, least: int) -> float:
    """Return how probable fewer reports than ``least`` are where ``mean`` come on average.

    Reports come independently (Poisson's law).

    >>> [round(short_of(mean, 20), 4) for mean in (25, 30, 40)]
    [0.1336, 0.0219, 0.0002]
    """
    return fsum(exp(k * log(mean) - mean - lgamma(k + 1)) for k in range(least))


@cache
def published_from(groups: int, least: int) -> int:
    """Return from how many reports of a level on it is published in 95 % of windows.

    That is when each of so many ``groups`` of them, equally large on average, has ``least``; with
    one group, as many. The numbers of reports of groups are taken as independent (binomial law).

    >>> published_from(1, 20), published_from(16, 20)
    (20, 542)
    """
    if groups == 1:
        return least

    # Fewer are far too improbable to count.
    first = max(least - 10 * isqrt(least) - 100, 0)

    def often(reports: int) -> bool:
        few = fsum(
            exp(
                lgamma(reports + 1)
                - lgamma(k + 1)
                - lgamma(reports - k + 1)
                - k * log(groups)
                + (reports - k) * log1p(-1 / groups)
            )
            for k in range(first, least)
        )
        return groups * log1p(-min(few, 0.5)) >= log(0.95)

    start = groups * least
    return bisect_left(range(start, 64 * start), True, key=often) + start
