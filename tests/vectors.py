"""The verified values of the papers' formulas: inputs, outputs, tolerances, by function.

``python -m tests.vectors FILE`` runs any file of them against the library. The modules in
``adapters`` say how a function of the file is called here: each has a dictionary ``ADAPTERS`` from
the function's name to a callable of an entry's inputs.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parent
VECTORS = json.loads((TESTS / "data" / "vectors.json").read_text("utf-8"))

Adapter = Callable[[dict[str, Any]], object]


class Vector(NamedTuple):
    """One entry; ``inputs`` and ``expected`` as the file has them."""

    name: str
    inputs: dict[str, Any]
    expected: Any
    tolerance: Any

    def check(self, got: Any, expected: Any = None) -> None:
        """Compare a result, or a part of it, within the entry's tolerance."""
        wrong = difference(got, self.expected if expected is None else expected, self.tolerance)
        assert wrong is None, f"{self.name}: {wrong}"


def vectors(function: str) -> Any:
    """Parametrize a test over the entries of ``function``, as argument ``vector``."""
    import pytest

    entries = [
        Vector(entry["name"], entry["inputs"], entry["expected"], entry["tolerance"])
        for entry in VECTORS["vectors"]
        if entry["function"] == function
    ]
    assert entries, f"no entry for {function}"
    return pytest.mark.parametrize("vector", entries, ids=lambda entry: entry.name)


def difference(got: Any, expected: Any, tolerance: Any, where: str = "result") -> str | None:
    """Say where a result first differs from what is expected; None where it does not.

    Shapes must be the same: keys of dictionaries, lengths of lists, booleans and nothing else for
    booleans. A number passes if |got - expected| <= abs + rel * |expected|, in exact arithmetic;
    ``"exact"`` asks for equality, and for an integer where one is expected.
    """
    if hasattr(got, "tolist"):
        got = got.tolist()
    if isinstance(expected, Mapping):
        if not (isinstance(got, Mapping) and set(got) == set(expected)):
            return f"{where} must have the keys {sorted(expected)}, not {got!r}"
        parts = [(f"{where}[{key!r}]", got[key], expected[key]) for key in expected]
    elif isinstance(expected, list):
        if not (isinstance(got, Sequence) and not isinstance(got, str | bytes)):
            return f"{where} must be a list, not {got!r}"
        if len(got) != len(expected):
            return f"{where} must have length {len(expected)}, not {len(got)}"
        parts = [(f"{where}[{i}]", *pair) for i, pair in enumerate(zip(got, expected, strict=True))]
    else:
        if _same(got, expected, tolerance):
            return None
        return f"{where} is {got!r}, expected {expected!r}"
    found = (difference(one, other, tolerance, at) for at, one, other in parts)
    return next((wrong for wrong in found if wrong is not None), None)


def _same(got: Any, expected: Any, tolerance: Any) -> bool:
    if expected is None or isinstance(expected, bool):
        return got is expected
    if isinstance(got, str):
        return bool(got == expected)
    infinite = {"inf": math.inf, "-inf": -math.inf}.get(expected, expected)
    if isinstance(infinite, str):
        return False
    if isinstance(got, bool) or not isinstance(got, Real | Decimal) or got != got:
        return False
    if {got, infinite} & {math.inf, -math.inf}:
        return bool(got == infinite)
    if tolerance == "exact":
        whole = isinstance(expected, int) and not isinstance(got, Integral)
        return bool(got == infinite) and not whole
    margin = [Fraction(tolerance.get(name, 0)) for name in ("abs", "rel")]
    if not all(part >= 0 for part in margin):
        raise ValueError(f"a tolerance must not be negative: {tolerance}")
    true = Fraction(infinite)
    return abs(Fraction(got) - true) <= margin[0] + margin[1] * abs(true)


def load_adapters(folder: Path = TESTS / "adapters") -> dict[str, Adapter]:
    """Merge the dictionaries of all modules in ``folder``; no function may be in two of them."""
    if str(TESTS.parent) not in sys.path:
        sys.path.insert(0, str(TESTS.parent))
    merged: dict[str, Adapter] = {}
    for module in sorted(info.name for info in pkgutil.iter_modules([str(folder)])):
        found = importlib.import_module(f"tests.adapters.{module}").ADAPTERS
        twice = sorted(set(found) & set(merged))
        if twice:
            raise ValueError(f"adapters/{module}.py repeats {', '.join(twice)}")
        merged.update(found)
    return merged


def failure(entry: Any, adapters: Mapping[str, Adapter]) -> str | None:
    """Run one entry of a file; say what is wrong, or None."""
    try:
        name, function = entry["name"], entry["function"]
        inputs, expected, tolerance = entry["inputs"], entry["expected"], entry["tolerance"]
    except (KeyError, TypeError) as error:
        return f"malformed entry ({error}): {str(entry)[:200]}"
    label = f"{name} ({function})"
    if function not in adapters:
        return f"{label}: no adapter for this function; expected {expected!r}"
    try:
        got = adapters[function](inputs)
        wrong = difference(got, expected, tolerance)
    except Exception as error:
        return f"{label}: raised {type(error).__name__}: {error}; expected {expected!r}"
    return (
        None if wrong is None else f"{label}: {wrong}\n  got      {got!r}\n  expected {expected!r}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a file; return 0 only if it has entries and all of them pass."""
    parser = argparse.ArgumentParser(prog="python -m tests.vectors", description=main.__doc__)
    parser.add_argument("file", type=Path, help="in the format of tests/data/vectors.json")
    path = parser.parse_args(arguments).file
    try:
        entries = json.loads(path.read_text("utf-8"))["vectors"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{path} is no file of vectors: {error}", file=sys.stderr)
        return 2
    adapters = load_adapters()
    failures = [found for entry in entries if (found := failure(entry, adapters)) is not None]
    for found in failures:
        print(f"FAIL {found}")
    print(f"{len(entries) - len(failures)} of {len(entries)} vectors pass, {len(failures)} fail")
    return 1 if failures or not entries else 0


if __name__ == "__main__":
    sys.exit(main())
