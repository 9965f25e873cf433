"""Looks at the results, keeps alerts of figures that moved, and sends them: once, or for ever."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipelines.alerts import kept as file
from pipelines.alerts.configuration import Configuration
from pipelines.alerts.evaluation import Judgement, judge, update
from pipelines.alerts.kept import Alert, Delivery, Kept
from pipelines.alerts.notifiers.base import NotificationError, Notifier
from pipelines.alerts.series import read_series
from pipelines.results.database import NoResultsError
from pipelines.results.reader import ResultsReader
from sotto.errors import SottoError

_LOG = logging.getLogger(__name__)

#: After so many failures a notifier is not called again until the next look.
_FAILURES = 3
_AGAIN = timedelta(hours=1)


@dataclass(frozen=True)
class Looked:
    """The result of a look at the results.

    ``new``: the alerts that were raised now. ``kept``: all alerts, oldest first. ``undelivered``:
    how many messages will be tried again.
    """

    new: list[Alert]
    kept: list[Alert]
    judgements: list[Judgement]
    undelivered: int


@dataclass(eq=False, repr=False)
class AlertWatch:
    """Alerts on the results that a reader reads.

    Parameters
    ----------
    reader : ResultsReader
    configuration : Configuration
    path : Path
        The file of alerts.
    notifiers : mapping of str to Notifier, optional
        By the names under which deliveries are kept; by default those of the configuration.
    clock : callable
        Returns the time, an aware datetime.
    warn : callable
        Called with a text about each failure that will be tried again.
    """

    reader: ResultsReader
    configuration: Configuration
    path: Path
    notifiers: Mapping[str, Notifier] | None = None
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    warn: Callable[[str], None] = _LOG.warning
    #: The result of the last look, if there was one.
    last: Looked | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._notifiers = self.configuration.notify if self.notifiers is None else self.notifiers
        self._revision: str | None = None

    def judgements(self) -> list[Judgement]:
        """Return the judgements of the watched figures by the present results."""
        return judge(read_series(self.reader, self.configuration), self.configuration)

    def look(self) -> Looked:
        """Look at the results, keep new alerts, and send those that are due.

        An alert is written to the file before it is sent, and its delivery after. A crash between
        the two may deliver it twice, with the same id.
        """
        revision = self.reader.revision()
        judgements = self.judgements()
        if self._revision is None:
            self._warn_of_gone()
        with file.changing(self.path) as kept:
            now = self.clock()
            new = update(kept, judgements, self.configuration, now)
            for alert in (each for each in new if each.news and each.told_by is None):
                alert.deliveries = {name: Delivery(next=now) for name in self._notifiers}
        self._revision = revision
        undelivered = self.deliver()
        self.last = Looked(new, self.kept().alerts, judgements, undelivered)
        return self.last

    def _warn_of_gone(self) -> None:
        """Warn of named metrics that no newest version of a plan has: no windows of them come."""
        newest = {(plan.collector, plan.plan): plan for plan in self.reader.plans()}
        names = {each.name for plan in newest.values() for each in plan.metrics}
        for each in self.configuration.metrics or ():
            if names and each.metric not in names:
                self.warn(f"alerts watch {each.metric}, which no newest version of a plan has")

    def kept(self) -> Kept:
        """Return the content of the file of alerts."""
        return file.read(self.path)

    def deliver(self) -> int:
        """Send the messages that are due; return how many will be tried again later."""
        with file.changing(self.path) as kept:
            for alert in kept.alerts:
                # Deliveries of notifiers that are not configured (any more) are given up.
                for name in alert.deliveries.keys() - self._notifiers.keys():
                    alert.deliveries[name].next = None
            for name, notifier in self._notifiers.items():
                self._deliver(name, notifier, kept.alerts)
            return kept.undelivered()

    def _deliver(self, name: str, notifier: Notifier, alerts: Sequence[Alert]) -> None:
        now, failures = self.clock(), 0
        for alert in alerts:
            delivery = alert.deliveries.get(name)
            if delivery is None or not _is_due(delivery, now):
                continue
            if failures == _FAILURES:
                return
            try:
                notifier.send(alert, now)
            except Exception as error:
                # The text of an error that is not of the contract may hold a secret.
                known = isinstance(error, NotificationError)
                problem = str(error) if known else f"{name} raised {type(error).__name__}"
                self.warn(f"an alert is not delivered: {problem}")
                delivery.failed(now, alert.raised, problem)
                failures += 1
                continue
            delivery.attempts += 1
            delivery.delivered, delivery.next, delivery.problem = self.clock(), None, None

    def run(self, stopped: threading.Event, seconds: float) -> None:
        """Look whenever the results have changed, and send what is due, until ``stopped`` is set.

        It also looks once an hour, so that the file's ``evaluated`` says that it does. A failure is
        warned of once and tried again. That there are no results yet is no failure.
        """
        problem, again = "", self.clock()
        while not stopped.is_set():
            try:
                if self.reader.revision() != self._revision or self.clock() > again:
                    self.look()
                    again = self.clock() + _AGAIN
                elif self._has_due():
                    self.deliver()
                problem = ""
            except NoResultsError:
                pass
            except (SottoError, OSError) as error:
                if str(error) != problem:
                    self.warn(f"alerts cannot be looked for: {error}")
                problem = str(error)
            stopped.wait(seconds)

    def _has_due(self) -> bool:
        now = self.clock()
        return any(
            _is_due(each, now) for alert in self.kept().alerts for each in alert.deliveries.values()
        )


def _is_due(delivery: Delivery, now: datetime) -> bool:
    return delivery.next is not None and delivery.next <= now
