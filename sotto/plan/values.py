"""What a value becomes before it is randomized: its symbol, and what symbols are called.

Only a value of the wrong *type* is refused, never a value: whether a report is sent must not
depend on it. What lies outside a range is clipped, what is not listed becomes what ``outside``
says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import TYPE_CHECKING, TypeAlias, cast

from sotto.errors import ValueTypeError

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric

#: What a mechanism randomizes: the number of a category, answer, point or item; a string's UTF-8;
#: a number scaled to ``[0, 1]``, None where it is missing; a vector of such numbers.
Symbol: TypeAlias = int | bytes | float | tuple[float, ...] | None

#: Stands for a missing string, as a candidate like any other.
MISSING_STRING = "\0"

_WANTED = {
    "category": "str",
    "boolean": "bool",
    "string": "str",
    "number": "int or float",
    "survey": "bool",
    "top_item": "str",
}


def labels_of(metric: CompiledMetric) -> tuple[str, ...]:
    """Return the symbols of a metric by number, or nothing where they have no names."""
    gone = ("missing",) if metric.missing else ()
    if metric.type == "boolean":
        return ("false", "true", *gone)
    if metric.type == "survey":
        return ("no", "yes")
    if metric.type == "ordinal" and metric.range is not None:
        return tuple(f"{point:.12g}" for point in points_of(metric)) + gone
    if metric.domain is None:
        return ()
    other = metric.type != "ordinal" and metric.outside not in metric.domain
    return metric.domain + (("other",) if other else ()) + gone


def points_of(metric: CompiledMetric) -> tuple[float, ...]:
    """Return the equidistant points of an ordinal metric that has a range.

    Raises
    ------
    TypeError, KeyError
        It has no range, or its mechanism no ``domain_size``.
    """
    low, high = cast(tuple[float, float], metric.range)
    steps = cast(int, metric.spec["domain_size"]) - metric.missing - 1
    return tuple(low + (high - low) * (step / max(steps, 1)) for step in range(steps + 1))


def symbol_of(metric: CompiledMetric, value: object) -> Symbol:
    """Return the symbol of a value; see :meth:`sotto.plan.compiled.CompiledMetric.encode`."""
    if value is None and metric.missing:
        return _missing(metric)
    if metric.type == "vector":
        return _vector(metric, value)
    if metric.type == "ordinal":
        return _ordinal(metric, value)
    if metric.type in ("category", "top_item") and isinstance(value, str):
        return _listed(metric, value)
    if metric.type in ("boolean", "survey") and isinstance(value, bool):
        return int(value)
    if metric.type == "string" and isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if metric.type == "number" and is_number(value):
        scaled = scale(metric, cast(float, value))
        return None if scaled is None and metric.missing else scaled or 0.0
    raise _refused(metric, _WANTED[metric.type], value)


def plain_types(metric: CompiledMetric) -> frozenset[type]:
    """Return types of which :func:`symbol_of` takes every value."""
    if metric.type in ("boolean", "survey"):
        return frozenset({bool})
    if metric.type == "number" or (metric.type == "ordinal" and metric.domain is None):
        return frozenset({int, float})
    return frozenset() if metric.type == "vector" else frozenset({str})


def is_number(value: object) -> bool:
    """Whether a value is a real number; a bool is none."""
    return isinstance(value, Real) and not isinstance(value, bool)


def scale(metric: CompiledMetric, value: float) -> float | None:
    """Return a number clipped to the metric's range and scaled to [0, 1]; None for NaN."""
    assert metric.range is not None
    low, high = metric.range
    try:
        # Narrow numpy floats would overflow, and warn, for some values and not for others.
        value = float(value)
    except OverflowError:
        value = math.inf if value > 0 else -math.inf
    except (TypeError, ValueError, ArithmeticError):
        # Of an app's own type of number; what it raises may say which number it is.
        raise _refused(metric, "a number that float() takes", value) from None
    if value >= high:
        return 1.0
    if value > low:
        return (value - low) / (high - low)
    # NaN compares false with everything.
    return 0.0 if value <= low else None


def _missing(metric: CompiledMetric) -> Symbol:
    if metric.type == "number":
        return None
    if metric.type == "string":
        return MISSING_STRING.encode()
    return len(metric.labels) - 1


def _listed(metric: CompiledMetric, value: str) -> int:
    symbol = metric.symbols.get(value)
    if symbol is None:
        symbol = metric.symbols.get(str(metric.outside), len(metric.symbols))
    return symbol


def _ordinal(metric: CompiledMetric, value: object) -> int:
    """Return the number of a listed value, or of the nearest point (of two, the lower one)."""
    if metric.domain is not None:
        if not isinstance(value, str):
            raise _refused(metric, "str", value)
        # Of a plan that names no other place, what is not listed is missing.
        return _listed(metric, value)
    if not is_number(value):
        raise _refused(metric, "int or float", value)
    last = len(metric.labels) - metric.missing - 1
    scaled = scale(metric, cast(float, value))
    if scaled is None:
        return last + 1 if metric.missing else 0
    return math.ceil(scaled * last - 0.5)


def _vector(metric: CompiledMetric, value: object) -> tuple[float, ...]:
    dimensions = metric.spec["dimensions"]
    wanted = f"a sequence of {dimensions} numbers"
    numbers = value
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        # What numpy's arrays and others like them have, whether or not numpy is installed.
        listed = cast(Callable[[], object] | None, getattr(value, "tolist", None))
        numbers = listed() if callable(listed) else None
    if not (isinstance(numbers, Sequence) and all(map(is_number, numbers))):
        raise _refused(metric, wanted, value)
    if len(numbers) != dimensions:
        raise ValueTypeError(f"metric {metric.name!r}: {wanted} wanted, not {len(numbers)}")
    # Not a number counts as the lowest.
    return tuple([scale(metric, number) or 0.0 for number in numbers])


def _refused(metric: CompiledMetric, wanted: str, value: object) -> ValueTypeError:
    return ValueTypeError(
        f"metric {metric.name!r}: {wanted}{' or None' if metric.missing else ''} wanted, "
        f"not {type(value).__name__}"
    )
