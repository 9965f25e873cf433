"""Counts the items of a period in memory, and draws one chain from the counts when it is over.

Nothing of a count is ever written: it is lost when the process ends. The cost is reserved before
the first item is counted. A release says which item was most frequent, drawn from all counts at
once; its event time is the last step of the period, whatever was recorded and when.
"""

from __future__ import annotations

import os
from contextlib import suppress
from sqlite3 import Connection

from clientsdk import draws
from clientsdk.diagnostics import drop_locals
from clientsdk.store import claims, outbox
from clientsdk.store.claims import CountingClaim
from clientsdk.store.database import READ, WRITE
from clientsdk.store.outbox import StoredChain
from clientsdk.store.store import Store
from mechanisms.arrays import Any
from mechanisms.randomness import Source, uniform_below
from sotto.plan.compiled import CompiledMetric, CompiledPlan


class Count:
    """The items of one metric in one period; its ``repr`` never shows them."""

    def __init__(
        self,
        store: Store,
        plan: CompiledPlan,
        metric: CompiledMetric,
        tally: str,
        source: Source,
        cell: int,
    ) -> None:
        self.metric = metric
        self._cell = cell
        self.tally = tally
        self.period: int = store.period
        self._plan_id = store.plans.number
        self._identity = store.identity
        source = draws.for_one(source)
        self._id = draws.identifier(source)
        #: The holder's name in the claim.
        self.holder: bytes = draws.identifier(source)
        self.jitter: int = uniform_below(plan.resolution, source)
        end = (store.period + 1) * plan.period
        self.event: int = end - plan.resolution
        self.due: int = end + self.jitter + metric.delays[0]
        #: The drawn chain, until it is stored; the count is gone then.
        self.chain: StoredChain | None = None
        self._counts = [0] * len(metric.labels)

    def add(self, item: Any) -> None:
        """Count one occurrence, unless its item is at the plan's bound, or a chain was drawn."""
        most: Any = self.metric.spec["clip"]
        if self.chain is None and self._counts[item] < most:
            self._counts[item] += 1

    def draw(self, source: Source) -> StoredChain:
        """Draw the chain and forget the count, or return what was drawn already."""
        if self.chain is None:
            try:
                payloads = self.metric.mechanism.draw(
                    tuple(self._counts), self._id, self._identity.pseudonym, draws.for_one(source)
                )
            except BaseException as error:
                drop_locals(error)
                raise
            drawn_under = self._plan_id, self.metric.index, self.event, self.jitter
            outputs = b"".join(payloads)
            of_period = self.period, self.due, self._id
            self.chain = StoredChain(*of_period, *drawn_under, 0, 0, outputs, self._cell)
            self._counts = []
        return self.chain

    def store(self, connection: Connection, source: Source) -> None:
        outbox.remember(connection, self.period, self._identity)
        outbox.insert(connection, [self.draw(source)])


class ItemCounter:
    """Items that one client has counted, in memory alone, and not yet drawn."""

    def __init__(self, store: Store, plan: CompiledPlan, source: Source) -> None:
        self._store = store
        self._plan = plan
        self._source = source
        self._process = os.getpid()
        #: In a child of a fork these are the parent's until ``bool`` of this object is taken.
        self.begun: list[Count] = []

    def __bool__(self) -> bool:
        if self.begun and self._process != os.getpid():
            # The counts are the parent's, which will draw from them.
            self.begun.clear()
        return bool(self.begun)

    def under_way(self, connection: Connection, metric: CompiledMetric, now: int) -> Count | None:
        """Return the count to which an item is added; None if a full decision is needed."""
        store, plan = self._store, self._plan
        if store.stopped or not store.agreed(metric.group) or store.period_at(now) != store.period:
            return None
        return None if plan.expired(store.moment(now)) else self.current(connection, metric)

    def current(self, connection: Connection, metric: CompiledMetric) -> Count | None:
        """Return the count of a metric in the store's period if its claim stands."""
        for count in list(self.begun) if self else ():
            if count.metric is metric and count.period == self._store.period:
                claim = claims.find(connection, count.period, count.tally)
                if claim is not None and claim.holder == count.holder:
                    return count
                self.discard(count)
        return None

    def begin(
        self, connection: Connection, metric: CompiledMetric, tally: str, cost: int, cell: int
    ) -> Count:
        """Claim the items of the store's period, in a transaction, and return an empty count.

        ``cell`` is the cell of segments in which the first item is recorded; all count in it.
        """
        count = Count(self._store, self._plan, metric, tally, self._source, cell)
        last = self._plan.period_of(count.event + metric.horizon)
        claims.take(connection, count.period, tally, CountingClaim(count.holder, cost), last)
        return count

    def hold(self, count: Count) -> None:
        self._process = os.getpid()
        self.begun.append(count)

    def discard(self, count: Count) -> None:
        # Another thread may have dropped the count.
        with suppress(ValueError):
            self.begun.remove(count)

    def forget(self) -> None:
        self.begun.clear()

    def forget_lost(self) -> None:
        """Forget the counts of groups to which consent is not given any more."""
        for count in list(self.begun) if self else ():
            if not self._store.agreed(count.metric.group):
                self.discard(count)

    def lapse(self, now: int) -> None:
        """Drop all counts if a transaction shows that nothing may be recorded any more."""
        if self:
            store, plan = self._store, self._plan
            with store.transaction(READ):
                if not store.consented or plan.expired(store.moment(now)):
                    self.forget()
                self.forget_lost()

    def settle(self, now: int) -> None:
        """Draw once from each count of a period that is over, and store the chains."""
        if not self:
            return
        store, plan = self._store, self._plan
        for count in list(self.begun):
            if count.period > store.period:
                # The clock was ahead when counting began, and the ledger has gone back since.
                self.discard(count)
        reached = max(store.period, plan.period_of(now))
        if all(count.period >= reached for count in self.begun):
            return
        with store.transaction(WRITE) as connection:
            owed = store.erasure.owed
            store.follow(connection, now)
            moment = store.moment(now)
            over = [count for count in self.begun if count.period < store.period]
            for count in over:
                if claims.use(connection, count.period, count.tally, count.holder) and (
                    self._releasable(count, moment)
                ):
                    count.store(connection, self._source)
        for count in over:
            self.discard(count)
        store.scrub_since(owed)

    def _releasable(self, count: Count, moment: int) -> bool:
        return (
            self._store.agreed(count.metric.group)
            and not self._store.stopped
            and not self._plan.expired(moment)
            and moment - count.event <= count.metric.horizon
        )

    def release(self) -> None:
        """Forget all counts, and let other clients count in the rest of the period."""
        counts = list(self.begun) if self else []
        self.forget()
        if counts:
            with self._store.transaction(WRITE) as connection:
                for count in counts:
                    claims.release(connection, count.period, count.tally, count.holder)

    def next_due(self) -> int | None:
        return min((each.due for each in self.begun), default=None) if self else None
