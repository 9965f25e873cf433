"""The rules of the aggregation, written to be read: what ``step`` must do, one row at a time.

Everything is said of the *set* of rows seen, so that it cannot depend on their order. ``step``
is then the difference that a call makes: the rules applied to the set before it and after it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.pairs import columns
from pipelines.results.fields import grouped
from sotto.plan.registry import Registry
from sotto.wire.reasons import Reason

#: Counts of a metric in a window, a cell and a level, by these four.
Vectors: TypeAlias = dict[tuple[int, int, int, int], NDArray[np.int64]]


class Row(NamedTuple):
    """One decoded report. ``countable`` is False for one that came late or from the future."""

    pseudonym: int
    chain: int
    metric: int
    event: int
    level: int
    payload: bytes
    countable: bool
    append: int
    cell: int = 0

    @property
    def binding(self):
        """The metric, event and cell that a chain is bound to for ever."""
        return self.metric, self.event, self.cell

    @property
    def report(self):
        """The row without when it came: two rows with one report are repetitions."""
        return (*self[:6], self.cell)


class Audited(NamedTuple):
    """The cost of one pseudonym."""

    chains: int
    accepted: int
    observed: int
    reason: int


class Rules:
    """The rules for one registry; ``certified(metric, level)`` in micro-epsilon."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.budget = registry.budget

    def certified(self, metric: int, level: int) -> int:
        return self.registry.metrics[metric].metric.mechanism.certified(level)

    def equivocates(self, rows: Iterable[Row]) -> bool:
        """A chain with two bindings, or two payloads at one level; countable or not."""
        bindings: dict[int, tuple[int, int, int]] = {}
        payloads: dict[tuple[int, int], bytes] = {}
        return any(
            bindings.setdefault(row.chain, row.binding) != row.binding
            or payloads.setdefault((row.chain, row.level), row.payload) != row.payload
            for row in rows
        )

    def newest(self, rows: Iterable[Row]) -> dict[int, Row]:
        """The countable row of each chain's newest level, as it first came."""
        newest: dict[int, Row] = {}
        for row in rows:
            other = newest.get(row.chain)
            if row.countable and (
                other is None or (row.level, -row.append) > (other.level, -other.append)
            ):
                newest[row.chain] = row
        return newest

    def cost(self, rows: Iterable[Row]) -> int:
        return sum(self.certified(row.metric, row.level) for row in self.newest(rows).values())

    def reason(self, rows: list[Row]) -> int:
        """Why a pseudonym with these rows is revoked; 0 if it is not."""
        if self.equivocates(rows):
            return Reason.EQUIVOCATION
        return Reason.OVER_BUDGET if self.cost(rows) > self.budget else 0

    def counted(self, seen: Iterable[Row]) -> dict[tuple[int, int], Row]:
        """The rows that count, by pseudonym and chain: none of a revoked pseudonym."""
        return {
            (pseudonym, chain): row
            for pseudonym, rows in by_pseudonym(seen).items()
            if not self.reason(rows)
            for chain, row in self.newest(rows).items()
        }

    def pairs(self, seen: Iterable[Row]) -> Counter[tuple[Row, int, bool]]:
        """Successive countable levels of chains that count: row, weaker level, whether equal."""
        counted = self.counted(seen)
        chains: dict[tuple[int, int], dict[int, Row]] = {key: {} for key in counted}
        for row in seen:
            if row.countable and (row.pseudonym, row.chain) in chains:
                chains[row.pseudonym, row.chain][row.level] = row
        return Counter(
            (
                levels[upper]._replace(append=0),
                lower,
                levels[upper].payload == levels[lower].payload,
            )
            for levels in chains.values()
            for lower, upper in itertools.pairwise(sorted(levels))
        )

    def observed(self, rows: Iterable[Row]) -> int:
        """The micro-epsilon that the rows of one pseudonym reveal, countable or not."""
        payloads: dict[tuple[int, tuple[int, int, int]], dict[int, set[bytes]]] = {}
        for row in rows:
            levels = payloads.setdefault((row.chain, row.binding), {})
            levels.setdefault(row.level, set()).add(row.payload)
        total = 0
        for (_, (metric, _, _)), levels in payloads.items():
            total += self.certified(metric, max(levels))
            for level, different in levels.items():
                total += (len(different) - 1) * self.certified(metric, level)
        return total

    def audit(self, seen: Iterable[Row]) -> dict[int, Audited]:
        """The cost of each pseudonym."""
        return {
            pseudonym: Audited(
                chains=len({(row.chain, row.binding) for row in rows}),
                accepted=0 if self.reason(rows) else self.cost(rows),
                observed=self.observed(rows),
                reason=self.reason(rows),
            )
            for pseudonym, rows in by_pseudonym(seen).items()
        }

    def step(self, before: list[Row], call: list[Row]):
        """The effect of a call: rows that count now and did not, and the reverse; rejected rows.

        The last are reports with when they first came, and the number of those superseded before.
        """
        after = before + call
        old, new = self.counted(before), self.counted(after)
        plus = Counter(row.report for row in new.values())
        minus = Counter(row.report for row in old.values())
        reasons_before = {p: self.reason(rows) for p, rows in by_pseudonym(before).items()}
        rejected: dict[tuple, int] = {}
        known = {row.report for row in before if row.countable}
        superseded = 0
        for pseudonym, rows in by_pseudonym(after).items():
            if not self.reason(rows):
                continue
            back = {row.report: row.append for row in old.values() if row.pseudonym == pseudonym}
            rejected |= back
            for row in sorted(call, key=lambda row: row.append):
                if row.pseudonym == pseudonym and row.countable and row.report not in known:
                    rejected.setdefault(row.report, row.append)
            if not reasons_before.get(pseudonym, 0):
                theirs = {report for report in known if report[0] == pseudonym}
                superseded += len(theirs - back.keys())
        return plus - minus, minus - plus, rejected, superseded

    def rejected(self, seen: list[Row]) -> int:
        """How many different reports of a set of rows are rejected in the end."""
        return sum(
            len({row.report for row in rows if row.countable})
            for rows in by_pseudonym(seen).values()
            if self.reason(rows)
        )


def by_pseudonym(rows: Iterable[Row]) -> dict[int, list[Row]]:
    return grouped(rows, lambda row: row.pseudonym)


def count_vectors(
    reports: Mapping[tuple[Any, ...], int],
    pairs: Mapping[tuple[Row, int, bool], int],
    registry: Registry,
    identifier: Callable[[int], list[int]],
) -> Vectors:
    """Return the count vectors of reports and pairs of levels, each added for itself.

    ``identifier`` gives the two halves of the id that a number stands for.
    """
    vectors: Vectors = {}

    def vector_of(metric: int, event: int, cell: int, level: int) -> NDArray[np.int64]:
        counted = registry.metrics[metric].metric
        key = (metric, event // counted.window * counted.window, cell, level)
        return vectors.setdefault(key, np.zeros(columns(counted.mechanism), dtype=np.int64))

    for (pseudonym, chain, metric, event, level, payload, cell), times in reports.items():
        mechanism = registry.metrics[metric].metric.mechanism
        vector = mechanism.accumulate(
            np.array([list(payload)], dtype=np.uint8),
            np.array([identifier(chain)], dtype=np.uint64),
            np.array([identifier(pseudonym)], dtype=np.uint64),
            np.zeros(1, dtype=np.int64),
            1,
        )[0]
        vector_of(metric, event, cell, level)[: mechanism.count_length] += times * vector
    for (row, lower, equal), times in pairs.items():
        at = registry.metrics[row.metric].metric.mechanism.count_length + 2 * lower
        vector = vector_of(row.metric, row.event, row.cell, row.level)
        vector[at : at + 2] += (times, times * equal)
    return vectors
