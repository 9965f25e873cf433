"""The value of a cell: a time, a number, a truth value, or why it says none of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from typing import Final, NamedTuple

from sotto.errors import ParameterError, ValueTypeError
from sotto.plan.checks import MAX_TIME
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from sotto.plan.durations import parse_time

#: Milliseconds in the units that whole numbers may be times in.
TIME_UNITS = {"s": Decimal(1000), "ms": Decimal(1), "us": Decimal("1e-3"), "ns": Decimal("1e-6")}
#: From the year 1 to 9999, in milliseconds since the epoch.
_TIMES = range(-62_135_596_800_000, MAX_TIME)
_NUMBER = re.compile(r"[-+]?[0-9]{1,30}(\.[0-9]*)?([eE][0-9]{1,2})?")
_OFFSET = re.compile(r"([zZ]|[+-][0-9]{2}(:?[0-9]{2}){0,2})")
_NOT_TEXT = re.compile("[\0\ud800-\udfff]")
_TRUE = frozenset({"true", "t", "yes", "y", "1"})
_FALSE = frozenset({"false", "f", "no", "n", "0"})


class Cell(Enum):
    """The kind of a cell that is no value."""

    WRONG_TYPE = "wrong type"
    NOT_TEXT = "bytes that are no UTF-8 text"


WRONG_TYPE: Final = Cell.WRONG_TYPE
NOT_TEXT: Final = Cell.NOT_TEXT
Parser = Callable[[object], object]


class Feed(NamedTuple):
    """A call of the client that takes the cells of a column."""

    method: str  #: The client's: ``record``, ``count`` or ``reach``.
    name: str  #: The call's first argument, after which the column is named.
    metrics: tuple[CompiledMetric, ...]  #: Those that it feeds, at least one.

    @property
    def values(self) -> str:
        """The metric under whose name its values are kept: two methods may have one name."""
        return self.metrics[0].name


def feeds(plan: CompiledPlan) -> list[Feed]:
    """Return what an app under a plan calls, in the plan's order."""
    found: dict[tuple[str, str], Feed] = {}
    for metric in plan.metrics:
        measure = metric.measure
        method, name = ("record", "") if measure is None else (measure.method, measure.of)
        if method:
            name = name or metric.name
            metrics = (metric,) if measure is None else plan.fed(method, name)
            found[method, name] = Feed(method, name, metrics)
    return list(found.values())


def parsed(cell: object, nulls: frozenset[str], parse: Parser) -> object:
    """Return what a cell says; None if it is empty or one of ``nulls``."""
    if cell is None or cell == "":
        return None
    if isinstance(cell, str):
        if cell in nulls:
            return None
        if not is_text(cell):
            return NOT_TEXT
    return parse(cell)


def is_text(cell: str) -> bool:
    """Whether all bytes of a cell were UTF-8 text, none of them zero."""
    return not _NOT_TEXT.search(cell)


def time_parser(unit: str) -> Parser:
    """Return what makes a cell milliseconds since the epoch: ISO 8601, or a number of units."""
    scale = TIME_UNITS[unit]

    def parse(cell: object) -> object:
        number = _numeral(cell)
        try:
            if number is None:
                time = parse_time(cell)
            elif not number.is_finite():
                return None if number.is_nan() else WRONG_TYPE
            else:
                time = math.floor(number * scale)
        except ParameterError:
            return WRONG_TYPE
        return time if time in _TIMES else WRONG_TYPE

    return parse


def _numeral(cell: object) -> Decimal | None:
    """Return the number that a cell is, None if it is something else."""
    if isinstance(cell, bool):
        return None
    if isinstance(cell, str):
        return Decimal(cell) if _NUMBER.fullmatch(cell := cell.strip()) else None
    return Decimal(cell) if isinstance(cell, int | float | Decimal) else None


def has_offset(cell: object) -> bool | None:
    """Whether a time has an offset from UTC; None if it is written in another way."""
    if not isinstance(cell, str) or _numeral(cell) is not None:
        return None
    time = re.split(r"[T ]", cell.strip(), maxsplit=1)[1:]
    return bool(time and _OFFSET.search(time[0]))


def value_parser(feed: Feed) -> Parser:
    """Return what makes a cell the argument of a client's method, or ``WRONG_TYPE``.

    Text becomes what the type says; a value that a Parquet file has typed stays as it is, and
    the plan says whether it fits. A cell of a vector has its numbers one after another, between
    blanks, commas or semicolons. A cell of what is counted says how often it happened, or whether.
    """
    if feed.method == "count":
        return _times
    first, *_ = feed.metrics
    if first.numeric:
        of_text: Callable[[str], object] = _number
    else:
        parsers = {"boolean": _boolean, "survey": _boolean, "vector": _vector}
        of_text = parsers.get(first.type, str)

    def parse(cell: object) -> object:
        value = of_text(cell) if isinstance(cell, str) else cell
        if value is WRONG_TYPE:
            return WRONG_TYPE
        try:
            for metric in feed.metrics:
                metric.encode(value)
        except ValueTypeError:
            return WRONG_TYPE
        return value

    return parse


def within_parser(metric: CompiledMetric, parse: Parser) -> Parser:
    """Return what says whether a plan lists a cell's value; a wrong type has been told already."""

    def within(cell: object) -> object:
        value = parse(cell)
        return value is WRONG_TYPE or metric.within(value)

    return within


def _times(cell: object) -> object:
    if isinstance(cell, str):
        truth = _boolean(cell)
        cell = _number(cell) if truth is WRONG_TYPE else truth
    if isinstance(cell, float) and cell.is_integer():
        cell = int(cell)
    return int(cell) if isinstance(cell, int) else WRONG_TYPE


def _number(text: str) -> object:
    try:
        number = float(text)
    except ValueError:
        return WRONG_TYPE
    # Python's float also takes digits grouped by underscores, and "nan".
    return number if math.isfinite(number) and "_" not in text else WRONG_TYPE


def _boolean(text: str) -> object:
    word = text.strip().lower()
    return True if word in _TRUE else False if word in _FALSE else WRONG_TYPE


def _vector(text: str) -> object:
    numbers = tuple(map(_number, text.replace(",", " ").replace(";", " ").split()))
    return WRONG_TYPE if WRONG_TYPE in numbers else numbers
