"""Selection: the exponential mechanism, permute-and-flip, exponential randomized response."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mechanisms.papers.exponential_randomized_response import (
    ExponentialRandomizedResponse,
    worst_case_errors,
)
from mechanisms.top_item.selection import exponential_pmf, permute_and_flip_pmf


def _response(inputs: dict[str, Any]) -> ExponentialRandomizedResponse:
    return ExponentialRandomizedResponse(inputs["p"], inputs["eps"], inputs.get("delta", 1.0))


def _errors(inputs: dict[str, Any]) -> dict[str, float]:
    errors = worst_case_errors(
        inputs["n"], inputs["v"], inputs["p"], inputs["eps"], inputs.get("delta", 1.0)
    )
    return {
        "EM": errors.exponential,
        "PF": errors.permute_and_flip,
        "ERR": errors.randomized_response,
    }


ADAPTERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "em_pmf": lambda inputs: exponential_pmf(inputs["q"], inputs["eps"], inputs["delta"]),
    "pf_pmf": lambda inputs: permute_and_flip_pmf(inputs["q"], inputs["eps"], inputs["delta"]),
    "err_pmf": lambda inputs: _response(inputs).pmf(inputs["q"]),
    "err_alg3": lambda inputs: _response(inputs).algorithm_pmf(inputs["q"]),
    "err_loss": lambda inputs: _response(inputs).loss(inputs["q"], inputs["q2"]),
    "err_err16": _errors,
}
