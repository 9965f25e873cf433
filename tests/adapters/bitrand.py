"""Bit-aware mechanisms and their variances."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mechanisms.number.split_bits import exact_weights, split_epsilon
from mechanisms.papers import bitrand
from mechanisms.vector.optimum import answer_noise, k_push_variance, push_variance


def frr(inputs: dict[str, Any]) -> dict[str, Any]:
    shape = (inputs["eps"], inputs["r"], inputs["l"])
    keeping = bitrand.frr_keeping(*shape)
    losses = bitrand.frr_losses(*shape)
    return {
        "alpha": math.exp(bitrand.log_alpha(*shape)),
        "eps_true": bitrand.frr_epsilon(*shape),
        "p": keeping,
        "inverted_bits": [place for place, loss in enumerate(losses) if loss > 0],
    }


def label_rr(inputs: dict[str, Any]) -> dict[str, float]:
    p, q = bitrand.label_keeping(inputs["eps"], inputs["C"])
    return {"p": p, "q": q}


def push_var(inputs: dict[str, Any]) -> float:
    return push_variance(inputs["x"], inputs["eps"])


def kpush_var(inputs: dict[str, Any]) -> float:
    return k_push_variance(inputs["x"], inputs["eps"], inputs["k"])


def split_alloc(inputs: dict[str, Any]) -> dict[str, Any]:
    weights = exact_weights(inputs["l"])
    shares = split_epsilon(Fraction(repr(float(inputs["eps"]))), weights)
    noise = (float(w) ** 2 * answer_noise(float(s)) for w, s in zip(weights, shares, strict=True))
    return {"eps_bits": [float(s) for s in shares], "variance_on_minus1_1": 4 * math.fsum(noise)}


ADAPTERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "frr": frr,
    "label_rr": label_rr,
    "push_var": push_var,
    "kpush_var": kpush_var,
    "split_alloc": split_alloc,
}
