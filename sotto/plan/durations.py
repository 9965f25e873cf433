"""Durations as people write them: ``28d``, ``1h``, ``30m``, ``15s``, ``500ms``."""

from __future__ import annotations

import re

from sotto.errors import ParameterError

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TEXT = re.compile(r"([0-9]{1,18})(ms|d|h|m|s)")


def parse_duration(value: object) -> int:
    """Return a duration in milliseconds, given as text with a unit or as a number of them.

    Raises
    ------
    ParameterError
        It is neither, or negative.

    Examples
    --------
    >>> parse_duration("28d"), parse_duration(500)
    (2419200000, 500)
    """
    if isinstance(value, str) and (match := _TEXT.fullmatch(value)):
        return int(match[1]) * UNITS[match[2]]
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    from decimal import Decimal

    found = str(value) if isinstance(value, Decimal) else repr(value)
    raise ParameterError(
        f"{found} must be a duration: a whole number of milliseconds, or one with a unit "
        f"of {', '.join(UNITS)}, such as '28d' or '500ms'"
    )


def duration_text(milliseconds: int) -> str:
    """Return a duration in the largest unit of which it is a whole number.

    >>> duration_text(2419200000), duration_text(0), duration_text(5400000)
    ('28d', '0ms', '90m')
    """
    if milliseconds:
        for unit, length in UNITS.items():
            if milliseconds % length == 0:
                return f"{milliseconds // length}{unit}"
    return f"{milliseconds}ms"
