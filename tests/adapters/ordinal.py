"""Ordinal values: bipartite randomized response, its losses, its relaxation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mechanisms.ordinal.brr import channel_rank, equidistant_row
from mechanisms.ordinal.sizes import equidistant_size, local_sizes
from mechanisms.papers.bipartite_randomized_response import (
    degradable,
    keep_probability,
    loss_ratios,
    printed_size,
    quality_losses,
)

Inputs = dict[str, Any]


def brr_m(given: Inputs) -> dict[str, int]:
    shape = given["N"], given["eps"]
    return {"m": equidistant_size(*shape), "m_printed_algorithm3": printed_size(*shape)}


def brr_general(given: Inputs) -> dict[str, object]:
    sizes = local_sizes(given["loss"], given["eps"])
    return {"m": min(sizes), "m_local": list(sizes)}


def brr_rank(given: Inputs) -> int:
    return channel_rank(given["N"], equidistant_size(given["N"], given["eps"]))


def qloss(given: Inputs) -> dict[str, float]:
    found = quality_losses(given["N"], given["eps"])
    return {
        "m": found.size,
        "BRR": found.bipartite,
        "GRR": found.randomized,
        "EM_eps_over_2D": found.exponential_half,
        "EM_eps_over_D": found.exponential,
    }


def thm2(given: Inputs) -> dict[str, float]:
    found = loss_ratios(given["eps"])
    return {"sup": found.largest, "inf": found.smallest}


def thm3(given: Inputs) -> dict[str, float]:
    found = loss_ratios(given["eps"])
    return {"limit": found.overall, "printed_wrong": found.overall_printed}


def relax_bipartite(given: Inputs) -> dict[str, float]:
    shape = given["N"], given["m"]
    return {"rho_keep": keep_probability(*shape, given["eps1"], given["eps2"])}


ADAPTERS: dict[str, Callable[[Inputs], object]] = {
    "brr_m": brr_m,
    "brr_general": brr_general,
    "brr_row": lambda i: equidistant_row(i["N"], i["eps"], i["k"] - 1),
    "brr_rank": brr_rank,
    "qloss": qloss,
    "thm2": thm2,
    "thm3": thm3,
    "relax_bipartite": relax_bipartite,
    "degradable": lambda i: degradable(i["C1"], i["C2"]),
}
