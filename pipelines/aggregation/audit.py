"""The epsilon that pseudonyms have spent in a budget period, audited twice.

*Accepted* is the epsilon of the rows that count. *Observed* is the epsilon of every row seen, which
a collector who keeps all payloads can use: also late rows, rows of revoked pseudonyms and rows that
contradict others. A chain costs its newest level, since weaker levels are degradations of it; every
further payload at a level is a fresh randomization of the value and costs that level again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from operator import add

import numpy as np
from numpy.typing import NDArray

from pipelines.aggregation.rows import NEWEST, opens
from pipelines.aggregation.state import State
from sotto.plan.registry import Registry
from sotto.plan.segments import cell_label
from sotto.wire.reasons import Reason


@dataclass(frozen=True, eq=False)
class Audit:
    """Columns over the P pseudonyms of one shard and period, sorted by pseudonym."""

    pseudonym: NDArray[np.uint64]  #: (P, 2) uint64
    #: (P,) int64; distinct chains; one with two metrics, event times or cells counts as two.
    chains: NDArray[np.int64]
    #: (P,) int64; micro-epsilon of the rows that count, and of every payload seen.
    accepted: NDArray[np.int64]
    observed: NDArray[np.int64]
    #: (P,) uint8; why the pseudonym is revoked, a :class:`~sotto.wire.reasons.Reason`; 0 where it
    #: is not.
    reason: NDArray[np.uint8]


@dataclass(frozen=True)
class Totals:
    """An audit in few numbers.

    ``accepted`` and ``observed`` are micro-epsilon, summed over all pseudonyms; ``most_accepted``
    and ``most_observed`` are the largest of a single one.
    """

    pseudonyms: int
    over_budget: int
    equivocation: int
    chains: int
    accepted: int
    observed: int
    most_accepted: int
    most_observed: int

    @property
    def revoked(self) -> int:
        return self.over_budget + self.equivocation

    def plus(self, other: Totals) -> Totals:
        """Return the audit of this and another set of pseudonyms, with none in common."""
        one, two = self.numbers, other.numbers
        return Totals(*map(add, one[:-2], two[:-2]), *map(max, one[-2:], two[-2:]))

    def row(self, registry: Registry, period: int, closed: bool) -> dict[str, object]:
        """Return the row of a budget period in the results, given its number."""
        return {
            "collector": registry.collector,
            "period_start": period * registry.period,
            "period_end": (period + 1) * registry.period,
            "closed": closed,
            **asdict(self),
        }

    @property
    def numbers(self) -> tuple[int, ...]:
        return (*vars(self).values(),)


@dataclass(frozen=True)
class ChainLine:
    """One chain of a pseudonym, as the aggregator has it."""

    chain: str  #: hexadecimal
    #: The metric that the chain is of.
    plan: str
    version: int
    metric: str
    event: int  #: truncated time of the recording, ms
    counted: int | None  #: the level that counts, 0 the weakest
    accepted: int  #: certified micro-epsilon of that level; 0 where none counts
    payloads: tuple[int, ...]  #: different payloads at each level; more than one is an equivocation
    segment: str = ""  #: the cell of the plan's segments; empty where it has none


def audit(state: State) -> Audit:
    """Return what each pseudonym of a state costs; a function of the set of rows seen."""
    pseudonyms = state.pseudonyms
    chains, observed = _costs(state)
    order = np.lexsort((pseudonyms["high"], pseudonyms["low"]))
    return Audit(
        pseudonym=np.stack([pseudonyms["low"], pseudonyms["high"]], axis=1)[order],
        chains=chains[order],
        accepted=pseudonyms["accepted"][order],
        observed=observed[order],
        reason=pseudonyms["reason"][order],
    )


def _costs(state: State) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    pseudonyms, entries = state.pseudonyms, state.entries
    certified, owner = state.catalog.certified, entries["pseudonym"]
    observed = np.zeros(pseudonyms.size, dtype=np.int64)
    np.add.at(observed, owner, certified[entries["metric"], NEWEST[entries["seen"]]])
    chains = np.bincount(owner, minlength=pseudonyms.size).astype(np.int64)
    at, cost, opens = _conflicts(state)
    np.add.at(observed, owner[at], cost)
    np.add.at(chains, owner[at], opens)
    return chains, observed


def _conflicts(state: State) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.int64]]:
    """Return of each conflicting row its entry, and the observed epsilon and chains it adds."""
    rows, entries = state.conflicts, state.entries
    columns = [rows[name] for name in ("level", "cell", "event", "metric", "entry")]
    order = np.lexsort(columns)
    level, cell, event, metric, entry = (column[order] for column in columns)
    elsewhere = (entries["metric"][entry] != metric) | (entries["event"][entry] != event)
    elsewhere |= entries["cell"][entry] != cell
    new_chain = opens(entry, metric, event, cell)
    new_level = opens(entry, metric, event, cell, level)
    newest = np.append(new_chain[1:], np.ones(min(order.size, 1), dtype=np.bool_))
    # A second payload at a level costs the level. The first at a level costs nothing by itself: a
    # chain costs its newest level once, which is counted at its entry. A chain that is bound
    # elsewhere has no entry of its own, so its newest level is counted here.
    times = 1 + elsewhere * (newest.astype(np.int64) - new_level)
    cost = times * state.catalog.certified[metric, level.astype(np.intp) + 1]
    return entry.astype(np.intp), cost, (elsewhere & new_chain).astype(np.int64)


def totals(state: State) -> Totals:
    chains, observed = _costs(state)
    accepted, reason = state.pseudonyms["accepted"], state.pseudonyms["reason"]
    return Totals(
        pseudonyms=len(reason),
        over_budget=int(np.count_nonzero(reason == Reason.OVER_BUDGET)),
        equivocation=int(np.count_nonzero(reason == Reason.EQUIVOCATION)),
        chains=int(chains.sum()),
        accepted=int(accepted.sum()),
        observed=int(observed.sum()),
        most_accepted=int(accepted.max(initial=0)),
        most_observed=int(observed.max(initial=0)),
    )


def chains_of(state: State, pseudonym: bytes) -> list[ChainLine]:
    """Return the chains of one pseudonym of 16 bytes, sorted; none if it was never seen."""
    owner = state.pseudonyms.find(*np.frombuffer(pseudonym, dtype="<u8").tolist())
    if owner is None:
        return []
    entries, conflicts, levels = state.entries, state.conflicts, state.catalog.levels
    payloads: dict[tuple[bytes, int, int, int], list[int]] = {}
    counted: dict[tuple[bytes, int, int, int], int] = {}
    for at in np.flatnonzero(entries["pseudonym"] == owner):
        chain = entries["low"][at].tobytes() + entries["high"][at].tobytes()
        key = (chain, *(int(entries[name][at]) for name in ("metric", "event", "cell")))
        seen = int(entries["seen"][at])
        payloads[key] = [seen >> level & 1 for level in range(int(levels[key[1]]))]
        counted[key] = int(entries["counted"][at])
        for row in np.flatnonzero(conflicts["entry"] == at):
            key = (chain, *(int(conflicts[name][row]) for name in ("metric", "event", "cell")))
            found = payloads.setdefault(key, [0] * int(levels[key[1]]))
            found[int(conflicts["level"][row])] += 1
    lines = []
    for (chain, metric, event, cell), of_level in sorted(payloads.items()):
        _, _, plan, about = state.registry.metrics[metric]
        level = counted.get((chain, metric, event, cell), 0)
        lines.append(
            ChainLine(
                chain=chain.hex(),
                plan=plan.plan,
                version=plan.version,
                metric=about.name,
                event=event,
                segment=cell_label(plan.attributes, cell),
                counted=level - 1 if level else None,
                accepted=int(state.catalog.certified[metric, level]),
                payloads=tuple(of_level),
            )
        )
    return lines
