"""From a value to its symbol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sotto.errors import ValueTypeError
from sotto.plan.compiled import CompiledPlan
from tests.conformance import files
from tests.conformance.reference import drawing

_NAN, _HUGE, _LOW = {"number": "nan"}, {"number": "inf"}, {"number": "-inf"}
_NUMBERS = [0, 1, 49.99, 50, 100, 100.00001, -1, 1e300, _NAN, _HUGE, _LOW, 5e-324, 0.1, 33.3]
_GIVEN: dict[str, list[Any]] = {
    "grr": ["light", "dark", "high-contrast", "blue", "Light", "", "other", "missing", None],
    "two": [True, False],
    "sue": ["a", "d", "elsewhere"],
    "rappor": ["Iosevka", "", "Åre", "e\u0301", "日本語", "🎲", "\ud800", "a" * 300, "\0", None],
    "rank": ["bad", "ok", "good", "best"],
    "brr": ["xs", "m", "xl", "xxl", "missing", None],
    "points": [*_NUMBERS, 4.999999, 5, 5.000001, 15, 25, 95],
    "warner": [False, True],
    "threshold": [*_NUMBERS, None, -30, 180, 75],
    "piecewise": _NUMBERS,
    "thresholds": [[0, 0, 0, 0, 0], [-1, 1, 2, -3, 0.5], [_NAN, _HUGE, _LOW, 0.1, 1e-9]],
    "top": ["a", "d", "e"],
}
_WRONG: dict[str, list[Any]] = {
    "grr": [1, True, ["light"]],
    "two": ["true", 1, None],
    "sue": [None],
    "rappor": [5, True],
    "warner": [None, 0, "yes"],
    "threshold": ["5", True, [5]],
    "points": [None, "5"],
    "thresholds": [None, 1, [1, 2], [1, 2, 3, 4, 5, 6], [1, 2, 3, 4, "5"], [1, 2, 3, 4, True]],
}


def numbers_in(document: Any) -> Any:
    if isinstance(document, list):
        return [files.value_of(each) for each in document]
    return files.value_of(document)


def _shown(symbol: Any) -> Any:
    if isinstance(symbol, bytes):
        return symbol.hex()
    return list(symbol) if isinstance(symbol, tuple) else symbol


def write() -> None:
    plan = CompiledPlan.from_json(files.plan("every"))
    vectors: list[dict[str, Any]] = [
        {
            "metric": name,
            "value": value,
            "symbol": _shown(plan.metric(name).encode(numbers_in(value))),
        }
        for name, values in _GIVEN.items()
        for value in values
    ]
    vectors += [
        {"metric": name, "value": value, "error": "type"}
        for name, values in _WRONG.items()
        for value in values
    ]
    files.write(
        "values",
        "Values of the metrics of plan 'every', and the symbol of each; an error where the type "
        "is wrong. Strings have their bytes in hexadecimal; scaled numbers are 64-bit floats",
        plan="every",
        vectors=vectors,
    )


def check() -> Iterator[str | None]:
    plan = CompiledPlan.from_json(files.plan("every"))
    documents = {each["name"]: each for each in json.loads(files.plan("every"))["metrics"]}
    for each in files.read("values")["vectors"]:
        value, expected = numbers_in(each["value"]), each.get("symbol")
        try:
            ours: Any = _shown(plan.metric(each["metric"]).encode(value))
            theirs = _shown(drawing.symbol(documents[each["metric"]], value))
            good = "error" not in each and _same(ours, expected) and _same(theirs, expected)
        except ValueTypeError:
            ours, good = "an error", "error" in each
        yield None if good else f"metric {each['metric']}, {each['value']!r}: {ours!r}"


def _same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)
