"""Outcomes of a recorded value, a person's consent, and the result of a flush."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from time import monotonic

from mechanisms.frozen import NamedTuple, frozen
from sotto.errors import SottoError

#: Why a store is not used any more.
CLOSED = "the client is closed: make another one"


class Outcome(StrEnum):
    """The outcome of :meth:`clientsdk.Client.record`; none depends on the value.

    It is true if it is ``ACCEPTED``, and else false: the value was dropped.
    """

    ACCEPTED = "accepted"
    """Its randomized outputs are in the store, and charged.

    For a reservoir: it took part in the draw. For a constant metric: the period has a report, drawn
    from the permanent response to the first value. For a top item: it was counted, in memory, and
    what the count will cost is charged; it is lost if the process ends before the period does.
    """
    OVER_BUDGET = "over_budget"
    """The strongest level would exceed the ceiling of the period or of the device's life.

    For a constant metric: that of the strongest level sent would exceed the period's, or that of
    its permanent response, unless there is one, the lifetime's.
    """
    PERIOD_FULL = "period_full"
    """The metric has had all the reports that its plan allows in a budget period, or another
    process or client counts its top items in it, also one that died."""
    NOT_IN_PANEL = "not_in_panel"
    """The plan divides devices into panels, and this period, by a secret of the device alone, is
    not its turn: nothing is stored or charged."""
    NO_CONSENT = "no_consent"
    """Consent was not given, or was withdrawn."""
    STORE_FULL = "store_full"
    """The store takes nothing now: its quota is used up, the disk is full, or it is gone, replaced,
    without permission, damaged, locked or forked. Or the operating system gives no randomness."""
    CLOSED = "closed"
    """The app has closed this client."""
    BAD_CLOCK = "bad_clock"
    """The device's clock says a time before 2020, or from 2100 on."""
    EXPIRED = "expired"
    """The plan has expired."""
    DISABLED = "disabled"
    """The kill switch is on (:class:`clientsdk.Settings`): nothing is looked at but the type. Or
    :meth:`clientsdk.Client.open` could not make a client that works."""
    INVALID = "invalid"
    """No such metric, a value of the wrong type, or an error that nobody expects: only where
    :meth:`clientsdk.Client.open` was told not to raise it."""

    # As of the text that it equals; an Enum's own would be most of what a refusal costs.
    __hash__ = str.__hash__

    def __bool__(self) -> bool:
        return self is Outcome.ACCEPTED


class Consent(StrEnum):
    """Whether the person has agreed; nothing is recorded or sent unless it is ``GIVEN``.

    It is true if it is ``GIVEN``, and else false.
    """

    NEVER_GIVEN = "never given"
    GIVEN = "given"
    WITHDRAWN = "withdrawn"

    def __bool__(self) -> bool:
        return self is Consent.GIVEN


class Refusal(NamedTuple):
    outcome: Outcome
    plain: frozenset[object]  #: Types that the metric takes; a value of any other type is checked.
    #: Between which readings of the clock it holds (ms since the epoch); None if at all of them.
    since: int | None
    until: int
    #: On the monotonic clock, where another process may end it at any time.
    stale: float | None = None

    def holds(self, clock: Callable[[], float]) -> bool:
        """Whether it is still so, by a clock that returns milliseconds since the epoch."""
        if self.since is not None and not self.since <= clock() < self.until:
            return False
        return self.stale is None or monotonic() < self.stale


class Lapses(NamedTuple):
    """Chains erased without a further report, by the reason; none depends on a value.

    Their plan has ``expired``, the aggregator would refuse them as ``late``, they could not be
    delivered for longer than the quota allows (``overdue``), a ``ceiling`` lowered since forbids
    the next level, what is stored cannot be a chain of their metric (``damaged``), or they were
    recorded while the ``clock`` was ahead by more than a budget period.
    """

    expired: int = 0
    late: int = 0
    overdue: int = 0
    ceiling: int = 0
    damaged: int = 0
    clock: int = 0

    def __add__(self, other: object) -> Lapses:
        if not isinstance(other, Lapses):
            return NotImplemented
        return Lapses(*(one + more for one, more in zip(self, other, strict=True)))


NO_LAPSES = Lapses()


@frozen
class FlushResult:
    """The result of one :meth:`clientsdk.Client.flush`, with the error that stopped it, if any.

    ``sent`` counts the reports that the publisher took; ``remaining`` those that are due and still
    here: the same bytes are sent at the next flush.
    """

    sent: int
    remaining: int
    lapses: Lapses = NO_LAPSES
    error: SottoError | None = None

    @property
    def lapsed(self) -> int:
        return sum(self.lapses)
