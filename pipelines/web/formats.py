"""How pages and charts write numbers, times and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, time

#: The text in place of a number that does not exist.
NOTHING = "–"
#: The text in place of the interval of a biased estimate.
BIASED = "biased, no interval"
_BLOCKS = "▁▂▃▄▅▆▇█"


def percent(value: float) -> str:
    """Return a share as a percentage of three digits.

    >>> percent(0.15234), percent(-0.0004), percent(1.0), percent(17.83)
    ('15.2 %', '−0.04 %', '100 %', '1,783 %')
    """
    text = f"{100 * value:.3g}" if abs(value) < 9.995 else f"{100 * value:,.0f}"
    return f"{text} %".replace("-", "−")


def number(value: float) -> str:
    """Return a number without superfluous digits, thousands separated.

    >>> number(12345.6), number(6.789), number(-30.0), number(0.0)
    ('12,346', '6.79', '−30', '0')
    """
    if not math.isfinite(value):
        return NOTHING
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return text.replace("-", "−")


def writer_of(unit: str | None) -> Callable[[float], str]:
    """Return how numbers of a unit are written: shares as percentages.

    >>> writer_of("share")(0.25), writer_of("points")(0.0312), writer_of("min")(7.0)
    ('25 %', '3.12', '7')
    """
    if unit == "points":
        return lambda value: number(100 * value)
    return percent if unit == "share" else number


def unit_apart(unit: str | None) -> str | None:
    """Return the unit of differences: ``points`` are percentage points, of shares."""
    return "points" if unit == "share" else unit


def is_number(text: str) -> bool:
    """Return whether a text is a number, and a finite one.

    >>> is_number("0.5"), is_number("nan"), is_number("half")
    (True, False, False)
    """
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def quantity(value: float | None, unit: str | None) -> str:
    """Return a number with its unit.

    >>> quantity(0.5, "share"), quantity(6.789, "min"), quantity(None, "min")
    ('50 %', '6.79 min', '–')
    """
    if value is None:
        return NOTHING
    named = "" if unit in (None, "", "share", "rank") else f" {unit}"
    return writer_of(unit)(value) + named


def difference(value: float | None, unit: str | None) -> str:
    """Return how far two numbers of a unit are apart: shares in percentage points.

    >>> difference(0.0312, "share"), difference(-1.5, "min"), difference(None, "share")
    ('3.12 points', '−1.5 min', '–')
    """
    return quantity(value, unit_apart(unit))


def sparkline(values: Sequence[float]) -> str:
    """Return a picture of numbers in one line of text, with a gap where one is NaN.

    >>> sparkline([1.0, 2.0, math.nan, 8.0]), sparkline([math.nan])
    ('▁▂ █', ' ')
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    step = (high - low) / (len(_BLOCKS) - 1) or 1.0
    return "".join(
        _BLOCKS[round((value - low) / step)] if math.isfinite(value) else " " for value in values
    )


def interval(low: float | None, high: float | None, unit: str | None) -> str:
    """Return an interval, its unit left out.

    >>> interval(0.111, 0.192, "share"), interval(None, None, "share")
    ('11.1 % to 19.2 %', '–')
    """
    if low is None or high is None:
        return NOTHING
    write = writer_of(unit)
    return f"{write(low)} to {write(high)}"


def day(at: datetime, form: str | None = None) -> str:
    """Return a time as people write it, to the day if it is midnight; all times are UTC.

    >>> from datetime import UTC
    >>> day(datetime(2013, 6, 20, tzinfo=UTC)), day(datetime(2013, 6, 20, 1, tzinfo=UTC))
    ('20 Jun 2013', '20 Jun 2013 01:00')
    """
    if form is None:
        form = "%b %Y" if at.time() == time() else "%b %Y %H:%M"
    return f"{at.day} {at.strftime(form)}"


def frame(start: datetime, end: datetime) -> str:
    """Return the weekdays at which a window begins and ends: it need not be a calendar's week.

    >>> from datetime import UTC
    >>> frame(datetime(2025, 1, 2, tzinfo=UTC), datetime(2025, 1, 9, tzinfo=UTC))
    'from Thursday 00:00 to Thursday 00:00 UTC'
    """
    return f"from {start:%A %H:%M} to {end:%A %H:%M} UTC"


def moment(at: datetime | None) -> str:
    """Return a time to the second.

    >>> moment(None)
    '–'
    """
    return NOTHING if at is None else f"{day(at, '%b %Y %H:%M:%S')} UTC"


def clock(milliseconds: int) -> str:
    """Return a time of the wall clock to the second.

    >>> clock(1_371_689_100_000)
    '20 Jun 2013 00:45:00 UTC'
    """
    return moment(datetime.fromtimestamp(milliseconds / 1000, UTC))


def age(milliseconds: int) -> str:
    """Return how long something is ago, in its largest unit.

    >>> age(-3), age(59_000), age(7_300_000), age(86_400_000 * 3)
    ('0 s', '59 s', '2 h', '3 days')
    """
    seconds = max(milliseconds, 0) // 1000
    for unit, length in (("days", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:,} {unit}"
    return f"{seconds} s"


def epsilon(value: float) -> str:
    """Return an amount of epsilon.

    >>> epsilon(2.0), epsilon(0.499999), epsilon(2_510_000.0)
    ('2', '0.499999', '2,510,000')
    """
    return f"{value:,.0f}" if value >= 1000 else f"{value:.6f}".rstrip("0").rstrip(".")


def micro(amount: int) -> str:
    """Return an amount of micro-epsilon in epsilon.

    >>> micro(500_000)
    '0.5'
    """
    return epsilon(amount / 1e6)


def size(count: int) -> str:
    """Return a number of bytes.

    >>> size(640), size(739_716)
    ('640 B', '740 kB')
    """
    value = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
