"""From a value to its symbol."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from sotto.errors import ValueTypeError
from sotto.plan.compiled import CompiledPlan
from tests.conformance import files
from tests.conformance.reference import drawing


def numbers_in(document: Any) -> Any:
    if isinstance(document, list):
        return [files.value_of(each) for each in document]
    return files.value_of(document)


def _shown(symbol: Any) -> Any:
    if isinstance(symbol, bytes):
        return symbol.hex()
    return list(symbol) if isinstance(symbol, tuple) else symbol


def write() -> None:
    """Write the symbols of the values anew; that a type is wrong is no finding of the SDK."""
    plan = CompiledPlan.from_json(files.plan("every"))
    vectors = files.read("values")["vectors"]
    for each in vectors:
        if "error" not in each:
            each["symbol"] = _shown(plan.metric(each["metric"]).encode(numbers_in(each["value"])))
    files.write("values", vectors=vectors)


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
