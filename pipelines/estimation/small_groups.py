"""Estimates of few reports are withheld: the rule, and what a row says in their place.

:func:`pipelines.estimation.rows.rows_of_windows` applies it to everything that is estimated.
Tables,
documents, metrics and pages are made of its rows, so that none of them can leave the rule out.

Which rows a withheld window has does not depend on its reports: they are those of a window without
any. A withheld row has its key, unit and method, and the numbers of reports, which are not
protected; every field that is computed from payloads is null.

Parts of a total that is published are published all or none: from the total and all parts but one
that one would follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from mechanisms.items import Item
from pipelines.aggregation.counts import Matrix
from pipelines.estimation.items import estimate
from sotto.plan.compiled import CompiledMetric

#: Kinds of estimates that are parts of another one that is published: a number's bits, of its mean.
#: A vector's coordinates are parts of nothing, and all others are made of all reports.
PARTS = frozenset({"bit"})


def reason(reports: int, least: int) -> str | None:
    """Return why an estimate of so many reports is withheld; None if it is not.

    Parameters
    ----------
    reports : int
    least : int
        The plan's ``minimum_reports``.

    Examples
    --------
    >>> reason(7, 20), reason(1, 2), reason(20, 20)
    ('7 reports, the plan asks for 20', '1 report, the plan asks for 2', None)
    """
    if reports >= least:
        return None
    return f"{reports:,} report{'' if reports == 1 else 's'}, the plan asks for {least:,}"


def reasons(items: Sequence[Item], least: int) -> Iterator[str | None]:
    """Yield why each estimate of a window is withheld; None of one that is not.

    Parameters
    ----------
    items : sequence of Item
        All of the window.
    least : int
        The plan's ``minimum_reports``.
    """
    # A part of no report adds nothing to the total.
    parts = [item.estimate.n for item in items if item.kind in PARTS and item.estimate.n]
    short = reason(min(parts, default=least), least)
    for item in items:
        own = reason(item.estimate.n, least)
        yield (
            f"another {item.kind} has {short}" if item.kind in PARTS and short and not own else own
        )


def withheld_window(
    metric: CompiledMetric,
    counts: Matrix,
    candidates: Sequence[str],
    by_level: Sequence[int],
    why: str,
) -> Iterator[dict[str, object]]:
    """Yield the rows of a window of which everything is withheld.

    Parameters
    ----------
    metric : CompiledMetric
    counts : (rungs, length) int64
        Only their shape is used.
    candidates : sequence of str
        For a string metric.
    by_level : sequence of int
        The window's reports by rung.
    why : str
        As of :func:`reason`.
    """
    for position, item in enumerate(estimate(metric, np.zeros_like(counts), candidates)):
        yield withheld_row(position, item, by_level, why)


def withheld_row(position: int, item: Item, by_level: Sequence[int], why: str) -> dict[str, object]:
    """Return the row that stands for a withheld estimate."""
    return {
        "kind": item.kind,
        "item": item.item,
        "position": position,
        "value": None,
        "standard_error": None,
        "low": None,
        "high": None,
        "display": None,
        "n": sum(by_level),
        "reports_by_level": list(by_level),
        "detection_floor": None,
        "significant": None,
        "p_value": None,
        "confounded_with": None,
        "unit": item.unit,
        "method": item.method.value,
        "withheld": why,
    }
