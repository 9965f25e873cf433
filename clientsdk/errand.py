"""A flush under way, as those who wait for it and those who do it see it."""

from __future__ import annotations

import math
import time

from clientsdk.outcomes import NO_LAPSES


class Errand:
    """What a flush is to do, until when, and what it has done so far.

    Parameters
    ----------
    seconds : float
        How long it may go on: no message is begun later.
    alone : bool
        Whether only the reports of one pseudonym, chosen at random, are to go.
    window : int
        Milliseconds within which the next pseudonym follows at random, if several are due.
    patience : float
        Seconds to wait at most for another process that is sending from the same file.

    Attributes
    ----------
    until : float
        On the monotonic clock. Whoever ends the flush brings it forward.
    rest : float
        Seconds until the reports of another pseudonym may go, if some are due.
    sent : int
    lapses : Lapses
    """

    __slots__ = ("alone", "lapses", "patience", "rest", "sent", "until", "window")

    def __init__(
        self,
        seconds: float = math.inf,
        *,
        alone: bool = False,
        window: int = 0,
        patience: float = 0.0,
    ) -> None:
        self.until = time.monotonic() + seconds
        self.alone = alone
        self.window = window
        self.patience = patience
        self.rest = 0.0
        self.sent = 0
        self.lapses = NO_LAPSES

    @property
    def left(self) -> float:
        """Seconds that are left, not below 0."""
        return max(0.0, self.until - time.monotonic())

    def end_by(self, moment: float) -> None:
        """Let it not go on beyond ``moment``, on the monotonic clock."""
        self.until = min(self.until, moment)
