"""The verified values of the papers' formulas: inputs, outputs, tolerances, by function."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

VECTORS = json.loads((Path(__file__).parent / "data" / "vectors.json").read_text("utf-8"))


class Vector(NamedTuple):
    """One entry; ``inputs`` and ``expected`` as the file has them."""

    name: str
    inputs: dict[str, Any]
    expected: Any
    tolerance: Any

    def check(self, got: Any, expected: Any = None) -> None:
        """Compare numbers, or lists of numbers, within the entry's tolerance."""
        expected = self.expected if expected is None else expected
        if isinstance(expected, list):
            assert len(got) == len(expected), self.name
            for one, other in zip(got, expected, strict=True):
                self.check(one, other)
        elif self.tolerance == "exact":
            assert got == expected, self.name
        else:
            allowed = self.tolerance["abs"] + self.tolerance["rel"] * abs(expected)
            assert abs(float(got) - expected) <= allowed, (self.name, got, expected)


def vectors(function: str) -> Any:
    """Parametrize a test over the entries of ``function``, as argument ``vector``."""
    entries = [
        Vector(entry["name"], entry["inputs"], entry["expected"], entry["tolerance"])
        for entry in VECTORS["vectors"]
        if entry["function"] == function
    ]
    assert entries, f"no entry for {function}"
    return pytest.mark.parametrize("vector", entries, ids=lambda entry: entry.name)
