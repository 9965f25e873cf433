"""The errors of the project: one base class, names that end in ``Error``.

Their public module is ``sotto.errors``, which tracebacks show.
"""

from __future__ import annotations

from collections.abc import Iterable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction


def did_you_mean(given: object, known: Iterable[str]) -> str:
    """Return a question to end an error with: the known name nearest to the one given, if any is.

    >>> did_you_mean("Ladderr", ["ladder", "window"])
    "; did you mean 'ladder'?"
    >>> did_you_mean("colour", ["ladder", "window"])
    ''
    """
    from difflib import get_close_matches

    if not isinstance(given, str):
        return ""
    names = {each.lower(): each for each in known}
    near = get_close_matches(given.lower(), names, 1, 0.7)
    return f"; did you mean {names[near[0]]!r}?" if near else ""


class SottoError(Exception):
    """Base class of every error that this project raises on purpose."""

    __module__ = "sotto.errors"


class ParameterError(SottoError, ValueError):
    """A parameter is outside its allowed range; the message names it, its value and the range."""

    __module__ = "sotto.errors"


class UnrelatedLevelsError(ParameterError):
    """Two levels are not related: the weaker channel is no degradation of the stronger one."""

    __module__ = "sotto.errors"


def check_positive(value: float | Fraction, most: int = 1000, name: str = "epsilon") -> None:
    """Refuse a parameter, mostly an epsilon, outside (0, ``most``]."""
    if not 0 < value <= most:
        raise ParameterError(f"{name} must lie in (0, {most}], not {value}")


def check_at_least(name: str, value: float, least: int) -> None:
    """Refuse a parameter below ``least``, or NaN."""
    if not value >= least:
        raise ParameterError(f"{name} must be at least {least}, not {value}")


def check_probability(name: str, value: float | Fraction) -> None:
    """Refuse a parameter outside (0, 1)."""
    if not 0 < value < 1:
        raise ParameterError(f"{name} must lie in (0, 1), not {value}")


def check_share(name: str, value: float | Fraction) -> None:
    """Refuse a parameter outside [0, 1]."""
    if not 0 <= value <= 1:
        raise ParameterError(f"{name} must lie in [0, 1], not {value}")


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Refuse a parameter that is no int (a bool is none), or outside ``[low, high]``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{name} must be of type int, not {value!r}")
    if not low <= value <= high:
        raise ParameterError(f"{name} must lie in [{low}, {high}], not {value}")
