"""What the demo found: plain values that the terminal story and the report both read.

Shares are fractions of 1, delays minutes, distances miles, times milliseconds since the epoch,
privacy amounts micro-epsilon unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


@dataclass(frozen=True)
class Comparison:
    """An estimate with its 95 % interval beside two truths.

    ``kept`` is the truth of the ``n`` reports that were counted, which the interval is about,
    ``every`` that of all flights of the same window, recorded or not.
    """

    label: str
    value: float
    low: float
    high: float
    kept: float
    every: float
    n: int = 0

    @property
    def covers(self) -> bool:
        return self.low <= self.kept <= self.high


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

    day: float
    by_level: tuple[int, ...]
    seen: Comparison


@dataclass(frozen=True)
class Sharpening:
    """How one window's estimate gets sharper as levels arrive; ``kept`` is the final truth."""

    label: str
    unit: str
    window_days: int
    kept: float
    releases: Sequence[Release]


class Fate(Enum):
    """What became of a destination in the decoding."""

    FOUND = "found"
    MISSED = "missed"
    UNDETECTABLE = "undetectable"
    FALSE = "false find"


@dataclass(frozen=True)
class Destination:
    """One airport that was flown to, or that was decoded though nobody flew there."""

    code: str
    name: str
    latitude: float
    longitude: float
    share: Comparison
    fate: Fate


@dataclass(frozen=True)
class Decoding:
    """The decoded destinations of the year: those that were flown to, and those that were found.

    ``candidates`` airports were tested for; from the share ``floor`` on one is more likely found
    than not; no candidate accounts for ``unexplained``, beside what really went elsewhere
    (``unlisted``).
    """

    destinations: Sequence[Destination]
    candidates: int
    floor: float
    unexplained: Comparison
    unlisted: Mapping[str, float]
    airports: Sequence[tuple[float, float]]

    def of(self, fate: Fate) -> list[Destination]:
        met = [stop for stop in self.destinations if stop.fate is fate]
        return sorted(met, key=lambda stop: -stop.share.kept)

    def count(self, fate: Fate) -> int:
        return len(self.of(fate))


@dataclass(frozen=True)
class DelayCurve:
    """Shares of departure delays in a window at or below so many minutes, beside a finer truth."""

    grid: Sequence[float]
    value: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]
    minutes: Sequence[float]
    kept: Sequence[float]


@dataclass(frozen=True)
class Coverage:
    """How many 95 % intervals hold their truth, and what chance allows 999 times in 1,000."""

    label: str
    hits: int
    total: int
    least: int
    most: int

    @property
    def inside(self) -> bool:
        return self.least <= self.hits <= self.most


@dataclass(frozen=True)
class LevelError:
    """Root mean square error of a metric with its reports at one level, over all weeks."""

    epsilon: float
    observed: float
    predicted: float
    low: float
    high: float


@dataclass(frozen=True)
class MetricErrors:
    """Error by level; and the last level's mean square error over that of fresh responses.

    ``low`` and ``high`` bound what one set of fresh responses gives against the mean of many.
    """

    label: str
    unit: str
    levels: Sequence[LevelError]
    ratio: float
    low: float
    high: float


@dataclass(frozen=True)
class LedgerPeriod:
    """One budget period (a week): what devices spent and what the aggregator counted."""

    start: int
    pseudonyms: int
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
    accepted: int
    observed: int


@dataclass(frozen=True)
class Quarantined:
    """One reason: how often it was found, and planted, or None where that depends on counts."""

    reason: str
    explanation: str
    planted: int | None
    found: int

    @property
    def as_planted(self) -> bool:
        return self.found > 0 if self.planted is None else self.found == self.planted


@dataclass(frozen=True)
class Planted:
    """One kind of fault that the network planted, and what became of it."""

    fault: str
    count: int
    outcome: str


@dataclass(frozen=True)
class Timing:
    """One stage's duration in seconds."""

    stage: str
    wall: float


@dataclass(frozen=True)
class Run:
    """One stop of the aggregator: it took what had arrived up to a time, then estimated."""

    as_of: int | None
    runs: int
    size: int
    reports: int
    counted: int
    superseded: int
    duplicates: int
    seconds: float


@dataclass(frozen=True)
class Totals:
    """The job in numbers."""

    flights: int
    devices: int
    recordings: int
    chains: int
    reports: int
    messages: int
    log_bytes: int
    skipped: Mapping[str, int]
    week_epsilon: float
    ceiling: float
    lifetime: float


@dataclass(frozen=True)
class Findings:
    """Everything that the story and the report say.

    ``agreeing`` pseudonyms of one audited week have the same amount in both ledgers, of how many;
    ``equal_windows`` have the same numbers in a second count of the log, of how many windows.
    ``withheld`` are the windows of too few reports: metric, start in ms, and why.
    """

    totals: Totals
    sharpening: Sequence[Sharpening]
    carriers: Sequence[Comparison]
    carriers_window: int
    airlines: Mapping[str, str]
    series: Mapping[str, WindowSeries]
    quantiles: Sequence[Comparison]
    curve: DelayCurve
    decoding: Decoding
    coverage: Sequence[Coverage]
    scores: Sequence[float]
    errors: Sequence[MetricErrors]
    ledger: Sequence[LedgerPeriod]
    lifetimes: Sequence[float]
    revocations: Sequence[Revocation]
    agreeing: tuple[int, int]
    quarantine: Sequence[Quarantined]
    planted: Sequence[Planted]
    runs: Sequence[Run]
    equal_windows: tuple[int, int]
    timings: Sequence[Timing]
    withheld: Sequence[tuple[str, int, str]] = ()

    @property
    def carrier_names(self) -> list[str]:
        names = [
            f"{self.airlines[one.label]} {one.label}" if one.label in self.airlines else one.label
            for one in self.carriers
        ]
        return [name.replace(" Inc.", "").replace(" Co.", "") for name in names]

    @property
    def spent(self) -> int:
        return sum(period.spent for period in self.ledger)

    @property
    def counted(self) -> int:
        return sum(period.counted for period in self.ledger)

    @property
    def revoked(self) -> int:
        return sum(period.withheld for period in self.ledger)

    @property
    def equal_weeks(self) -> int:
        return sum(period.difference == 0 for period in self.ledger)
