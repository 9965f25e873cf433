"""What is told soon after a start is told again once nobody else tells anything any more.

A job that has gone back to a checkpoint may not be alone at first: behind a network that is cut,
what ran before goes on and writes until its engine gives it up, and its clock may have been ahead.
Its documents then bear the higher revisions, although they may say less. So whoever begins tells
whatever it has told in its first minutes once more after them.
"""

from __future__ import annotations

#: Longer than an engine takes to miss a machine, to end its tasks, and a client of Kafka to give
#: up what it has not written, ms.
SETTLED = 600_000


class Settling:
    """Says once of every key when those minutes are over; it lives as long as its operator."""

    def __init__(self) -> None:
        self._began: int | None = None
        self._settled: set[int] = set()

    def since(self, key: int, now: int) -> int | None:
        """Return since when what was told is to be told again; None if nothing is.

        Parameters
        ----------
        key : int
            Of the keeper.
        now : int
            The wall clock, ms, which never falls.

        Examples
        --------
        >>> settling = Settling()
        >>> [settling.since(7, now) for now in (50, 50 + SETTLED - 1, 50 + SETTLED, 10**9)]
        [None, None, 50, None]
        """
        if self._began is None:
            self._began = now
        if now - self._began < SETTLED or key in self._settled:
            return None
        self._settled.add(key)
        return self._began
