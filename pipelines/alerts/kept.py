"""The file of alerts, JSON: an alert stays in it once it was raised, and so is sent once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal, NamedTuple

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from pipelines.storage.files import lock_within, replace
from pipelines.web import formats
from sotto.errors import AggregationError

#: How many alerts the file has at most, the newest ones.
MOST_ALERTS = 1000
#: Seconds to wait while another process has the file.
_PATIENCE = 60.0
#: When a message that cannot be delivered is tried again: after the first time, doubled with each
#: attempt, up to the second; it is given up after the third.
FIRST_RETRY, LAST_RETRY, GIVEN_UP = timedelta(seconds=10), timedelta(hours=1), timedelta(days=7)


class Figure(NamedTuple):
    """A figure that is watched; all versions of a plan together."""

    collector: str
    plan: str
    metric: str
    segment: str
    kind: str
    item: str
    length: timedelta  #: the length of its windows

    @property
    def name(self) -> str:
        """Its name for people, such as ``carrier AA`` or ``dep_delay mean, os=linux``."""
        what = self.item if self.kind == "share" else f"{self.kind} {self.item}".strip()
        return f"{self.metric} {what}" + (f", {self.segment}" if self.segment else "")

    @property
    def key(self) -> str:
        """Its name in the file of alerts: JSON, the collector first."""
        return json.dumps([*self[:-1], self.length.total_seconds()])


class _KeptModel(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Delivery(_KeptModel):
    """The delivery of an alert by one notifier."""

    delivered: AwareDatetime | None = None
    attempts: int = 0
    #: When it is tried next; None once it is delivered or given up.
    next: AwareDatetime | None = None
    problem: str | None = None

    def failed(self, now: datetime, raised: datetime, problem: str) -> None:
        """Note an attempt that has failed."""
        wait = min(FIRST_RETRY * 2 ** min(self.attempts, 20), LAST_RETRY)
        self.attempts += 1
        self.problem = problem
        self.next = None if now - raised > GIVEN_UP else now + wait


class Alert(_KeptModel):
    """A figure that moved, as it was when the alert was raised.

    Amounts are in the figure's unit: shares are fractions. ``expected`` is the level before the
    shift, and ``change`` is how far the level is above it since, with an interval of 95 % from
    ``low`` to ``high``; ``sigma`` is the change in its own standard errors.
    """

    id: str
    raised: AwareDatetime
    collector: str
    plan: str
    metric: str
    segment: str
    kind: str
    item: str
    unit: str | None
    #: The start of the first window after the shift, and the window by which it was found.
    since: AwareDatetime
    window_start: AwareDatetime
    window_end: AwareDatetime
    #: The revision of the newest of these windows when the alert was raised.
    revision: int
    direction: Literal["up", "down"]
    expected: float
    change: float
    low: float
    high: float
    sigma: float
    #: Expected number of false alarms a year of all watched figures together; how many figures
    #: those are; and how many windows of this figure pass between two false alarms.
    false_alarms_per_year: float
    figures: int
    windows_between_false_alarms: float
    #: How many windows it took from ``since`` on to find the shift, and within how many a shift of
    #: this size is found with 90 % probability; None for more than 26.
    windows: int
    predicted_windows: int | None
    #: Whether it is about a window that was judged for the first time, or revised, and is sent.
    news: bool
    #: The figure's last windows as a line of text, and the address of the page's entry.
    course: str = ""
    link: str | None = None
    #: The other figures of its group, in sentences; or the id of the alert that is sent for it.
    others: list[str] = Field(default_factory=list)
    told_by: str | None = None
    #: Whether the present results still show the shift.
    standing: bool = True
    deliveries: dict[str, Delivery] = Field(default_factory=dict)

    @property
    def figure(self) -> Figure:
        """The figure that moved."""
        length = self.window_end - self.window_start
        about = (self.collector, self.plan, self.metric, self.segment, self.kind, self.item)
        return Figure(*about, length)

    def sentence(self) -> str:
        """Return the alert in one sentence."""
        went = "rose" if self.direction == "up" else "fell"
        return (
            f"{self.figure.name} {went} from {formats.quantity(self.expected, self.unit)} by "
            f"{formats.difference(abs(self.change), self.unit)} (95 %: {self.reach}; "
            f"{abs(self.sigma):.1f} standard errors) since {formats.day(self.since)}"
        )

    def paragraph(self) -> list[str]:
        """Return all about the alert, in lines of text."""
        rate = self.false_alarms_per_year
        found = (
            f"within {_windows(self.predicted_windows)} with 90 % probability"
            if self.predicted_windows is not None
            else "in less than 90 % of all cases within 26 windows"
        )
        return [
            self.sentence(),
            *([f"  {self.course}"] if self.course else []),
            *(f"  at the same time {each}" for each in self.others),
            f"  plan {self.plan} of {self.collector}, revision {self.revision}; it took "
            f"{_windows(self.windows)} of {self.figure.length.total_seconds() / 86400:g} days, up "
            f"to {formats.day(self.window_end)} UTC;",
            f"  a shift of this size is found {found};",
            f"  {rate:g} false alarm{'' if rate == 1 else 's'} a year are expected of the "
            f"{self.figures} figures watched",
            *([f"  {self.link}"] if self.link else []),
        ]

    def data(self) -> dict[str, object]:
        """Return its fields as JSON has them, without those on deliveries and later revisions."""
        return self.model_dump(mode="json", exclude={"deliveries", "standing"})

    @property
    def reach(self) -> str:
        """The interval of the change, in its direction."""
        sign = -1 if self.direction == "down" else 1
        ends = sorted((sign * self.low, sign * self.high))
        return " to ".join(formats.difference(end, self.unit) for end in ends)


class Judged(_KeptModel):
    """How far a figure was judged: the end of its last window, and the highest revision."""

    until: AwareDatetime
    revision: int


class Kept(_KeptModel):
    """The contents of the file."""

    #: 1; another version is another meaning.
    version: Literal[1] = 1
    #: When the results were last looked at.
    evaluated: AwareDatetime | None = None
    #: By :attr:`Figure.key`.
    judged: dict[str, Judged] = Field(default_factory=dict)
    #: Oldest first.
    alerts: list[Alert] = Field(default_factory=list)

    def add(self, alerts: list[Alert]) -> None:
        """Add alerts, and drop the oldest beyond ``MOST_ALERTS``."""
        self.alerts = [*self.alerts, *alerts][-MOST_ALERTS:]

    def undelivered(self, collector: str | None = None) -> int:
        """Return how many messages are still to be delivered, of one collector or all.

        Messages that were given up do not count.
        """
        return sum(
            each.next is not None
            for alert in self.alerts
            for each in alert.deliveries.values()
            if collector in (None, alert.collector)
        )


def read(path: Path) -> Kept:
    """Return the content of a file; an empty one if there is no file.

    Raises AggregationError if it is damaged.
    """
    try:
        return Kept.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return Kept()
    except ValidationError as error:
        raise AggregationError(
            f"{path} is no file of alerts ({error.error_count()} faults): restore it, or delete it "
            "and have all figures judged anew"
        ) from None


@contextmanager
def changing(path: Path) -> Iterator[Kept]:
    """Lock and yield the content of a file, and write it if the block ends without an error.

    Raises AggregationError if another process has the file, or if it is damaged.
    """
    descriptor = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if not lock_within(descriptor, _PATIENCE):
            raise AggregationError(f"{path} is in use: another process sends alerts")
        kept = read(path)
        yield kept
        replace(path, kept.model_dump_json(indent=1).encode())
    finally:
        os.close(descriptor)


def _windows(count: int) -> str:
    return "1 window" if count == 1 else f"{count} windows"
