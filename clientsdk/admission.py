"""Whether a value is recorded, and its recording: charge and chain in one transaction.

Consent, time, count and budget decide; the value is looked at last, and only to randomize it.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from typing import cast

from clientsdk import claims, draws, permanent
from clientsdk.itemcounts import ItemCounts
from clientsdk.outcomes import Outcome
from clientsdk.plain import GIVEN, PlainValues
from clientsdk.spool import Chain
from clientsdk.store import Store
from clientsdk.transactions import WRITE, Transaction
from mechanisms.randomness import Source
from sotto.compiled import CompiledMetric, CompiledPlan
from sotto.errors import ParameterError, StoreError


class Admission(PlainValues):
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
    counts : ItemCounts
        The items counted in this process.
    """

    def __init__(self, store: Store, plan: CompiledPlan, source: Source) -> None:
        super().__init__(store, plan, source)
        self._bindings: dict[str, bytes] = {}
        self.counts = ItemCounts(store, plan, source)

    def record(self, metric: CompiledMetric, value: object, now: int) -> Outcome:
        """Record a value, or say why not.

        Parameters
        ----------
        metric : CompiledMetric
            Of this plan.
        value : object
            What the metric's type says.
        now : int
            Milliseconds since the epoch. Before the ledger's period began, which a clock that
            was set back makes, the period's beginning is taken instead.

        Raises
        ------
        ValueTypeError
            The value has the wrong type; nothing was recorded.
        StoreError
            The store cannot be used; nothing was recorded.

        Privacy
        -------
        A value that is accepted costs at most the certified epsilon of the strongest rung, which
        is reserved here. The outputs of all rungs are drawn now and the value is forgotten.
        """
        counts = self.counts
        if counts.begun and counts:
            with suppress(StoreError):
                counts.settle(now)
            if metric.type == "top_item" and counts.add(metric, value, now):
                return Outcome.ACCEPTED
        store, plan = self._store, self._plan
        plain = self._plain.get(metric.name)
        if plain is not None and store.path is None:
            noted = self._note(plain, value, now)
            if noted is not None:
                return noted
        with Transaction(store, WRITE) as connection:
            owed = store.owed
            period = now // plan.period
            if period != store.period:
                store.advance(connection, period)
                now = max(now, store.period * plan.period)
            if now >= store.expiry:
                store.lapsed += store.expire(connection, now)
            if store.consent is not GIVEN:
                outcome = Outcome.NO_CONSENT
            elif now >= plan.expires:
                outcome = Outcome.EXPIRED
            elif store.room <= 0 and store.full(connection):
                outcome = Outcome.STORE_FULL
            elif plain is not None:
                outcome = self._take(connection, plain, value, now)
            else:
                outcome = self._admit(connection, metric, value, now)
        if store.owed > owed:
            # The log still has the secret from which older pseudonyms could be computed, or a
            # chain that was displaced.
            store.scrub(compact=False)
        return outcome

    def _admit(
        self, connection: sqlite3.Connection, metric: CompiledMetric, value: object, moment: int
    ) -> Outcome:
        if metric.kind == "reservoir":
            return self._sample(connection, metric, value, moment)
        if metric.kind == "constant":
            return self._repeat(connection, metric, value, moment)
        return self._count(connection, metric, value)

    def _sample(
        self, connection: sqlite3.Connection, metric: CompiledMetric, value: object, moment: int
    ) -> Outcome:
        """Keep one value of a period, each with equal probability.

        A chain that is displaced never left the device, so the one that displaces it takes over
        what it had reserved. A value that is not kept is randomized like one that is.
        """
        store, tally = self._store, self._tallies[metric.name]
        seen = store.tallies.get(tally, 0) + 1
        held = store.incumbent_cost(connection, tally)
        if held is None and seen > 1:
            # Another version of the plan has kept a value of this period, and not in a reservoir.
            return self._refuse(metric, Outcome.PERIOD_FULL)
        kept = draws.replaces(self._source, seen)
        held = held or 0
        reserved = max(held, self._costs[metric.name])
        if kept and not self._affordable(reserved - held, reserved - held):
            # A later value that displaces nothing, or costs nothing more, is affordable.
            return self._refuse(metric, Outcome.OVER_BUDGET) if seen == 1 else Outcome.OVER_BUDGET
        chain = self._chain(metric, value, moment)
        if kept:
            store.displace(connection, tally, chain, reserved)
            store.keep(connection, chain)
        store.book(connection, tally, seen, reserved - held if kept else 0)
        return Outcome.ACCEPTED

    def _repeat(
        self, connection: sqlite3.Connection, metric: CompiledMetric, value: object, moment: int
    ) -> Outcome:
        """Say again what the permanent response says; the first value of all is what it is of.

        A later value is not randomized, nor compared with anything: what becomes of it is the
        same whatever it is.
        """
        store, source, tally = self._store, self._source, self._tallies[metric.name]
        seen = store.tallies.get(tally, 0) + 1
        if seen > metric.limit:
            return self._refuse(metric, Outcome.PERIOD_FULL)
        binding = self._binding(metric)
        response = permanent.response(connection, binding)
        cost, once = self._costs[metric.name], 0 if response else metric.permanent
        if not self._affordable(cost, once):
            return self._refuse(metric, Outcome.OVER_BUDGET)
        chain_id, jitter = self._coins()
        symbol = metric.encode(value)
        if response is None:
            response = metric.mechanism.draw_last(symbol, chain_id, store.pseudonym, source)
            permanent.keep(connection, binding, tally, once, response)
        try:
            payloads = metric.mechanism.weaker(response, source)
        except ParameterError:
            raise StoreError("a permanent response does not fit its mechanism") from None
        store.keep(connection, self._chain_of(metric, moment, chain_id, jitter, payloads))
        store.book(connection, tally, seen, cost, lifetime=once)
        return Outcome.ACCEPTED

    def _count(
        self, connection: sqlite3.Connection, metric: CompiledMetric, value: object
    ) -> Outcome:
        """Begin to count the items of a period, and count the first."""
        store, tally = self._store, self._tallies[metric.name]
        count = self.counts.current(connection, metric)
        if count is not None:
            # Another thread has begun.
            count.add(cast(int, metric.encode(value)))
            return Outcome.ACCEPTED
        begun = store.tallies.get(tally, 0)
        claim = claims.find(connection, store.period, tally)
        if begun and (claim is None or claim.holder != claims.NOBODY):
            # Another client counts them, or another version of the plan has used the period.
            return self._refuse(metric, Outcome.PERIOD_FULL)
        held = claim.cost if claim else 0
        reserved = max(held, self._costs[metric.name])
        if not self._affordable(reserved - held, reserved - held):
            return self._refuse(metric, Outcome.OVER_BUDGET)
        count = self.counts.begin(connection, metric, tally, reserved)
        count.add(cast(int, metric.encode(value)))
        store.book(connection, tally, begun + 1, reserved - held)
        self.counts.hold(count)
        return Outcome.ACCEPTED

    def _binding(self, metric: CompiledMetric) -> bytes:
        if metric.name not in self._bindings:
            self._bindings[metric.name] = permanent.binding_of(self._plan, metric)
        return self._bindings[metric.name]

    def _coins(self) -> tuple[bytes, int]:
        """Draw a chain id and its jitter, before the value is looked at."""
        return draws.identifier(self._source), draws.below(self._source, self._plan.resolution)

    def _chain(self, metric: CompiledMetric, value: object, moment: int) -> Chain:
        chain_id, jitter = self._coins()
        symbol = metric.encode(value)
        payloads = metric.mechanism.draw(symbol, chain_id, self._store.pseudonym, self._source)
        return self._chain_of(metric, moment, chain_id, jitter, payloads)

    def _chain_of(
        self,
        metric: CompiledMetric,
        moment: int,
        chain_id: bytes,
        jitter: int,
        payloads: tuple[bytes, ...],
    ) -> Chain:
        store, plan = self._store, self._plan
        event = plan.truncate(moment)
        return Chain(
            period=store.period,
            due=event + plan.resolution + jitter + metric.ladder[0].after,
            id=chain_id,
            plan=store.plan_id,
            metric=metric.index,
            event=event,
            jitter=jitter,
            charged=0,
            delivered=0,
            payloads=b"".join(payloads),
        )
