"""How precise the estimates of a level will be with so many reports, whatever the mechanism.

All variances come from realised probabilities. Values are fixed and the randomization is random;
all reports are of one level, and no value is missing. Data that are not given are the worst ones.
"""

from __future__ import annotations

from typing import Any

from mechanisms.arrays import np
from mechanisms.base import Mechanism
from mechanisms.errors import check_int, check_positive
from mechanisms.planner.targets import Assumed, Precision

#: So many reports are enough for a ratio to vary as if there were any number of them.
_MANY = 10**9


def precision(
    mechanism: Mechanism, level: int, assumed: Assumed | None = None, *, scale: float = 1.0
) -> Precision:
    """Return how precise the main estimate of a level will be, by default for the worst data.

    Precision of the share of a category, of yes, of a candidate string or of the devices whose most
    frequent item it is; of the mean of a number or of a coordinate, ``scale`` being the length of
    its range; of ordinal values that of the wider of the two bounds of the mean. An error says so
    where there is no such level, candidate strings are too much alike, or the error of the
    mechanism is not predicted.

    >>> from mechanisms.registry import build
    >>> grr = build({"name": "grr", "domain_size": 4}, [1_000_000, 2_000_000], "colour")
    >>> rare = precision(grr, 1, Assumed(share=0.01))
    >>> round(rare.width(10_000), 4), rare.reports("width", 0.02)
    (0.0189, 8957)
    >>> round(rare.floor(10_000), 4)
    0.0135
    """
    check_int("level", level, 0, mechanism.levels - 1)
    return mechanism.precision(level, assumed or Assumed(), scale)


def ordinal_mean(
    mechanism: Mechanism, level: int, assumed: Assumed | None = None, *, scale: float = 1.0
) -> Precision:
    """Return how precise the bounds of the mean of ordinal values will be: the wider of the two.

    For ``brr`` or ``grr``; ``values`` are points in [0, 1], and ``scale`` the length of the range.
    """
    from mechanisms.ordinal.estimates import mean_precision

    known: Any = mechanism
    missing = getattr(mechanism, "missing", False)
    return mean_precision(known.matrix(level), assumed or Assumed(), scale, missing=missing)


def retention(mechanism: Mechanism, level: int, share: float, *, panel: int = 1) -> Precision:
    """Return how precise the retention of devices will be, as published with ``panel`` panels.

    The ``share`` of the devices of a window are new in it, and of these one half come again; ``n``
    are the reports of each window. The variance is that of a ratio of shares of two windows,
    r² (v_k / s_k² + v_0 / s_0²), and of who has a turn.

    >>> from mechanisms.registry import build
    >>> ages = build({"name": "grr", "domain_size": 13}, [2_000_000], "age")
    >>> [round(retention(ages, 0, 0.1).width(n) / 2, 3) for n in (10**4, 10**5, 10**6)]
    [0.163, 0.052, 0.016]
    """
    check_positive(share, 1, "share")
    turns = 1 - 1 / panel
    spread = sum(
        precision(mechanism, level, Assumed(share=each)).variance(1) / each**2 + turns / each
        for each in (share / 2, share)
    )
    unit, data = spread / 4, f"{100 * share:g} % of each window's devices are new"
    return Precision("a retention of one half", data, lambda n: unit)


def conversion(mechanism: Mechanism, level: int, share: float) -> Precision:
    """Return how precise the conversions of a funnel will be: that of the least sure step.

    The ``share`` of the devices reach a step, and of these one half the next one or beyond. The
    variance is that of the estimate itself (:func:`mechanisms.estimators.ratios.conversions`) if
    there are many reports.

    >>> from mechanisms.registry import build
    >>> funnel = build({"name": "grr", "domain_size": 5}, [2_000_000], "checkout")
    >>> round(conversion(funnel, 0, 0.6).width(10**4) / 2, 4)
    0.0199
    """
    from mechanisms.estimators.ratios import conversions

    check_int("level", level, 0, mechanism.levels - 1)
    check_positive(share, 1, "share")
    known: Any = mechanism
    variances = []
    for step in range(min(2, known.domain_size - 1), known.domain_size):
        held = np.zeros(known.domain_size)
        np.add.at(held, [0, step - 1, step], [1 - share, share / 2, share / 2])
        counts = np.rint(_MANY * held @ known.matrix(level)).astype(np.int64)
        found = conversions(counts[None], known.pairs()[[level]])[step - 1]
        variances.append(_MANY * found.standard_error**2)
    unit, data = max(variances), f"{100 * share:g} % of the devices reach the step before"
    return Precision("a conversion of one half", data, lambda n: unit)
