"""Metrics of which each value is a chain of its own: whether it is taken, and its drawing."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from clientsdk import draws
from clientsdk.ledger import Consent, tally_name
from clientsdk.outcomes import Outcome, Refusal
from clientsdk.spool import Chain
from clientsdk.store import Store
from clientsdk.transactions import Hold
from mechanisms.randomness import Source
from sotto.compiled import CompiledMetric, CompiledPlan
from sotto.values import Symbol

#: As names of a module they are found sooner than as those of an Enum.
ACCEPTED, GIVEN = Outcome.ACCEPTED, Consent.GIVEN


class Plain(NamedTuple):
    """A metric of which each value is a chain of its own, with what its recording needs.

    Attributes
    ----------
    metric : CompiledMetric
    tally : str
        ``"plan/metric"``.
    limit : int
        Values a period.
    cost : int
        Of a chain at the last rung that is sent, in micro-epsilon.
    delay : int
        Milliseconds from the truncated time to the first release, without the jitter.
    encode, draw : callable
        The metric's and its mechanism's.
    """

    metric: CompiledMetric
    tally: str
    limit: int
    cost: int
    delay: int
    encode: Callable[[object], Symbol]
    draw: Callable[[Symbol, bytes, bytes, Source], tuple[bytes, ...]]


class PlainValues:
    """Takes the first values of a period, as long as ceilings and limits allow.

    Parameters
    ----------
    store : Store
    plan : CompiledPlan
        The plan that the store was opened with.
    source : Source
    """

    def __init__(self, store: Store, plan: CompiledPlan, source: Source) -> None:
        self._store = store
        self._plan = plan
        self._source = source
        self._tallies = {metric.name: tally_name(plan.plan, metric.name) for metric in plan.metrics}
        # What a chain costs at the last rung that is sent.
        self._costs = {each.name: each.mechanism.certified(each.sent - 1) for each in plan.metrics}
        self._plain = {
            each.name: self._plainly(each)
            for each in plan.metrics
            if each.kind in ("first", "every") and each.type != "top_item"
        }

    def _plainly(self, metric: CompiledMetric) -> Plain:
        return Plain(
            metric,
            self._tallies[metric.name],
            metric.limit,
            self._costs[metric.name],
            self._plan.resolution + metric.ladder[0].after,
            metric.encode,
            metric.mechanism.draw,
        )

    def _take(
        self, connection: sqlite3.Connection, plain: Plain, value: object, moment: int
    ) -> Outcome:
        """Keep the first values of a period."""
        store, tally, cost = self._store, plain.tally, plain.cost
        seen = store.tallies.get(tally, 0) + 1
        refused = self._refusal_of(plain, seen)
        if refused is not None:
            return refused
        store.keep(connection, self._drawn(plain, value, moment))
        store.book(connection, tally, seen, cost)
        return ACCEPTED

    def _note(self, plain: Plain, value: object, now: int) -> Outcome | None:
        """Keep a value in memory without a transaction; None if it needs one."""
        store, plan = self._store, self._plan
        with Hold(store):
            if not store.noting or store.consent is not GIVEN:
                return None
            if now // plan.period != store.period or now >= plan.expires:
                return None
            seen = store.tallies.get(plain.tally, 0) + 1
            refused = self._refusal_of(plain, seen)
            if refused is not None:
                return refused
            chain = self._drawn(plain, value, now)
            return ACCEPTED if store.note(plain.tally, seen, plain.cost, chain) else None

    def _refusal_of(self, plain: Plain, seen: int) -> Outcome | None:
        """Return why the ``seen``-th value of a period cannot be kept, None if it can."""
        if seen > plain.limit:
            return self._refuse(plain.metric, Outcome.PERIOD_FULL)
        if not self._affordable(plain.cost, plain.cost):
            return self._refuse(plain.metric, Outcome.OVER_BUDGET)
        return None

    def _drawn(self, plain: Plain, value: object, moment: int) -> Chain:
        """Draw all that is stored for a value; id and jitter before it is looked at."""
        store, plan, source = self._store, self._plan, draws.for_one(self._source)
        chain_id = draws.identifier(source)
        jitter = draws.below(source, plan.resolution)
        payloads = plain.draw(plain.encode(value), chain_id, store.name.pseudonym, source)
        event = moment - moment % plan.resolution
        return Chain(
            store.period,
            event + plain.delay + jitter,
            chain_id,
            store.plan_id,
            plain.metric.index,
            event,
            jitter,
            0,
            0,
            b"".join(payloads),
        )

    def _affordable(self, cost: int, lifetime: int) -> bool:
        """Whether the period can bear ``cost`` and the device's life ``lifetime`` more."""
        if cost == 0:
            return True
        store, planned = self._store, self._plan.ceilings
        pinned = store.ceilings
        reserved, life = store.reserved + cost, store.lifetime_reserved + lifetime
        return (
            reserved <= pinned.period
            and reserved <= planned.period
            and life <= pinned.lifetime
            and life <= planned.lifetime
        )

    def _refuse(self, metric: CompiledMetric, outcome: Outcome) -> Outcome:
        """Remember that the outcome is the same until the period ends."""
        plan, store = self._plan, self._store
        until = min((store.period + 1) * plan.period, plan.expires)
        store.refusals[metric.name] = Refusal(outcome, metric.plain, until)
        return outcome
