"""The variance of what Bloom filters will tell, from the noise of their bits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mechanisms.string.rappor import RapporLadder

#: Reports of a cohort, so many that what is random about them is as good as exact.
_EACH = 10**12


def string_variances(
    mechanism: RapporLadder, level: int, candidates: Sequence[str], shares: Sequence[float]
) -> list[float]:
    """Return n times the variances of the candidates' shares and of the unexplained share.

    Parameters
    ----------
    mechanism : RapporLadder
    level : int
    candidates : sequence of str, length S
    shares : sequence of float, length S
        Their true shares; what is left is taken to be spread over strings that share no bits.

    Returns
    -------
    list of float, length S + 1
        Infinite where the filters cannot tell.

    Notes
    -----
    :func:`mechanisms.string.bloom_regression.estimate_errors` of counts without noise: the noise
    of every
    bit is known, and that of the random cohorts follows from the shares. Frequent strings that
    are no candidates would add to it.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> rappor = build({"name": "rappor", "bits": 64, "hashes": 2, "cohorts": 8}, [4_000_000], "s")
    >>> [round(v, 2) for v in string_variances(rappor, 0, ["oslo", "rome"], [0.5, 0.5])]
    [0.48, 0.48, 0.98]
    """
    import numpy as np

    from mechanisms.string.bloom_regression import Observed, bloom_filters, estimate_errors, fit

    names, true = tuple(candidates), np.asarray(shares, dtype=np.float64)
    width, cohorts = mechanism.bits, mechanism.cohorts
    p, q = mechanism.probabilities(level)[0]
    unit = q * (1 - q) / (p - q) ** 2
    density = 1 - (1 - 1 / width) ** mechanism.hashes
    filters = bloom_filters(names, width, mechanism.hashes, cohorts)
    bits = (filters @ true + (1 - true.sum()) * density).reshape(cohorts, width)
    reports = np.full(cohorts, _EACH, dtype=np.int64)
    observed = Observed(
        np.arange(cohorts), reports, bits, reports / unit, np.zeros(cohorts), density
    )
    errors = estimate_errors(observed, filters, fit(observed, filters), true, 1.0)
    found: list[float] = (errors.variances * float(_EACH * cohorts)).tolist()
    return found
