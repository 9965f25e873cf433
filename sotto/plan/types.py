"""The types of metrics, and the mechanisms that each may use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

#: A parameter of a mechanism; a tuple is a list of whole numbers.
Parameter: TypeAlias = str | int | bool | tuple[int, ...]

_CATEGORY = ("grr", "sue", "oue", "local_hashing", "subset", "hadamard")
#: By type, in the order in which an error lists them.
MECHANISMS: Mapping[str, tuple[str, ...]] = {
    "category": _CATEGORY,
    "boolean": _CATEGORY,
    "string": ("rappor",),
    "number": (
        *("threshold", "duchi", "piecewise", "hybrid", "square_wave"),
        *("sampled_bit", "sampled_bits", "split_bits"),
    ),
    "ordinal": ("brr", "grr"),
    "survey": ("warner", "simmons", "christofides"),
    "vector": ("sampled_vector", "sampled_hybrid"),
    "top_item": ("permute_and_flip", "top_response"),
}
#: Types whose ``domain`` lists their values.
LISTED = frozenset({"category", "ordinal", "top_item"})
#: Types whose values are clipped to a ``range``.
CLIPPED = frozenset({"number", "ordinal", "vector"})
#: Types that have a symbol for a missing value whatever the mechanism.
WITH_MISSING = frozenset({"category", "boolean", "string", "number"})
