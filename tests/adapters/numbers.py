"""Variances of the published mechanisms for a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mechanisms.papers.float_numbers import (
    Duchi,
    Hybrid,
    Laplace,
    Piecewise,
    SubtractiveDithering,
    random_threshold_variance,
)

Inputs = dict[str, Any]
MEANS = {
    "duchi_or_1bit": Duchi,
    "piecewise": Piecewise,
    "hybrid": Hybrid,
    "laplace": Laplace,
    "dither": SubtractiveDithering,
}


def mean_var(given: Inputs) -> dict[str, float]:
    return {name: kind(given["eps"]).variance(given["x"]) for name, kind in MEANS.items()}


def thr_var(given: Inputs) -> float:
    return random_threshold_variance(given["xs"], given["eps"])


ADAPTERS: dict[str, Callable[[Inputs], object]] = {"mean_var": mean_var, "thr_var": thr_var}
