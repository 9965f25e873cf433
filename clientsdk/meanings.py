"""What a payload says, in words that its own device can show to its user.

A payload is a randomized output: it says little about the value behind it, and that is the point.
It is shown and never logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric
    from sotto.wire.format import Row


def meaning(metric: CompiledMetric, row: Row) -> str:
    """Return what the payload of a row says.

    Examples
    --------
    >>> from clientsdk.testing import small_plan
    >>> from sotto.wire.format import Row
    >>> (colour,) = small_plan().metrics
    >>> meaning(colour, Row(0, bytes(16), bytes(16), 0, b"\\x01"))
    "'green'"
    """
    return metric.mechanism.describe(row.payload, row.chain, row.pseudonym, metric.context())
