"""How a field of the results is declared, and what a declaration says.

A record (:mod:`pipelines.results.records`) is a dataclass whose annotations say all that is to be
said of a field: ``Annotated[float | None, About("what it means")]``. Tables, views, comments,
documents, files, the HTTP interface and ``docs/reference/tables.md`` are made of what
:func:`fields_of` returns, so a field is added in one place.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

from sotto.errors import ParameterError

#: The kind of a field: a time is in UTC, the last three are lists.
Kind: TypeAlias = Literal[
    "text", "integer", "number", "boolean", "time", "integers", "texts", "pairs"
]
#: How a figure that is computed from payloads is rounded before it is published.
Rounding: TypeAlias = Literal[
    "exact", "nearest", "up", "down", "error", "probability", "multiple", "multiples", "averages"
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
K = TypeVar("K")
T = TypeVar("T")

_KINDS: Mapping[Any, Kind] = {
    str: "text",
    int: "integer",
    float: "number",
    bool: "boolean",
    datetime: "time",
    tuple[int, ...]: "integers",
    tuple[str, ...]: "texts",
    tuple[tuple[float, float], ...]: "pairs",
}


@dataclass(frozen=True)
class About:
    """The meaning of a field, and how it is stored.

    Parameters
    ----------
    text : str
        What it means, for people.
    example : object
        The example in the description of the HTTP interface; None for the usual one of its kind.
    stored : str
        Its name in tables and documents, if that differs.
    key : bool
        Whether it is a part of the key of a row.
    small : bool
        Whether an integer has 31 bits, not 63.
    micro : bool
        Whether a number is stored as an integer of millionths.
    absent : object
        The value that stands for what earlier releases did not write; None if all wrote the field.
    rounding : Rounding, optional
        How the figure is rounded, if it is computed from payloads; it is null where it is withheld.
    computed : bool
        Whether views compute it, and it is not stored.
    heading : str
        The heading of its column in ``sotto estimates``; empty if the terminal does not show it.
    """

    text: str
    example: object = field(default=None, compare=False)
    stored: str = ""
    key: bool = False
    small: bool = False
    micro: bool = False
    absent: object = None
    rounding: Rounding | None = None
    computed: bool = False
    heading: str = ""


@dataclass(frozen=True)
class Field:
    """A field of a record."""

    name: str
    kind: Kind
    null: bool  #: whether it can be None
    about: About

    @property
    def stored(self) -> str:
        """Its name in tables and documents."""
        return self.about.stored or self.name


@cache
def fields_of(record: Any) -> tuple[Field, ...]:
    """Return the fields of a record, in order."""
    hints = get_type_hints(record, include_extras=True)
    return tuple(_field(each.name, hints[each.name]) for each in dataclasses.fields(record))


def _field(name: str, hint: Any) -> Field:
    kind, about = get_args(hint)
    null = get_origin(kind) is UnionType
    if null:
        (kind,) = set(get_args(kind)) - {type(None)}
    return Field(name, _KINDS[kind], null, about)


def stored_fields(record: type, *without: str) -> tuple[Field, ...]:
    """Return the fields of a record that are stored, but those of some names."""
    found = fields_of(record)
    return tuple(each for each in found if not each.about.computed and each.name not in without)


def milliseconds(time: datetime) -> int:
    """Return an aware time as milliseconds since the epoch; ParameterError for another."""
    if time.tzinfo is None:
        raise ParameterError("a time must have a time zone, such as 2013-06-01T00:00Z")
    return (time - _EPOCH) // timedelta(milliseconds=1)


def moment(milliseconds: int) -> datetime:
    """Return a time in UTC; the first or last one of Python for a time that lies beyond."""
    try:
        return _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        limit = datetime.max if milliseconds > 0 else datetime.min
        return limit.replace(tzinfo=UTC)


#: How the value of a column is converted to that of a record's field, by kind.
CONVERTED: Mapping[Kind, Callable[[Any], Any]] = {
    "time": moment,
    "integers": tuple,
    "texts": tuple,
    "pairs": lambda pairs: tuple(map(tuple, pairs)),
}


def record_of(record: type[T], row: Mapping[str, Any]) -> T:
    """Return a record of a row, which has each of its fields under the stored name."""
    values = {}
    made: Any = record
    for each in fields_of(made):
        value = row[each.stored]
        if value is not None:
            convert = CONVERTED.get(each.kind)
            value = value / 1e6 if each.about.micro else convert(value) if convert else value
        values[each.name] = value
    return made(**values)  # type: ignore[no-any-return]


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return rows by a key, in their order.

    >>> grouped(["ab", "c", "de"], len)
    {2: ['ab', 'de'], 1: ['c']}
    """
    found: dict[K, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
