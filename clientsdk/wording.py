"""Amounts and times as people read them."""

from __future__ import annotations


def epsilon(micro: int) -> str:
    """Return micro-epsilon as people write epsilon, without zeros at the end.

    >>> epsilon(1_500_000), epsilon(2_000_000), epsilon(1)
    ('1.5', '2', '0.000001')
    """
    return f"{micro // 1_000_000}.{micro % 1_000_000:06d}".rstrip("0").rstrip(".")


def day(time: int) -> str:
    return _written(time, "%Y-%m-%d")


def minute(time: int) -> str:
    return _written(time, "%Y-%m-%d %H:%M")


def _written(time: int, form: str) -> str:
    # Imported by whoever shows a time: an app that shows none starts sooner.
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time // 1000, UTC).strftime(form)
    except (OverflowError, ValueError, OSError):
        # A device whose clock is broken may be anywhere in time.
        return f"{time} ms"
