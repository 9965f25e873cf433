"""The recording of a value: first it is decided without it, then its outputs are drawn and stored.

Charge and chain are one transaction. What is decided is in :mod:`clientsdk.decisions`, which
receives neither the value nor its symbol.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import cast

from clientsdk import draws, permanent
from clientsdk.decisions import Decisions, Entry, Occurrence, Repetition, Terms
from clientsdk.itemcounts import ItemCounts
from clientsdk.outcomes import Outcome
from clientsdk.spool import Chain
from clientsdk.store import Store
from clientsdk.transactions import READ, WRITE, Hold, Transaction
from mechanisms.randomness import Source
from sotto.errors import ParameterError, StoreError
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.metric import Symbol

#: As a name of a module it is found sooner than as that of an Enum.
ACCEPTED = Outcome.ACCEPTED


class Admission:
    """Records values into a store under one plan.

    Parameters
    ----------
    store : Store
    plan : CompiledPlan
        The plan that the store was opened with.
    source : Source
        Draws chain ids, jitter, the reservoir's coin and the randomized outputs.

    Attributes
    ----------
    decisions : Decisions
    counts : ItemCounts
        The items counted in this process.
    """

    def __init__(self, store: Store, plan: CompiledPlan, source: Source) -> None:
        self._store = store
        self._plan = plan
        self._source = source
        self.counts = ItemCounts(store, plan, source)
        self.decisions = Decisions(store, plan, source, self.counts)

    def record(self, metric: CompiledMetric, symbol: Symbol, now: int) -> Outcome:
        """Record what a value was encoded to, or say why not.

        Parameters
        ----------
        metric : CompiledMetric
            Of this plan.
        symbol : Symbol
            Of the value: its type is proven. Nothing looks at it before it is decided what
            becomes of it.
        now : int
            Milliseconds since the epoch. Before the ledger's period began, which a clock that
            was set back makes, the period's beginning is taken instead.

        Raises
        ------
        StoreError
            The store cannot be used; nothing was recorded.

        Privacy
        -------
        A value that is accepted costs at most the certified epsilon of the strongest rung, which
        is reserved here. The outputs of all rungs are drawn now and the value is forgotten.
        """
        counts = self.counts
        if counts.begun and counts:
            with suppress(StoreError, OSError):
                counts.settle(now)
            if metric.type == "top_item" and self._count_on(metric, symbol, now):
                return ACCEPTED
        store = self._store
        terms = self.decisions.terms[metric.name]
        if terms.own and store.path is None:
            noted = self._note(terms, symbol, now)
            if noted is not None:
                return noted
        with Transaction(store, WRITE) as connection:
            owed = store.owed
            decided = self.decisions.decide(connection, terms, now)
            if isinstance(decided, int):
                store.keep(connection, self._drawn(terms.metric, symbol, now))
                store.book(connection, terms.tally, decided, terms.cost)
                decided = ACCEPTED
            elif not isinstance(decided, Outcome):
                self._carry_out(connection, terms, decided, symbol, now)
                decided = ACCEPTED
        if store.owed > owed:
            # The log still has the secret from which older pseudonyms could be computed, or a
            # chain that was displaced.
            store.scrub(compact=False)
        return decided

    def _count_on(self, metric: CompiledMetric, symbol: Symbol, now: int) -> bool:
        """Count an item if its count is begun; False if more is to be decided."""
        with self._store.transaction(READ) as connection:
            count = self.counts.under_way(connection, metric, now)
            if count is not None:
                count.add(cast(int, symbol))
            return count is not None

    def _note(self, terms: Terms, symbol: Symbol, now: int) -> Outcome | None:
        """Keep a value in memory without a transaction; None if it needs one."""
        store = self._store
        with Hold(store):
            decided = self.decisions.decide_in_memory(terms, now)
            if not isinstance(decided, int):
                return decided
            chain = self._drawn(terms.metric, symbol, now)
            return ACCEPTED if store.note(terms.tally, decided, terms.cost, chain) else None

    def _carry_out(
        self,
        connection: sqlite3.Connection,
        terms: Terms,
        decided: Entry | Repetition | Occurrence,
        symbol: Symbol,
        now: int,
    ) -> None:
        """Draw and store what was decided upon, where a value is no chain of its own."""
        if isinstance(decided, Entry):
            # A chain that is not kept is drawn like one that is.
            self._enter(connection, terms, decided, self._drawn(terms.metric, symbol, now))
        elif isinstance(decided, Repetition):
            self._repeat(connection, terms, decided, symbol, now)
        else:
            self._count(connection, terms, decided, cast(int, symbol))

    def _enter(
        self, connection: sqlite3.Connection, terms: Terms, entry: Entry, chain: Chain
    ) -> None:
        """Let a chain take part in the draw of a reservoir."""
        store = self._store
        if entry.kept:
            store.displace(connection, terms.tally, chain, entry.reserved)
            store.keep(connection, chain)
        added = entry.reserved - entry.held if entry.kept else 0
        store.book(connection, terms.tally, entry.seen, added)

    def _repeat(
        self,
        connection: sqlite3.Connection,
        terms: Terms,
        decided: Repetition,
        symbol: Symbol,
        now: int,
    ) -> None:
        """Draw a report from the permanent response, and that from the value if there is none.

        A later value is not randomized, nor compared with anything: what becomes of it is the
        same whatever it is.
        """
        store, metric, source = self._store, terms.metric, draws.for_one(self._source)
        chain_id, jitter = draws.identifier(source), draws.below(source, self._plan.resolution)
        response = decided.response
        if response is None:
            response = metric.mechanism.draw_last(symbol, chain_id, store.name.pseudonym, source)
            permanent.keep(connection, decided.binding, terms.tally, decided.once, response)
        try:
            payloads = metric.mechanism.weaker(response, source)
        except ParameterError:
            raise StoreError("a permanent response does not fit its mechanism") from None
        store.keep(connection, self._chain(metric, now, chain_id, jitter, payloads))
        store.book(connection, terms.tally, decided.seen, terms.cost, lifetime=decided.once)

    def _count(
        self, connection: sqlite3.Connection, terms: Terms, decided: Occurrence, item: int
    ) -> None:
        """Count an item, as the first of its count if none is begun."""
        if decided.running is not None:
            decided.running.add(item)
            return
        count = self.counts.begin(connection, terms.metric, terms.tally, decided.reserved)
        count.add(item)
        self._store.book(connection, terms.tally, decided.seen, decided.reserved - decided.held)
        self.counts.hold(count)

    def _drawn(self, metric: CompiledMetric, symbol: Symbol, now: int) -> Chain:
        """Draw all that is stored for a value."""
        source = draws.for_one(self._source)
        # Before the symbol is looked at.
        chain_id, jitter = draws.identifier(source), draws.below(source, self._plan.resolution)
        payloads = metric.mechanism.draw(symbol, chain_id, self._store.name.pseudonym, source)
        return self._chain(metric, now, chain_id, jitter, payloads)

    def _chain(
        self,
        metric: CompiledMetric,
        now: int,
        chain_id: bytes,
        jitter: int,
        payloads: tuple[bytes, ...],
    ) -> Chain:
        store, plan = self._store, self._plan
        resolution, began = plan.resolution, store.period * plan.period
        event = now - now % resolution if now > began else began
        return Chain(
            store.period,
            event + resolution + jitter + metric.ladder[0].after,
            chain_id,
            store.plan_id,
            metric.index,
            event,
            jitter,
            0,
            0,
            b"".join(payloads),
        )
