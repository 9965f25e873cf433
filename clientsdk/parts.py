"""What the parts of a client share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from clientsdk import disabled
from mechanisms.randomness import SystemSource
from sotto.errors import StoreError

if TYPE_CHECKING:
    from clientsdk.admission import Admission
    from clientsdk.background import Background
    from clientsdk.sender import Sender
    from clientsdk.settings import Settings
    from clientsdk.stats import Tally
    from clientsdk.store import Store
    from mechanisms.randomness import Source
    from sotto.plan.compiled import CompiledPlan

#: Earlier than any clock says, in milliseconds since the epoch; and later.
BEGINNING, _END = -(1 << 62), 1 << 62


class Parts:
    """The plan of a client, its store, and what works on that.

    Attributes
    ----------
    plan : CompiledPlan
    settings : Settings
    """

    plan: CompiledPlan
    settings: Settings
    _clock: Callable[[], int]
    _file: str | os.PathLike[str] | None
    _off: bool
    _store: Store
    _admission: Admission
    _tally: Tally
    _sender: Sender
    _background: Background | None

    def _source(self) -> Source:
        """Return where all that is drawn comes from."""
        return SystemSource()

    def _keep_up(self, now: int) -> None:
        """Let periods pass and old secrets go; if that fails now, it is tried again."""
        store = self._store
        if not store.stopped:
            with suppress(StoreError, OSError):
                self._admission.counts.lapse(now)
                store.keep_up(now)
        if store.erased:
            store.erased = False
            store.settle()

    def _settle(self, now: int) -> None:
        """Draw from what was counted in periods that are over; if that fails, again later."""
        with suppress(StoreError, OSError):
            self._admission.counts.settle(now)
        if now >= self._store.expiry:
            self._keep_up(now)

    def _now(self) -> int:
        # Further off no time, and no sum of two, would be a number that the file can hold.
        now = int(self._clock())
        if BEGINNING < now < _END:
            return now
        return _END if now > 0 else BEGINNING

    def _refuse_if_off(self, what: str) -> None:
        if self._off:
            disabled.refuse(what)
