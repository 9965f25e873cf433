"""The errors that both sides raise; all derive from :class:`SottoError`."""

from __future__ import annotations

from collections.abc import Hashable
from math import inf

from mechanisms.errors import ParameterError as ParameterError
from mechanisms.errors import SottoError as SottoError
from mechanisms.errors import UnrelatedLevelsError as UnrelatedLevelsError
from mechanisms.errors import did_you_mean as did_you_mean

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TypeGuard

#: The name by which pip knows this: in an app it is a part of the wheel that ``deploy/device``
#: builds.
DISTRIBUTION = "sottovoce" if __name__.startswith("sottovoce.") else "sottovoce-tools"


def install_hint(extra: str) -> str:
    """Return what errors say where an optional package is missing, by the extra that brings it.

    >>> install_hint("kafka")
    "pip install 'sottovoce-tools[kafka]' brings it"
    """
    return f"pip install '{DISTRIBUTION}[{extra}]' brings it"


class PlanError(ParameterError):
    """A plan cannot be honoured; the message names the metric, the level and what is allowed."""


def wrong_type(name: str, expected: str, got: object) -> ParameterError:
    """Return the error of an argument of a wrong type; what it holds is not in the message.

    >>> str(wrong_type("timeout", "a number of seconds", "5"))
    'timeout must be a number of seconds; got str'
    """
    return ParameterError(f"{name} must be {expected}; got {type_of(got)}")


def type_of(value: object) -> str:
    """Return the name of a value's type as an error shows it, with its module.

    >>> type_of(5), type_of(None), type_of(SottoError())
    ('int', 'None', 'sotto.errors.SottoError')
    """
    if value is None:
        return "None"
    kind = type(value)
    known = kind.__module__ in ("builtins", "__main__")
    return kind.__qualname__ if known else f"{kind.__module__}.{kind.__qualname__}"


def unboxed(value: object) -> object:
    """Return a scalar of numpy as the bool, int or float that it is; anything else as it is."""
    numpys = type(value).__module__ == "numpy" and not getattr(value, "shape", None)
    return value.item() if numpys and isinstance(value, Hashable) else value  # type: ignore[attr-defined]


def is_int(value: object) -> bool:
    """Whether a value is a whole number, and none of True and False."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or a float, and none of True and False."""
    return isinstance(value, float) or is_int(value)


def seconds_of(name: str, value: object, least: float = 0, most: float = inf) -> float:
    """Return a duration in seconds, given as such or as a ``timedelta``; else ParameterError.

    >>> from datetime import timedelta
    >>> seconds_of("timeout", 5), seconds_of("timeout", timedelta(minutes=1))
    (5, 60.0)
    """
    total = getattr(value, "total_seconds", None)
    given = unboxed(total() if callable(total) else value)
    if not is_number(given):
        raise wrong_type(name, "a number of seconds, or a timedelta", value)
    if not least <= given <= most:
        allowed = f"at least {least:g}" if most == inf else f"in [{least:g}, {most:.12g}]"
        raise ParameterError(f"{name} must be {allowed} seconds; got {given:.12g}")
    return given


class FormatError(SottoError):
    """Bytes that are not what the report format or the log's framing says."""


class ValueTypeError(SottoError, TypeError):
    """A recorded value has the wrong type; the message names metric and types, never the value."""


class UnknownMetricError(SottoError, KeyError):
    """A metric that the plan does not have."""

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


class StoreError(SottoError):
    """The device's store cannot be used."""


class PublishError(SottoError):
    """A message was not accepted; its reports stay where they are and are sent again.

    Its text may be logged: it has the reason and nothing of what the message holds.
    """

    def __init__(self, *arguments: object, retry_after: float | None = None) -> None:
        super().__init__(*arguments)
        #: Seconds for which the receiver asks to be left alone, if it does.
        self.retry_after = retry_after


class BrokerError(SottoError):
    """A broker or a topic cannot be used as it is; the message says what to do."""


class AggregationError(SottoError):
    """A run cannot go on; its last commit is intact."""
