"""How the terminal story and the report write numbers and days."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from .findings import Comparison


def percent(value: float) -> str:
    """Return a share as a percentage of three digits."""
    return f"{100 * value:.3g} %".replace("-", "−")


def plain(value: float) -> str:
    """Return a number without superfluous digits, thousands separated."""
    text = f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
    return text.replace("-", "−")


def epsilon(micro: int) -> str:
    """Return micro-epsilon as epsilon with three decimals."""
    return f"{micro / 1e6:,.3f}"


def date(milliseconds: int, form: str = "%-d %b") -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime(form)


def form_of(unit: str) -> Callable[[float], str]:
    """Return how numbers of ``unit`` are written: ``""`` is a share."""
    return percent if unit == "" else plain


def sentence(seen: Comparison, unit: str) -> str:
    write = form_of(unit)
    mark = f" {unit}" if unit else ""
    return (
        f"{seen.label}: {write(seen.value)}{mark}, 95 % interval {write(seen.low)} to "
        f"{write(seen.high)}; truth of the counted reports {write(seen.kept)}{mark}, "
        f"of all flights {write(seen.every)}{mark}"
    )
