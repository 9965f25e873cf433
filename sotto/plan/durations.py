"""Durations and times as people write them: ``28d``, ``500ms``, ``2013-01-01T10:15Z``."""

from __future__ import annotations

import re

from sotto.errors import ParameterError

UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_TEXT = r"([0-9]{1,18})(ms|d|h|m|s)"


def parse_duration(value: object) -> int:
    """Return a duration in milliseconds, given as text with a unit or as a number of them.

    Raises ParameterError if it is neither, or negative.

    >>> parse_duration("28d"), parse_duration(500)
    (2419200000, 500)
    """
    if isinstance(value, str) and (match := re.fullmatch(_TEXT, value)):
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
    ('28d', '0d', '90m')
    """
    unit, length = next(each for each in UNITS.items() if milliseconds % each[1] == 0)
    return f"{milliseconds // length}{unit}"


def parse_time(value: object) -> int:
    """Return a time in milliseconds since the epoch: ISO 8601 (UTC without an offset), or those.

    A text of eight digits is a date. Raises ParameterError for what is neither; the message does
    not contain it.

    >>> parse_time("2013-01-01T10:15Z"), parse_time("2013-01-01 10:15"), parse_time(7)
    (1357035300000, 1357035300000, 7)
    >>> parse_time("20130101") == parse_time("2013-01-01"), parse_time("-1234567")
    (True, -1234567)
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    # A device that reads its plan needs no dates.
    from datetime import UTC, date, datetime

    text = value.isoformat() if isinstance(value, date) else value
    try:
        if not isinstance(text, str):
            raise ValueError
        text = text.strip()
        is_date = text.isdecimal() and len(text) == len("20130101")
        if text.removeprefix("-").isdecimal() and not is_date:
            return int(text)
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ParameterError("a time must be such as 2013-06-01T12:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return whole.days * 86_400_000 + whole.seconds * 1000 + whole.microseconds // 1000
