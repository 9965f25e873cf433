"""Records a value: decides without it, draws its outputs, and stores and charges them at once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from sqlite3 import Connection

from clientsdk import diagnostics, disabled, draws
from clientsdk.consent import ConsentKeeper
from clientsdk.decisions import (
    BEGUN,
    Decisions,
    Occurrence,
    RecordingTerms,
    Repetition,
    ReservoirEntry,
)
from clientsdk.diagnostics import drop_locals
from clientsdk.item_counter import ItemCounter
from clientsdk.outcomes import Outcome
from clientsdk.store import measures, outbox, permanent
from clientsdk.store.database import READ, WRITE, Hold
from clientsdk.store.outbox import StoredChain
from clientsdk.store.store import Store
from mechanisms.arrays import Any
from mechanisms.randomness import Source
from sotto.errors import ParameterError, StoreError, did_you_mean
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import duration_text
from sotto.plan.measures import APP, Measure
from sotto.plan.metric import Symbol

#: As names of a module they are found sooner, in every recording, than as those of an Enum.
ACCEPTED, STORE_FULL, BAD_CLOCK = Outcome.ACCEPTED, Outcome.STORE_FULL, Outcome.BAD_CLOCK
NO_CONSENT, EXPIRED = Outcome.NO_CONSENT, Outcome.EXPIRED
OVER_BUDGET = Outcome.OVER_BUDGET
#: With these nothing of the device is kept.
_NOTHING_KEPT = (NO_CONSENT, EXPIRED, STORE_FULL)
_DAYS_OF_USE = Measure("days", APP)
_SPENT = "the lifetime budget is used up for %s, of which this installation records no more"
_BAD_CLOCK = "values are being dropped: the clock says a time before 2020, or from 2100 on"


class Recorder:
    def __init__(self, store: Store, plan: CompiledPlan, source: Source) -> None:
        self._store = store
        self._plan = plan
        # Draws chain ids, jitter, the reservoir's coin and the randomized outputs.
        self._source = source
        self.counter = ItemCounter(store, plan, source)
        self.decisions = Decisions(store, plan, source, self.counter)
        #: The app's values of the plan's segments.
        self.segments: Mapping[str, str | None] = {}
        #: Whether the person is first to be asked: no measure begins then.
        self.held_back = False
        self._responds = any(metric.holds_response for metric in plan.measured)
        #: Period, day, step and number of the consent of the last use that measures know of.
        self._attended: tuple[int, ...] | None = None
        #: Period and number of the consent, by tally: of the last use, and of the last written.
        self._uses: dict[str, tuple[int, int]] = {}
        self._written: dict[str, tuple[int, int]] = {}

    def attempt(
        self, metric: CompiledMetric, symbol: Symbol, now: int, consent: ConsentKeeper
    ) -> Outcome:
        """Record as :meth:`record` does; also answer if nothing can be recorded or the store fails.

        The symbol of a measure is the amount that is added to it.
        """
        try:
            outcome = self.decisions.refused(now)
            if outcome is None:
                outcome = self.record(metric, symbol, now)
            if outcome is STORE_FULL:
                diagnostics.warn("quota", "values are being dropped: the quota is used up")
            elif outcome is BAD_CLOCK:
                diagnostics.warn("clock", _BAD_CLOCK)
        except (StoreError, OSError) as error:
            # An OSError comes if the operating system gives no randomness.
            outcome = STORE_FULL
            diagnostics.warn("store", "values are being dropped: %s", str(error))
        if outcome is NO_CONSENT or outcome is EXPIRED:
            consent.keep_up(now)
            if outcome is NO_CONSENT:
                diagnostics.info_once(disabled.NOT_RECORDED)
            else:
                ending = str(self._plan.ending(self._plan.expires))
                diagnostics.warn(ending, "values are being dropped: %s", ending, quiet=math.inf)
        # The log must not tell of a use that a measure counts.
        if metric.measure is None:
            self._say_if_spent(metric, outcome)
            if diagnostics.wanted("debug"):
                follows = _what_follows(self._plan, metric) if outcome is ACCEPTED else ""
                diagnostics.debug("%s: %s%s", metric.name, outcome, follows)
        return outcome

    def _say_if_spent(self, metric: CompiledMetric, outcome: Outcome) -> None:
        if outcome is OVER_BUDGET:
            tally = self.decisions.terms[metric.name].tally
            if self.decisions.spent.get(tally):
                diagnostics.info_once(_SPENT % tally)

    def record(self, metric: CompiledMetric, symbol: Symbol, now: int) -> Outcome:
        """Record what a value was encoded to, or return why not.

        Nothing looks at the symbol before it is decided what becomes of it. ``now`` is in
        milliseconds since the epoch; where a clock that was set back gives a time before the
        ledger's period, the period's beginning is taken. After a StoreError nothing was recorded.
        """
        counter = self.counter
        if counter.begun and counter:
            with suppress(StoreError, OSError):
                counter.settle(now)
            if metric.type == "top_item" and self._count_on(metric, symbol, now):
                return ACCEPTED
        if self._plan.measured:
            self.attend(now)
        store = self._store
        terms = self.decisions.terms[metric.name]
        if metric.measure is not None:
            return self._measure(terms, symbol, now)
        if terms.own and store.buffers:
            buffered = self._buffer(terms, symbol, now)
            if buffered is not None:
                return buffered
        with store.transaction(WRITE) as connection:
            owed = store.erasure.owed
            decided = self.decisions.decide(connection, terms, now)
            if isinstance(decided, int):
                store.add_chain(connection, self._draw(terms.metric, symbol, now))
                store.accounts.reserve(store.database.cursor, terms.tally, decided, terms.cost)
            elif isinstance(decided, ReservoirEntry):
                # A chain that is not kept is drawn like one that is.
                chain = self._draw(terms.metric, symbol, now)
                self._sample(connection, terms, decided, chain)
            elif isinstance(decided, Repetition):
                self._repeat(connection, terms, decided, symbol, now)
            elif isinstance(decided, Occurrence):
                self._count(connection, terms, decided, symbol)
        # The log still has the secret from which older pseudonyms could be computed, or a chain
        # that was displaced.
        store.scrub_since(owed)
        return decided if isinstance(decided, Outcome) else ACCEPTED

    def attend(self, now: int, *, closing: bool = False) -> None:
        """Begin the measures of a period at the first use in it, and note a day of use.

        A measure answers for every period in which the SDK runs, even if nothing was counted: a
        report must not say by its existence that something was. Responses of the measure ``used``
        are written again when a client starts, in each step of the resolution, and at the end
        (``closing``). If this fails, as on a full disk, the next use tries again.
        """
        store, plan = self._store, self._plan
        responds = self._responds
        if not plan.measured or self.held_back or (closing and not responds):
            return
        step = now // plan.resolution if responds else 0
        reached = now // plan.period, now // measures.DAY, step
        if self._attended == (*reached, store.consents) and not closing:
            return
        found: list[Outcome] = []
        written: list[str] = []
        try:
            if self.decisions.refused(now) is not None:
                return
            with store.transaction(WRITE) as connection:
                owed = store.erasure.owed
                for metric in plan.measured:
                    terms = self.decisions.terms[metric.name]
                    outcome = self._begin(connection, terms, now)
                    if outcome is ACCEPTED and metric.measure == _DAYS_OF_USE:
                        self._add(terms, 1, now)
                    elif outcome is ACCEPTED and metric.holds_response:
                        written += self._respond(terms)
                    found.append(outcome)
                consents, period = store.consents, store.period
            # This is no branch and no loop: an interrupt's line would tell that there was a use.
            self._written.update(dict.fromkeys(written, (period, consents)))
            # Handlers of the app's log run below, and may look at frames.
            written.clear()
            if responds:
                # The log still has the response before, and the two may show a use in between.
                store.erasure.clean_log()
            else:
                store.scrub_since(owed)
        except (StoreError, OSError):
            return
        except BaseException as error:
            # After an interrupt, too, no frame keeps what was used.
            written.clear()
            drop_locals(error)
            raise
        for metric, outcome in zip(plan.measured, found, strict=True):
            self._say_if_spent(metric, outcome)
        if STORE_FULL not in found:
            self._attended = *reached, consents

    def note_use(self, metric: CompiledMetric, times: Any, now: int) -> Outcome:
        """Note a use in memory, or return why not; :meth:`attend` writes it when it is time.

        The file is neither read nor written, so that nothing about it shows when there was a use.
        """
        store = self._store
        if self.held_back or not store.agreed(metric.group):
            return NO_CONSENT
        outcome = self.decisions.refused(now, look=False)
        if outcome is not None:
            return outcome
        tally = self.decisions.terms[metric.name].tally
        period = max(now // self._plan.period, store.period)
        # A response is drawn anew at most once a process and period.
        if times and self._written.get(tally) != (period, store.consents):
            self._uses[tally] = period, store.consents
        return ACCEPTED

    def _respond(self, terms: RecordingTerms) -> list[str]:
        """Write a response again, drawn anew from *yes* after a use, and return its tally then.

        With a use and without, the draws are the same, and so is the write.
        """
        store, tally = self._store, terms.tally
        drawn_for = store.identity.pseudonym, self._source, self._plan.resolution
        before, drawn = store.states[tally], measures.response(terms.metric, True, *drawn_for)
        # A use must not show in the answers of two periods: if it was not written, it is lost.
        now = store.period, store.consents
        used = self._uses.get(tally) == now != self._written.get(tally)
        store.states[tally] = drawn if used else before
        measures.rewrite(store.database.cursor, tally, store.states[tally])
        return [tally] if used else []

    def _begin(self, connection: Connection, terms: RecordingTerms, now: int) -> Outcome:
        """Begin a measure unless it has begun; draw the answer of one that answers at once."""
        store, plan, metric = self._store, self._plan, terms.metric
        decided = self.decisions.decide(connection, terms, now)
        if decided is BEGUN:
            return ACCEPTED
        first = period = store.period
        at_once = metric.measure is not None and metric.measure.at_once
        if at_once and decided not in _NOTHING_KEPT:
            # The first use is noted even if it is not the device's turn.
            first = measures.first_use(connection, terms.tally, period)
        if isinstance(decided, Outcome):
            return decided
        if isinstance(decided, int):
            age = metric.encode(measures.age(plan, metric, first, period))
            store.add_chain(connection, self._draw(metric, age, now))
        else:
            place = store.plans.number, metric.index, self._cell(metric)
            state = measures.nothing(plan, metric)
            if metric.holds_response:
                drawn_for = store.identity.pseudonym, self._source, plan.resolution
                state = measures.response(metric, False, *drawn_for)
            measures.begin(connection, terms.tally, period, place, state)
            store.states[terms.tally] = state
            store.plans.will_expire(plan.expires)
        store.accounts.reserve(store.database.cursor, terms.tally, 1, terms.cost)
        return ACCEPTED

    def _measure(self, terms: RecordingTerms, amount: Any, now: int) -> Outcome:
        """Add an amount to a measure: one write, of one size and in one place, whatever it is."""
        store = self._store
        with store.transaction(WRITE) as connection:
            owed = store.erasure.owed
            outcome = self._begin(connection, terms, now)
            if outcome is ACCEPTED:
                self._add(terms, amount, now)
        store.scrub_since(owed)
        return outcome

    def _add(self, terms: RecordingTerms, amount: Any, now: int) -> None:
        store, tally = self._store, terms.tally
        began = store.accounts.period * self._plan.period
        state = measures.added(terms.metric, store.states[tally], amount, now, began)
        store.states[tally] = state
        measures.rewrite(store.database.cursor, tally, state)

    def _count_on(self, metric: CompiledMetric, symbol: Symbol, now: int) -> bool:
        """Count an item if its count has begun; False if a full decision is needed."""
        with self._store.transaction(READ) as connection:
            count = self.counter.under_way(connection, metric, now)
            if count is not None:
                count.add(symbol)
            return count is not None

    def _buffer(self, terms: RecordingTerms, symbol: Symbol, now: int) -> Outcome | None:
        """Record in memory without a transaction; None if one is needed."""
        store = self._store
        with Hold(store.database):
            decided = self.decisions.decide_in_memory(terms, now)
            if not isinstance(decided, int):
                return decided
            chain = self._draw(terms.metric, symbol, now)
            return ACCEPTED if store.add_buffered(terms.tally, decided, terms.cost, chain) else None

    def _sample(
        self,
        connection: Connection,
        terms: RecordingTerms,
        entry: ReservoirEntry,
        chain: StoredChain,
    ) -> None:
        store = self._store
        if entry.kept:
            if outbox.displace(connection, terms.tally, chain, entry.reserved):
                store.erasure.schedule(connection)
            store.add_chain(connection, chain)
        added = entry.reserved - entry.held if entry.kept else 0
        store.accounts.reserve(store.database.cursor, terms.tally, entry.seen, added)

    def _repeat(
        self,
        connection: Connection,
        terms: RecordingTerms,
        decided: Repetition,
        symbol: Symbol,
        now: int,
    ) -> None:
        """Draw a report from the permanent response, and that from the value if there is none.

        A later value is not randomized, nor compared with anything.
        """
        store, metric = self._store, terms.metric
        source, chain_id, jitter = draws.for_chain(self._source, self._plan.resolution)
        response = decided.response
        if response is None:
            pseudonym = store.identity.pseudonym
            response = metric.mechanism.draw_last(symbol, chain_id, pseudonym, source)
            permanent.keep(connection, decided.binding, terms.tally, decided.once, response)
        try:
            payloads = metric.mechanism.weaker(response, source)
        except ParameterError:
            raise permanent.misfit(connection) from None
        store.add_chain(connection, self._chain(metric, now, chain_id, jitter, payloads))
        store.accounts.reserve(
            store.database.cursor, terms.tally, decided.seen, terms.cost, lifetime=decided.once
        )

    def _count(
        self, connection: Connection, terms: RecordingTerms, decided: Occurrence, item: Symbol
    ) -> None:
        if decided.running is not None:
            decided.running.add(item)
            return
        store = self._store
        claimed = terms.metric, terms.tally, decided.reserved
        count = self.counter.begin(connection, *claimed, self._cell(terms.metric))
        count.add(item)
        added = decided.reserved - decided.held
        store.accounts.reserve(store.database.cursor, terms.tally, decided.seen, added)
        self.counter.hold(count)

    def _draw(self, metric: CompiledMetric, symbol: Symbol, now: int) -> StoredChain:
        """Draw all that is stored for a value; chain id and jitter before the symbol is read."""
        source, chain_id, jitter = draws.for_chain(self._source, self._plan.resolution)
        pseudonym = self._store.identity.pseudonym
        payloads = metric.mechanism.draw(symbol, chain_id, pseudonym, source)
        return self._chain(metric, now, chain_id, jitter, payloads)

    def _chain(
        self,
        metric: CompiledMetric,
        now: int,
        chain_id: bytes,
        jitter: int,
        payloads: tuple[bytes, ...],
    ) -> StoredChain:
        store, plan = self._store, self._plan
        resolution, period, number = plan.resolution, store.accounts.period, store.plans.number
        began = period * plan.period
        # The store may be in neither reading's period if the clock was set between two readings.
        event = now - now % resolution if began < now < began + plan.period else began
        due = event + resolution + jitter + metric.delays[0]
        of_metric = number, metric.index, event, jitter
        cell = self._cell(metric)
        return StoredChain(period, due, chain_id, *of_metric, 0, 0, b"".join(payloads), cell)

    def _cell(self, metric: CompiledMetric) -> int:
        """Return the cell of the plan's segments that the device is in, whatever is recorded.

        A measure takes the app's own segments: whatever begins its period would choose others.
        """
        plan = self._plan
        if not plan.attributes:
            return 0
        from sotto.plan.segments import MEASURED, cell_of

        measured = MEASURED.get() if metric.measure is None else None
        values = {**self.segments, **(measured or {})}
        if plan.experiment is not None:
            values[plan.experiment.name] = self._arm()
        return cell_of(plan.attributes, values)

    def _arm(self) -> str | None:
        store, experiment = self._store, self._plan.experiment
        if experiment is None or not store.arm_secret or not store.agreed_to_any:
            return None
        return experiment.arm(store.arm_secret, self._plan.collector)

    def arm(self, experiment: str) -> str | None:
        """Return the arm of the plan's experiment that the device is in, as the file now says it.

        None if it is in none; ParameterError if the plan has no such experiment.
        """
        known = self._plan.experiment
        if known is None or known.name != experiment:
            has = "none" if known is None else known.name
            has += did_you_mean(experiment, [has])
            raise ParameterError(f"plan {self._plan.plan!r} has no such experiment; it has {has}")
        with self._store.transaction(READ):
            return None if self._store.stopped else self._arm()


def _what_follows(plan: CompiledPlan, metric: CompiledMetric) -> str:
    """Return what is said of an accepted value: the same for each one."""
    if metric.type == "top_item":
        return "; it is counted, and one report is drawn when the budget period is over"
    first = duration_text(metric.delays[0] + 2 * plan.resolution)
    return f"; the first of {metric.sent} reports is due within {first}"
