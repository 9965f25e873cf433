"""Numbers, ordinals, selection, surveys and BitRand, as their papers state them."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mechanisms.number.split_bits import exact_weights, split_epsilon
from mechanisms.ordinal.sizes import equidistant_size
from mechanisms.survey.design import SurveyDesign, christofides, simmons, warner
from mechanisms.vector.optimum import answer_noise
from papers import bipartite_randomized_response as bipartite
from papers import bitrand, float_numbers
from papers.exponential_randomized_response import ExponentialRandomizedResponse, worst_case_errors
from papers.gradual_release.channels import degradable
from papers.improved_christofides import deck_epsilon, deck_variance
from papers.selection import exponential_pmf, permute_and_flip_pmf

Inputs = dict[str, Any]
MEANS = {
    "duchi_or_1bit": float_numbers.Duchi,
    "piecewise": float_numbers.Piecewise,
    "hybrid": float_numbers.Hybrid,
    "laplace": float_numbers.Laplace,
    "dither": float_numbers.SubtractiveDithering,
}


def frr(given: Inputs) -> dict[str, Any]:
    shape = given["eps"], given["r"], given["l"]
    losses = bitrand.frr_losses(*shape)
    return {
        "alpha": math.exp(bitrand.log_alpha(*shape)),
        "eps_true": bitrand.frr_epsilon(*shape),
        "p": bitrand.frr_keeping(*shape),
        "inverted_bits": [place for place, loss in enumerate(losses) if loss > 0],
    }


def split_alloc(given: Inputs) -> dict[str, Any]:
    weights = exact_weights(given["l"])
    shares = split_epsilon(Fraction(repr(float(given["eps"]))), weights)
    noise = (float(w) ** 2 * answer_noise(float(s)) for w, s in zip(weights, shares, strict=True))
    return {"eps_bits": [float(s) for s in shares], "variance_on_minus1_1": 4 * math.fsum(noise)}


def brr_m(given: Inputs) -> dict[str, int]:
    shape = given["N"], given["eps"]
    return {"m": equidistant_size(*shape), "m_printed_algorithm3": bipartite.printed_size(*shape)}


def brr_general(given: Inputs) -> dict[str, object]:
    sizes = bipartite.local_sizes(given["loss"], given["eps"])
    return {"m": min(sizes), "m_local": list(sizes)}


def qloss(given: Inputs) -> dict[str, float]:
    found = bipartite.quality_losses(given["N"], given["eps"])
    return {
        "m": found.size,
        "BRR": found.bipartite,
        "GRR": found.randomized,
        "EM_eps_over_2D": found.exponential_half,
        "EM_eps_over_D": found.exponential,
    }


def thm2(given: Inputs) -> dict[str, float]:
    found = bipartite.loss_ratios(given["eps"])
    return {"sup": found.largest, "inf": found.smallest}


def thm3(given: Inputs) -> dict[str, float]:
    found = bipartite.loss_ratios(given["eps"])
    return {"limit": found.overall, "printed_wrong": found.overall_printed}


def relax_bipartite(given: Inputs) -> dict[str, float]:
    shape = given["N"], given["m"], given["eps1"], given["eps2"]
    return {"rho_keep": bipartite.keep_probability(*shape)}


def response(given: Inputs) -> ExponentialRandomizedResponse:
    return ExponentialRandomizedResponse(given["p"], given["eps"], given.get("delta", 1.0))


def err_errors(given: Inputs) -> dict[str, float]:
    shape = given["n"], given["v"], given["p"], given["eps"], given.get("delta", 1.0)
    errors = worst_case_errors(*shape)
    return {
        "EM": errors.exponential,
        "PF": errors.permute_and_flip,
        "ERR": errors.randomized_response,
    }


def cards(given: Inputs) -> SurveyDesign:
    return christofides(tuple(map(Fraction, given["p"])))


def people(given: Inputs) -> tuple[Fraction, int, int]:
    return Fraction(given["pi"]), int(given["n"]), int(given["N"])


def var_simmons(given: Inputs) -> dict[str, float]:
    design = simmons(Fraction(given["p"]), Fraction(given["y"]))
    return {"var": float(design.variance(*people(given))), "eps": design.epsilon}


ADAPTERS: dict[str, Callable[[Inputs], object]] = {
    "frr": frr,
    "label_rr": lambda i: dict(zip("pq", bitrand.label_keeping(i["eps"], i["C"]), strict=True)),
    "push_var": lambda i: float_numbers.Duchi(i["eps"]).variance(i["x"]),
    "kpush_var": lambda i: float_numbers.Duchi(i["eps"] / i["k"]).variance(i["x"]) / i["k"],
    "split_alloc": split_alloc,
    "mean_var": lambda i: {name: kind(i["eps"]).variance(i["x"]) for name, kind in MEANS.items()},
    "thr_var": lambda i: float_numbers.random_threshold_variance(i["xs"], i["eps"]),
    "brr_m": brr_m,
    "brr_general": brr_general,
    "brr_row": lambda i: bipartite.equidistant_row(i["N"], i["eps"], i["k"] - 1),
    "brr_rank": lambda i: bipartite.channel_rank(i["N"], equidistant_size(i["N"], i["eps"])),
    "qloss": qloss,
    "thm2": thm2,
    "thm3": thm3,
    "relax_bipartite": relax_bipartite,
    "degradable": lambda i: degradable(i["C1"], i["C2"]),
    "em_pmf": lambda i: exponential_pmf(i["q"], i["eps"], i["delta"]),
    "pf_pmf": lambda i: permute_and_flip_pmf(i["q"], i["eps"], i["delta"]),
    "err_pmf": lambda i: response(i).pmf(i["q"]),
    "err_alg3": lambda i: response(i).algorithm_pmf(i["q"]),
    "err_loss": lambda i: response(i).loss(i["q"], i["q2"]),
    "err_err16": err_errors,
    "var_warner": lambda i: float(warner(Fraction(i["p"])).variance(*people(i))),
    "var_simmons": var_simmons,
    "var_chr": lambda i: float(cards(i).variance(*people(i))),
    "var_imp": lambda i: float(deck_variance(cards(i), int(i["M_deck"]), *people(i))),
    "eps_chr": lambda i: cards(i).epsilon,
    "eps_deck": lambda i: deck_epsilon(i["counts"], i["n"]),
    "chr_estimate": lambda i: cards(i).estimate(i["reports"]).value,
}
