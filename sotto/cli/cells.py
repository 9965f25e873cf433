"""What the cells of a table mean: ids, times, and values of a metric's type."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from enum import Enum
from typing import Final

TRUE_WORDS = frozenset({"true", "t", "yes", "y", "1"})
FALSE_WORDS = frozenset({"false", "f", "no", "n", "0"})


class Cell(Enum):
    """What a cell is when it is no value."""

    WRONG_TYPE = "wrong type"


WRONG_TYPE: Final = Cell.WRONG_TYPE


def as_metric(kind: str, *, ranged: bool = False) -> Callable[[object], object]:
    """Return what makes a cell a value of a metric's type.

    Text becomes what the type says; a value that a Parquet file has typed stays as it is, and
    the SDK says whether it fits. A cell of a vector has its numbers one after another, between
    blanks, commas or semicolons.

    Parameters
    ----------
    kind : str
        The type.
    ranged : bool
        Whether the values of an ordinal metric are points of a range, and not a list.

    Examples
    --------
    >>> as_metric("number")("12.5"), as_metric("boolean")("no"), as_metric("category")("no")
    (12.5, False, 'no')
    >>> as_metric("number")("twelve") is WRONG_TYPE
    True
    >>> as_metric("vector")("0.5; -1"), as_metric("ordinal", ranged=True)("3")
    ((0.5, -1.0), 3.0)
    """
    return _as_number if kind == "ordinal" and ranged else _PARSERS.get(kind, _as_text)


def as_id(value: object) -> object:
    """Return a device's id as text."""
    return str(value)


def _as_text(value: object) -> object:
    return value


def _as_number(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        number = float(value)
    except ValueError:
        return WRONG_TYPE
    # Python's float also takes digits grouped by underscores, and "nan".
    return number if math.isfinite(number) and "_" not in value else WRONG_TYPE


def _as_boolean(value: object) -> object:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    if word in TRUE_WORDS:
        return True
    return False if word in FALSE_WORDS else WRONG_TYPE


def _as_vector(value: object) -> object:
    if not isinstance(value, str):
        return value
    numbers = tuple(map(_as_number, value.replace(",", " ").replace(";", " ").split()))
    return WRONG_TYPE if WRONG_TYPE in numbers else numbers


_PARSERS: dict[str, Callable[[object], object]] = {
    "number": _as_number,
    "boolean": _as_boolean,
    "survey": _as_boolean,
    "vector": _as_vector,
}


def milliseconds(value: object) -> object:
    """Return a time as whole milliseconds since the epoch, or :data:`WRONG_TYPE`.

    Examples
    --------
    >>> milliseconds("2013-01-01T10:15Z"), milliseconds("2013-01-01 10:15"), milliseconds(7)
    (1357035300000, 1357035300000, 7)
    >>> milliseconds("yesterday") is WRONG_TYPE
    True
    """
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, date):
        value = value.isoformat()
    if not isinstance(value, str):
        return WRONG_TYPE
    try:
        if value.strip().removeprefix("-").isdecimal():
            return int(value)
        moment = datetime.fromisoformat(value.strip())
    except ValueError:
        return WRONG_TYPE
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (whole.days * 86_400_000) + whole.seconds * 1000 + whole.microseconds // 1000
