"""Types of which every value is taken: whoever knows them need not try a value."""

from __future__ import annotations

import math

import pytest
from test_metric_types import metric

from sotto.errors import ValueTypeError

VALUES = {
    str: ["", "a", "\ud800", "x" * 10_000, "\0"],
    bool: [True, False],
    int: [0, -1, 10**400, -(10**400)],
    float: [0.0, math.nan, math.inf, -math.inf, 5e-324],
    bytes: [b"a"],
    list: [[1.0]],
}
PLAIN = {
    "type: category, domain: [a, b], outside: other": {str},
    "type: boolean": {bool},
    "type: string, bits: 64, hashes: 2, cohorts: 4": {str},
    "type: number, range: [0, 10], outside: clip": {int, float},
    "type: ordinal, values: [bad, good]": {str},
    "type: ordinal, range: [0, 10], points: 11, outside: clip": {int, float},
    "type: vector, dimensions: 4, range: [0, 1], outside: clip": set(),
}


@pytest.mark.parametrize("fields", PLAIN)
def test_every_value_of_a_plain_type_is_taken_and_no_other_type(fields):
    of = metric(fields)
    assert of.plain == PLAIN[fields]
    for kind, values in VALUES.items():
        for value in values:
            if kind in of.plain:
                of.encode(value)
            elif of.plain:
                with pytest.raises(ValueTypeError):
                    of.encode(value)
