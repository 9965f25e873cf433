"""The errors of the project: one base class, names that end in ``Error``.

Their public module is ``sotto.errors``, which tracebacks show.
"""


class SottoError(Exception):
    """Base class of every error that this project raises on purpose."""

    __module__ = "sotto.errors"


class ParameterError(SottoError, ValueError):
    """A parameter is outside its allowed range; the message names it, its value and the range."""

    __module__ = "sotto.errors"


class UnrelatedLevelsError(ParameterError):
    """Two levels are not related: the weaker channel is no degradation of the stronger one."""

    __module__ = "sotto.errors"


def check_int(name: str, value: object, low: int, high: int) -> None:
    """Refuse a parameter that is no int (a bool is none), or outside ``[low, high]``."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ParameterError(f"{name} must be of type int, not {value!r}")
    if not low <= value <= high:
        raise ParameterError(f"{name} must lie in [{low}, {high}], not {value}")
