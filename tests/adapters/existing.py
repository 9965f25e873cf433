"""Gradual release, and the formulas of randomized response that everything shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from mechanisms.channel import Channel
from mechanisms.errors import UnrelatedLevelsError
from papers.gradual_release.channels import forward_kernel
from papers.gradual_release.comparison import bit_noise, noisy_sampling_epsilon
from papers.gradual_release.formulas import (
    bit_degradation,
    chain_log_ratio,
    chain_probability,
    degradation_probabilities,
    mixed_count,
    relaxation,
    response_mean,
    response_share_variance,
    response_shares,
)
from papers.gradual_release.noisy_sampling import noisy_sampling_variance
from papers.rappor import differing_bits_epsilon, expected_differing_bits

Inputs = dict[str, Any]


def relax_probs(given: Inputs) -> dict[str, float]:
    law = relaxation(given["m"], given["eps1"], given["eps2"])
    return {
        "p_aa": law.p_aa,
        "p_ba": law.p_ba,
        "p_bb": law.p_bb,
        "p_ac_each": law.p_ac,
        "p_bc_each": law.p_bc,
    }


def relax_t(given: Inputs) -> dict[str, float]:
    step = degradation_probabilities(given["m"], given["eps1"], given["eps2"])
    return {"t_diag": step.same, "t_off": step.other}


def bits(given: Inputs) -> tuple[tuple[float, float], tuple[float, float]]:
    return (given["p1_weak"], given["p0_weak"]), (given["p1_strong"], given["p0_strong"])


def relax_bit_asym(given: Inputs) -> dict[str, float | bool]:
    try:
        zero, one = bit_degradation(*bits(given))
    except UnrelatedLevelsError:
        return {"exists": False}
    return {"exists": True, "T_1_given_0": zero, "T_1_given_1": one}


def relax_bit_asym_kernel(given: Inputs) -> dict[str, float]:
    weak, strong = bits(given)
    step = [[1 - to_one, to_one] for to_one in bit_degradation(weak, strong)]
    kernel = forward_kernel(channel([[1 - p, p] for p in reversed(strong)]), channel(step))
    return {
        f"x{x}_o1{before}_o2=1": float(kernel[x][before][1]) for x in (0, 1) for before in (0, 1)
    }


def relax_general(given: Inputs) -> list[list[list[float]]]:
    kernel = forward_kernel(channel(given["C2"]), channel(given["T"]))
    return [[[float(entry) for entry in row] for row in rows] for rows in kernel]


def channel(rows: Sequence[Sequence[float]]) -> Channel:
    """Rows sum to 1 but for rounding."""
    exact = [[Fraction(entry) for entry in row] for row in rows]
    return Channel(tuple(tuple(entry / sum(row) for entry in row) for row in exact))


def freq_grr_var(given: Inputs) -> list[float]:
    counts = given["true_counts"]
    n = sum(counts)
    return [response_share_variance(given["m"], given["eps"], count / n, n) for count in counts]


def freq_grr(given: Inputs) -> list[float]:
    if len(given["counts"]) != given["m"]:
        raise ValueError("there must be a count a category")
    return response_shares(given["eps"], given["counts"])


def rappor_eps(given: Inputs) -> float:
    pairs = zip(given["bloom_a"], given["bloom_b"], strict=True)
    return differing_bits_epsilon(sum(a != b for a, b in pairs), given["f"])


def debias_mixed(given: Inputs) -> dict[str, float]:
    found = mixed_count(given["reports"], given["eps_levels"])
    return {
        "count": found.count,
        "count_noise_var": found.count_noise,
        "mean_ivw": found.weighted_mean,
        "mean_ivw_noise_var": found.weighted_noise,
    }


ADAPTERS: dict[str, Callable[[Inputs], object]] = {
    "relax_probs": relax_probs,
    "relax_T": relax_t,
    "relax_sequence": lambda i: chain_probability(i["m"], i["eps"], i["outputs"], i["x"]),
    "relax_seq_logratio": lambda i: chain_log_ratio(i["m"], i["eps"], i["outputs"], i["a"], i["b"]),
    "relax_bit_asym": relax_bit_asym,
    "relax_bit_asym_kernel": relax_bit_asym_kernel,
    "relax_oue_flip": lambda i: degradation_probabilities(2, i["eps1"], i["eps2"]).other,
    "relax_general": relax_general,
    "eps_ns": lambda i: noisy_sampling_epsilon(i["eps_alpha"], i["eps_beta"], i["K"]),
    "var_ns": lambda i: noisy_sampling_variance(i["alpha"], i["beta"], i["K"], i["N"]),
    "var_rr": lambda i: bit_noise(i["eps"]) / i["N"],
    "freq_grr": freq_grr,
    "freq_grr_var": freq_grr_var,
    "mean_70": lambda i: response_mean(i["l"], i["h"], i["eps"], i["lambda_h"]),
    "rappor_eps": rappor_eps,
    "rappor_worst": lambda i: differing_bits_epsilon(2 * i["h"], i["f"]),
    "expected_diff": lambda i: expected_differing_bits(i["k"], i["h"]),
    "debias_mixed": debias_mixed,
}
