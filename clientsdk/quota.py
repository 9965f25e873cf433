"""How much a device may keep for sending, and for how long."""

from __future__ import annotations

from mechanisms.frozen import frozen
from sotto.errors import ParameterError

#: A page of the smallest file that holds a ledger and something to send.
SMALLEST = 1 << 17


@frozen
class Quota:
    """Bounds on the spool.

    Parameters
    ----------
    bytes : int, at least 131,072
        Of the state file, or of what is in memory in its stead. Where they are used up, values
        are refused as ``store_full`` and nothing is charged for them. What was accepted is never
        dropped to make room.
    age : int, positive, optional
        Milliseconds. What has been due for longer and was not delivered is erased with the rungs
        that would follow. In any case nothing is kept beyond the time at which the aggregator
        would refuse it as late.

    Raises
    ------
    ParameterError
        One of them is out of range.

    Privacy
    -------
    Sizes and times are the same for all values. What is erased stays reserved, and spent if it
    was charged for.
    """

    bytes: int = 10 << 20
    age: int | None = None

    def __post_init__(self) -> None:
        """Check the bounds."""
        if not self.bytes >= SMALLEST:
            raise ParameterError(f"quota: bytes {self.bytes} must be at least {SMALLEST}")
        if self.age is not None and not self.age > 0:
            raise ParameterError(f"quota: age {self.age} must be above 0 ms, or None")
