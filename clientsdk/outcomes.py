"""What became of a recorded value, and of a flush."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from sotto.errors import SottoError


class Outcome(StrEnum):
    """What :meth:`clientsdk.Client.record` did with a value.

    None of them depends on the value: the neighbouring relation keeps number, metric and time of
    recordings fixed, and so do these.
    """

    ACCEPTED = "accepted"
    """Its randomized outputs are in the store (or, for a reservoir, it took part in the draw)."""
    OVER_BUDGET = "over_budget"
    """The strongest rung would exceed the ceiling of the period or of the device's life."""
    PERIOD_FULL = "period_full"
    """The metric has had all the reports that its plan allows in a budget period."""
    NO_CONSENT = "no_consent"
    """Consent was not given, or was withdrawn."""
    STORE_FULL = "store_full"
    """The store takes nothing now: full disk, no permission, damaged, locked, forked or closed."""
    EXPIRED = "expired"
    """The plan has expired."""


class Refusal(NamedTuple):
    """An outcome that is certain for a metric until a time, in milliseconds since the epoch."""

    outcome: Outcome
    until: int


@dataclass(frozen=True, slots=True)
class FlushResult:
    """What one :meth:`clientsdk.Client.flush` did.

    Attributes
    ----------
    sent : int
        Reports that the publisher took.
    remaining : int
        Reports that are due and still here; the same bytes are sent at the next flush.
    lapsed : int
        Chains erased without a further report: their plan has expired, the aggregator would
        refuse them as late, or a ceiling lowered since forbids the next rung.
    error : SottoError or None
        Why the flush stopped early.
    """

    sent: int
    remaining: int
    lapsed: int = 0
    error: SottoError | None = None
