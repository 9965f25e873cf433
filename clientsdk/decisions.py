"""Decides what becomes of a recording, before its value is looked at.

Nothing in this module receives a value or its symbol, and it imports nothing that could look at
one. :mod:`clientsdk.recorder` carries out what is decided.
"""

from __future__ import annotations

from sqlite3 import Connection

from clientsdk import draws
from clientsdk.item_counter import Count, ItemCounter
from clientsdk.outcomes import Consent, Outcome, Refusal
from clientsdk.store import claims, measures, outbox, permanent
from clientsdk.store.accounts import tally_name
from clientsdk.store.database import READ
from clientsdk.store.device_secrets import Panel
from clientsdk.store.plans import made_once
from clientsdk.store.store import Store
from mechanisms.frozen import frozen, replace
from mechanisms.randomness import Source
from sotto.clocks import BEGINNING
from sotto.plan.compiled import CompiledMetric, CompiledPlan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeAlias

GIVEN = Consent.GIVEN


@frozen
class RecordingTerms:
    metric: CompiledMetric
    tally: str  #: ``"plan/metric"``.
    limit: int  #: Values a period.
    cost: int  #: What a chain costs at the last level that is sent, in micro-epsilon.
    own: bool  #: Whether each value is a chain of its own, so that memory alone decides about it.
    panels: int  #: The device answers in one of so many periods.
    group: str | None  #: The group that the person has to agree to, if the plan has groups.


@frozen
class ReservoirEntry:
    """A value that takes part in the draw of a reservoir."""

    seen: int  #: The recordings of the period under the metric's tally, with this one.
    kept: bool  #: Whether its chain displaces the one that is there.
    held: int  #: Micro-epsilon that the reservoir has reserved so far.
    reserved: int  #: Micro-epsilon that it has reserved from now on.


@frozen
class Repetition:
    """A report that is drawn from a permanent response."""

    seen: int  #: As of :class:`ReservoirEntry`.
    binding: bytes  #: The response's.
    response: bytes | None  #: None if this value is the one that it is drawn from.
    once: int  #: Micro-epsilon that the lifetime is charged.


@frozen
class Occurrence:
    running: Count | None  #: The count to add to; None if a new one is to begin.
    seen: int  #: How often counting was begun in the period, with a new count if there is one.
    held: int  #: Micro-epsilon reserved already.
    reserved: int  #: Micro-epsilon reserved once a new count has begun.


@frozen
class Measurement:
    """An addition to what the device measures in the period."""

    begun: bool  #: Whether the measure has begun; the cost is reserved then.


#: The decision about a measure that has begun.
BEGUN = Measurement(begun=True)
#: The recorder's task; a value that is a chain of its own has its number in the period.
Place: TypeAlias = int | ReservoirEntry | Repetition | Occurrence | Measurement


def terms_of(plan: CompiledPlan) -> dict[str, RecordingTerms]:
    return {
        metric.name: RecordingTerms(
            metric,
            tally_name(plan.plan, metric.name),
            metric.limit,
            metric.mechanism.certified(metric.sent - 1),
            _is_own(metric),
            metric.panel,
            metric.group,
        )
        for metric in plan.metrics
    }


def _is_own(metric: CompiledMetric) -> bool:
    """Whether each value is a chain of its own."""
    at_once = metric.measure is None or metric.measure.at_once
    return metric.kind in ("first", "every") and metric.type != "top_item" and at_once


class Decisions:
    def __init__(
        self, store: Store, plan: CompiledPlan, source: Source, counter: ItemCounter
    ) -> None:
        self._store = store
        self._plan = plan
        # This source draws a reservoir's coin.
        self._source = source
        self._counter = counter
        self._turn_of: tuple[Panel, int, int] | None = None
        self._turn = False
        #: By tally of a metric that was over budget: whether the lifetime has not enough left.
        self.spent: dict[str, bool] = {}
        self.terms = made_once(plan, terms_of)

    def ignore_panels(self) -> None:
        """Answer in every period, for trials of a plan; reports are still sent under that plan."""
        self.terms = {name: replace(terms, panels=1) for name, terms in self.terms.items()}

    def refused(self, now: int, *, look: bool = True) -> Outcome | None:
        """Return why nothing can be recorded now, None if the store is to decide.

        Consent that another process was given counts at once only if this may ``look`` at the file.
        """
        store = self._store
        if store.stopped or (store.consent is not GIVEN and not (look and self._consented())):
            return Outcome.NO_CONSENT
        if now == BEGINNING:
            store.deny(self._plan.metrics, Outcome.BAD_CLOCK)
            return Outcome.BAD_CLOCK
        if now >= self._plan.expires:
            store.deny(self._plan.metrics, Outcome.EXPIRED)
            return Outcome.EXPIRED
        return None

    def _consented(self) -> bool:
        """Look whether another process was given consent; if not, look again a while later."""
        store = self._store
        with store.transaction(READ):
            if not store.consented:
                # The store is locked here: consent that this process is given comes later.
                store.deny(self._plan.metrics, Outcome.NO_CONSENT)
            return store.consented

    def decide(self, connection: Connection, terms: RecordingTerms, now: int) -> Outcome | Place:
        """Return why nothing is recorded, or what the recorder is to do in this transaction."""
        store, plan = self._store, self._plan
        if now // plan.period != store.accounts.period:
            store.follow(connection, now)
            # A clock that was set back a little does not record before the ledger's period.
            now = store.moment(now)
        if now >= store.plans.next_expiry:
            store.lapsed += store.expire(connection, now)
        if terms.tally in store.states:
            return BEGUN
        if store.consent is not GIVEN:
            return Outcome.NO_CONSENT
        if not store.agreed(terms.group):
            others = [each for each in plan.metrics if each.group == terms.group]
            store.deny(others, Outcome.NO_CONSENT)
            return Outcome.NO_CONSENT
        if now >= plan.expires:
            return Outcome.EXPIRED
        if terms.panels > 1 and not self._is_turn(terms):
            return self._refuse(terms, Outcome.NOT_IN_PANEL)
        # A measure that has begun goes on, however much room other processes have taken since.
        begun = terms.metric.measure is not None and not terms.own and self._is_reserved(terms)
        if not begun and store.outbox.room <= 0 and store.outbox.full(connection):
            store.deny([terms.metric], Outcome.STORE_FULL)
            return Outcome.STORE_FULL
        if store.accounts.closed:
            return self._refuse(terms, Outcome.PERIOD_FULL)
        if terms.own:
            return self._own(terms)
        if terms.metric.measure is not None:
            return self._measure(connection, terms)
        if terms.metric.kind == "reservoir":
            return self._sample(connection, terms)
        if terms.metric.kind == "constant":
            return self._repeat(connection, terms)
        return self._count(connection, terms)

    def decide_in_memory(self, terms: RecordingTerms, now: int) -> Outcome | int | None:
        """Decide without a transaction, while the store is held; None if one is needed."""
        store, plan = self._store, self._plan
        if not store.buffering or not store.agreed(terms.group):
            return None
        if now // plan.period != store.accounts.period or now >= plan.expires:
            return None
        if store.accounts.closed:
            return self._refuse(terms, Outcome.PERIOD_FULL)
        if terms.panels > 1 and not self._is_turn(terms):
            return self._refuse(terms, Outcome.NOT_IN_PANEL)
        return self._own(terms)

    def _is_turn(self, terms: RecordingTerms) -> bool:
        store = self._store
        turn_of = store.panel, terms.panels, store.period
        if self._turn_of != turn_of:
            self._turn = store.panel.is_turn(terms.panels, store.period)
            self._turn_of = turn_of
        return self._turn

    def _own(self, terms: RecordingTerms) -> Outcome | int:
        seen = self._store.accounts.tallies.get(terms.tally, 0) + 1
        if seen > terms.limit:
            return self._refuse(terms, Outcome.PERIOD_FULL)
        if not self._affordable(terms.cost, terms.cost):
            return self._over_budget(terms, terms.cost)
        return seen

    def _sample(self, connection: Connection, terms: RecordingTerms) -> Outcome | ReservoirEntry:
        """Decide about a reservoir; a chain that displaces an unsent one takes over its charge."""
        store = self._store
        seen = store.accounts.tallies.get(terms.tally, 0) + 1
        held = outbox.in_reservoir(connection, terms.tally)
        if held is None and seen > 1:
            # Another version of the plan has kept a value of this period, and not in a reservoir.
            return self._refuse(terms, Outcome.PERIOD_FULL)
        kept = draws.replaces(draws.for_one(self._source), seen)
        held = held or 0
        reserved = max(held, terms.cost)
        if kept and not self._affordable(reserved - held, reserved - held):
            # A later value that displaces nothing, or costs nothing more, is affordable.
            self.spent.pop(terms.tally, None)
            return self._over_budget(terms, reserved - held) if seen == 1 else Outcome.OVER_BUDGET
        return ReservoirEntry(seen, kept, held, reserved)

    def _repeat(self, connection: Connection, terms: RecordingTerms) -> Outcome | Repetition:
        store, metric = self._store, terms.metric
        seen = store.accounts.tallies.get(terms.tally, 0) + 1
        if seen > terms.limit:
            return self._refuse(terms, Outcome.PERIOD_FULL)
        binding = made_once(self._plan, permanent.bindings_of)[metric.name]
        response = permanent.response(connection, binding)
        once = 0 if response else metric.permanent
        if not self._affordable(terms.cost, once):
            return self._over_budget(terms, once)
        return Repetition(seen, binding, response, once)

    def _count(self, connection: Connection, terms: RecordingTerms) -> Outcome | Occurrence:
        store = self._store
        count = self._counter.current(connection, terms.metric)
        begun = store.accounts.tallies.get(terms.tally, 0)
        if count is not None:
            return Occurrence(count, begun, 0, 0)
        claim = claims.find(connection, store.period, terms.tally)
        if begun and (claim is None or claim.holder != claims.NOBODY):
            # Another client counts the items, or another version of the plan has used the period.
            return self._refuse(terms, Outcome.PERIOD_FULL)
        held = claim.cost if claim else 0
        reserved = max(held, terms.cost)
        if not self._affordable(reserved - held, reserved - held):
            return self._over_budget(terms, reserved - held)
        return Occurrence(None, begun + 1, held, reserved)

    def _measure(self, connection: Connection, terms: RecordingTerms) -> Outcome | Measurement:
        store, metric, tally = self._store, terms.metric, terms.tally
        if not self._is_reserved(terms):
            if not self._affordable(terms.cost, terms.cost):
                return self._over_budget(terms, terms.cost)
            return Measurement(begun=False)
        # Nothing is added to the measure of another version, or after a withdrawal.
        found = measures.began(connection, tally, store.plans.get)
        if found is None or found[0].counted != metric.counted:
            return self._refuse(terms, Outcome.PERIOD_FULL)
        store.states[tally] = found[1]
        return BEGUN

    def _is_reserved(self, terms: RecordingTerms) -> bool:
        return bool(self._store.accounts.tallies.get(terms.tally))

    def _affordable(self, cost: int, lifetime: int) -> bool:
        store = self._store
        return store.accounts.allow(store.ceilings, store.own, cost, lifetime)

    def _over_budget(self, terms: RecordingTerms, lifetime: int) -> Outcome:
        """Refuse a value for its cost; note whether the lifetime cannot bear ``lifetime`` more."""
        store = self._store
        self.spent[terms.tally] = not store.accounts.lasts(store.ceilings, store.own, lifetime)
        return self._refuse(terms, Outcome.OVER_BUDGET)

    def _refuse(self, terms: RecordingTerms, outcome: Outcome) -> Outcome:
        """Return an outcome, and remember it for the metric while the store is in this period."""
        plan, store, metric = self._plan, self._store, terms.metric
        until = min((store.period + 1) * plan.period, plan.expires)
        store.refusals[metric.name] = Refusal(outcome, metric.plain, store.earliest, until)
        return outcome
