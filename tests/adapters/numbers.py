"""Variances of the published mechanisms for a number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mechanisms.papers.float_numbers import (
    dithering_variance,
    duchi_variance,
    hybrid_variance,
    laplace_variance,
    piecewise_variance,
    random_threshold_variance,
)

Inputs = dict[str, Any]


def mean_var(given: Inputs) -> dict[str, float]:
    x, epsilon = given["x"], given["eps"]
    return {
        "duchi_or_1bit": duchi_variance(x, epsilon),
        "piecewise": piecewise_variance(x, epsilon),
        "hybrid": hybrid_variance(x, epsilon),
        "laplace": laplace_variance(epsilon),
        "dither": dithering_variance(epsilon),
    }


def thr_var(given: Inputs) -> float:
    return random_threshold_variance(given["xs"], given["eps"])


ADAPTERS: dict[str, Callable[[Inputs], object]] = {"mean_var": mean_var, "thr_var": thr_var}
