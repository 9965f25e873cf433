"""The demo's findings: plain values that the terminal story and the report both read.

Shares are fractions of 1, delays minutes, distances miles, times milliseconds since the epoch,
privacy amounts micro-epsilon unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pipelines.web.formats import interval, quantity, writer_of
from sotto.plan.compiled import CompiledPlan


def date(milliseconds: int, form: str = "%-d %b") -> str:
    """Return a day as the story and the report write it."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(form)


@dataclass(frozen=True)
class Comparison:
    """An estimate with its 95 % interval beside two truths.

    ``kept`` is the truth of the ``n`` reports that were counted, which the interval is about,
    ``every`` that of all flights of the same window, recorded or not.
    """

    label: str
    unit: str
    value: float
    low: float
    high: float
    kept: float
    every: float
    n: int = 0

    @property
    def covers(self) -> bool:
        return self.low <= self.kept <= self.high

    @property
    def written(self) -> tuple[str, str, str, str]:
        """The estimate, its interval, and both truths, as people read them."""
        write = writer_of(self.unit)
        bounds = interval(self.low, self.high, self.unit)
        return write(self.value), bounds, write(self.kept), write(self.every)

    def __str__(self) -> str:
        kept, every = (quantity(truth, self.unit) for truth in (self.kept, self.every))
        return (
            f"{self.label}: {quantity(self.value, self.unit)}, 95 % interval {self.written[1]}; "
            f"truth of the counted reports {kept}, of all flights {every}"
        )


@dataclass(frozen=True)
class WindowSeries:
    """One quantity, window after window; ``starts`` are the windows' starts."""

    label: str
    unit: str
    starts: Sequence[int]
    values: Sequence[Comparison]


@dataclass(frozen=True)
class Release:
    """One window's estimate as of one day: ``day`` counts from the window's start."""

    day: int
    by_level: tuple[int, ...]
    seen: Comparison


@dataclass(frozen=True)
class MeasuredWeeks:
    """Figures that aircraft measured of themselves in the first weeks of the year.

    ``days`` are the shares of the days flown in the week that began at ``start``, ``again`` what
    part of the aircraft that were new in the first week had flights in later ones. ``compared`` has
    all estimates by what they are of; ``equal_windows`` is as of :class:`Findings`.
    """

    start: int
    days: Sequence[Comparison]
    again: Sequence[Comparison]
    compared: Mapping[str, Sequence[Comparison]]
    equal_windows: tuple[int, int]


@dataclass(frozen=True)
class Coverage:
    """How many 95 % intervals hold their truth, and the least that chance allows.

    Chance allows fewer than ``least`` in one of 1,000 years. Intervals are rounded outwards, to a
    tenth of a standard error, so that a little more than 95 % of them hold.
    """

    label: str
    hits: int
    total: int
    least: int

    @property
    def enough(self) -> bool:
        return self.hits >= self.least

    @property
    def written(self) -> tuple[str, str, str, str]:
        """The cells of its row in a table."""
        held = f"{self.hits:,} of {self.total:,}"
        share = writer_of("share")(self.hits / self.total)
        return self.label, held, share, f"{self.least:,} at least"


@dataclass(frozen=True)
class LedgerPeriod:
    """One budget period (a week): what devices spent and what the aggregator counted."""

    spent: int
    counted: int
    withheld: int

    @property
    def difference(self) -> int:
        """Spent, minus counted, minus what revoked pseudonyms explain: zero when all is well."""
        return self.spent - self.counted - self.withheld


@dataclass(frozen=True)
class Revocation:
    """One revoked pseudonym: its own ledger beside the aggregator's two audits."""

    fault: str
    start: int
    reason: str
    spent: int
    observed: int
    accepted: int


@dataclass(frozen=True)
class Quarantined:
    """One reason: how often it was found, and planted, or None where that depends on counts."""

    reason: str
    planted: int | None
    found: int

    @property
    def as_planted(self) -> bool:
        return self.found > 0 if self.planted is None else self.found == self.planted


@dataclass(frozen=True)
class Findings:
    """Everything that the story and the report say.

    ``chains`` are values that were randomized, and ``reports`` all their levels. The network has
    ``planted`` faults, by name, by which ``duplicates`` of reports reached the aggregator.
    ``agreeing`` pseudonyms of one audited week have the same amount in both ledgers, of how many;
    ``equal_windows`` have the same numbers in a second count of the logs, of how many windows.
    ``withheld`` are the windows of too few reports: metric, start in ms, and why. ``seconds`` are
    the durations of the stages.
    """

    plan: CompiledPlan
    flights: int
    devices: int
    skipped: Mapping[str, int]
    chains: int
    reports: int
    messages: int
    log_bytes: int
    sharpening: Sequence[Sequence[Release]]
    carriers: Sequence[Comparison]
    carriers_window: int
    series: Sequence[WindowSeries]
    coverage: Sequence[Coverage]
    ledger: Sequence[LedgerPeriod]
    revocations: Sequence[Revocation]
    agreeing: tuple[int, int]
    quarantine: Sequence[Quarantined]
    planted: Mapping[str, int]
    duplicates: int
    equal_windows: tuple[int, int]
    weeks: MeasuredWeeks
    withheld: Sequence[tuple[str, int, str]]
    seconds: Mapping[str, float]

    @property
    def sums(self) -> dict[str, int]:
        """Both ledgers over the year."""
        spent, counted, withheld, left = (
            sum(getattr(period, name) for period in self.ledger)
            for name in ("spent", "counted", "withheld", "difference")
        )
        return {
            "devices spent": spent,
            "aggregator counted": counted,
            "withheld from revoked pseudonyms": withheld,
            "left over": left,
        }

    @property
    def equal_weeks(self) -> int:
        return sum(period.difference == 0 for period in self.ledger)
