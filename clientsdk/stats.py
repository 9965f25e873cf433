"""Counts of what a client has done in this process: names and reasons, never a value."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from clientsdk.lifecycle import Forkable, watch_forks
from clientsdk.outcomes import NO_LAPSES, FlushResult, Outcome
from mechanisms.frozen import frozen


@frozen
class Stats:
    """Counts since the client was made, and what waits in its store now.

    ``outcomes``, by outcome and then by metric, leaves out those that a metric never had, and
    measures, of which only invalid values are counted: how often one is fed may be what it
    protects. ``send_errors`` counts the flushes that ended early, but for those that found another
    process at it. ``lapses`` are those of :class:`clientsdk.Lapses`. A report was last sent at
    ``last_send``, in ms since the epoch. ``outbox_chains`` have something still to be sent and take
    ``outbox_bytes`` at most, and ``due`` reports are due: None where the store cannot be read now.
    """

    outcomes: Mapping[Outcome, Mapping[str, int]]
    sent: int
    send_errors: int
    lapses: Mapping[str, int]
    last_send: int | None
    outbox_chains: int | None
    outbox_bytes: int | None
    due: int | None
    #: Why the client records nothing for good: it is switched off, or could not be made.
    disabled: str | None = None

    @property
    def recorded(self) -> dict[str, int]:
        """Values that were accepted, by metric."""
        return {**self.outcomes.get(Outcome.ACCEPTED, {})}

    @property
    def refused(self) -> dict[Outcome, int]:
        """Values that were not, by the outcome."""
        counted = {outcome: sum(counts.values()) for outcome, counts in self.outcomes.items()}
        counted.pop(Outcome.ACCEPTED, None)
        return counted


class OutcomeTally(Forkable):
    """Counts of one client in one process; a child of a fork begins with none.

    Threads may count at once: on an interpreter without a global lock a count may then be lost.
    """

    def __init__(self, metrics: Iterable[str]) -> None:
        self.last_send: int | None
        #: By outcome, then by metric.
        nothing = dict.fromkeys(metrics, 0)
        self.outcomes = {outcome: nothing.copy() for outcome in Outcome}
        self._begin()
        watch_forks(self)

    def count(self, outcome: Outcome, metric: str) -> Outcome:
        """Count a value whose metric the plan need not have, and return what became of it."""
        counts = self.outcomes[outcome]
        counts[metric] = counts.get(metric, 0) + 1
        return outcome

    def flushed(self, result: FlushResult, now: int) -> None:
        self.sent += result.sent
        if result.lapses is not NO_LAPSES:
            self.lapses += result.lapses
        if result.sent:
            self.last_send = now
        if result.error is not None:
            from clientsdk.sending.tasks import SentElsewhereError

            if not isinstance(result.error, SentElsewhereError):
                self.failed()

    def failed(self) -> None:
        self.send_errors += 1

    def stats(self, outbox: tuple[int, int, int] | None, disabled: str | None) -> Stats:
        """Return the counts, with what is in the store: chains, bytes and reports due."""
        if self._process != os.getpid():
            self.after_fork_in_child()
        outcomes = {
            outcome: {metric: count for metric, count in counts.items() if count}
            for outcome, counts in self.outcomes.items()
            if any(counts.values())
        }
        sent = self.sent, self.send_errors, self.lapses._asdict(), self.last_send
        chains, size, due = outbox or (None, None, None)
        return Stats(outcomes, *sent, chains, size, due, disabled)

    def after_fork_in_child(self) -> None:
        for counts in self.outcomes.values():
            counts.update(dict.fromkeys(counts, 0))
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self.sent = self.send_errors = 0
        self.lapses = NO_LAPSES
        self.last_send = None
