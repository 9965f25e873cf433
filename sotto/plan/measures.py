"""Measures: what a device adds up over a budget period, and answers once for it.

A measure gives a metric its value, so that the app records none: type, mechanism, ladder and
estimates are those of any other metric. Needs the standard library alone.
"""

from __future__ import annotations

from itertools import pairwise

from mechanisms.frozen import frozen
from sotto.plan.durations import duration_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

#: The measures that a name's values feed, as the app records them.
RECORDED = ("max", "min", "sum", "last")
#: The name under which ``days`` counts the days on which the app ran at all.
APP = "app"
#: The value of ``furthest`` before the first step.
NO_STEP = "none"

_WORDS = {
    "count": "how often {of} happened",
    "days": "on how many days {of} happened",
    "furthest": "the furthest step",
    "age": "how many times {every} have passed since the first use",
    "used": "whether {of} was used",
    "max": "the largest {of}",
    "min": "the smallest {of}",
    "sum": "the sum of {of}",
    "last": "the last {of}",
}
KINDS = tuple(_WORDS)


@frozen
class Measure:
    """The way in which a device comes to its value of one budget period."""

    kind: str  #: One of :data:`KINDS`.
    of: str = ""  #: The name of what is counted or recorded; none for ``furthest`` and ``age``.
    every: int = 0  #: Milliseconds in which an ``age`` grows by one.

    @property
    def method(self) -> str:
        """The client's method that feeds it; empty for one that feeds itself."""
        if self.kind in RECORDED:
            return "record"
        if self.kind in ("age", "furthest"):
            return "reach" if self.kind == "furthest" else ""
        return "" if self == Measure("days", APP) else "count"

    @property
    def responds(self) -> bool:
        """Whether the device holds a randomized response, and no true value."""
        return self.kind == "used"

    @property
    def at_once(self) -> bool:
        """Whether it is answered at the first use in a period, not after its end."""
        return self.kind == "age"

    def in_words(self) -> str:
        """Return what it measures.

        >>> Measure("count", "export").in_words(), Measure("days", "app").in_words()
        ('how often export happened', 'on how many days the app was used')
        """
        if self == Measure("days", APP):
            return "on how many days the app was used"
        return _WORDS[self.kind].format(of=self.of, every=duration_text(self.every))


def edge_labels(edges: Sequence[int]) -> tuple[str, ...]:
    """Return the names of the bins that begin at whole numbers; the last one is open.

    >>> edge_labels([0, 1, 2, 5])
    ('0', '1', '2 to 4', '5 or more')
    """
    bins = pairwise(edges)
    closed = [f"{low}" if high == low + 1 else f"{low} to {high - 1}" for low, high in bins]
    return (*closed, f"{edges[-1]} or more")
