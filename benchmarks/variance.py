"""The variance of every mechanism beside its formula, and of relaxed reports beside fresh ones.

The same clients are randomized many times. A variance from R replicas has a relative standard
error of sqrt(2 / R), a ratio of two of them of sqrt(4 / R). *Relaxed* reports are those of the
middle level of a ladder, drawn down from the level above; *fresh* ones are drawn at that epsilon
alone. Their laws are the same, so the ratio is 1 within its error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Table
from mechanisms.base import Mechanism
from mechanisms.estimators.variance import (
    sampled_bit_variance,
    share_variance,
    split_bits_variance,
    threshold_variance,
)
from mechanisms.registry import build
from mechanisms.testing import SeededSource

CLIENTS = 2000
REPLICAS = 2000
EPSILON = 1_000_000
SEED = 20_241_105
CATEGORIES = np.arange(CLIENTS) % 8 // 2
NUMBERS = np.random.default_rng(SEED).beta(2, 5, CLIENTS)
STRINGS = [b"oslo", b"rome", b"lima", b"bonn"] * (CLIENTS // 4)
STRATA = 64

Value = Callable[[Mechanism, NDArray[np.int64]], float]


def replicas(mechanism: Mechanism, symbols: Any, level: int, value: Value) -> NDArray[np.float64]:
    """Return the estimates of many replicas in which all clients are at one level."""
    source, found, some = SeededSource(SEED + level), [], 100
    values = list(symbols) * some if isinstance(symbols, list) else np.tile(symbols, some)
    groups = np.repeat(np.arange(some), CLIENTS)
    for _ in range(REPLICAS // some):
        ids = source.words(2 * len(groups)).reshape(-1, 2)
        drawn = mechanism.randomize(values, ids, ids, source)[:, level]
        for counts in mechanism.accumulate(drawn, ids, ids, groups, some):
            table = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
            table[level] = counts
            found.append(value(mechanism, table))
    return np.array(found)


def first_share(mechanism: Any, counts: NDArray[np.int64]) -> float:
    """Estimate the share of the first category."""
    return float(mechanism.frequencies(counts)[0].value)


def mean(mechanism: Any, counts: NDArray[np.int64]) -> float:
    """Estimate the mean."""
    return float(mechanism.numeric(counts, quantiles=()).mean.value)


def first_string(mechanism: Any, counts: NDArray[np.int64]) -> float:
    """Estimate the share of the first string."""
    found = mechanism.decode(counts, ["oslo", "rome", "lima", "bonn"])
    return float(found.items[0].estimate.value)


def cases() -> dict[str, tuple[dict[str, Any], Any, Value]]:
    """Return specification, clients' values and estimate of each mechanism."""
    return {
        "grr, 8 categories": ({"name": "grr", "domain_size": 8}, CATEGORIES, first_share),
        "sue, 8 categories": ({"name": "sue", "domain_size": 8}, CATEGORIES, first_share),
        "oue, 8 categories": ({"name": "oue", "domain_size": 8}, CATEGORIES, first_share),
        "threshold": ({"name": "threshold", "missing": False}, NUMBERS, mean),
        "sampled_bit, 8 bits": (
            {"name": "sampled_bit", "bits": 8, "missing": False},
            NUMBERS,
            mean,
        ),
        "split_bits, 4 bits": (
            {"name": "split_bits", "bits": 4, "missing": False},
            NUMBERS,
            mean,
        ),
        "rappor, 64 bits, 2 hashes": (
            {"name": "rappor", "bits": 64, "hashes": 2, "cohorts": 1},
            STRINGS,
            first_string,
        ),
    }


def formula(mechanism: Mechanism) -> float:
    """Return n times the variance that theory gives."""
    pairs = mechanism.probabilities(0)
    p, q = pairs[0]
    if mechanism.name == "threshold":
        return threshold_variance(p, q, NUMBERS, STRATA)
    if mechanism.name == "sampled_bit":
        return sampled_bit_variance(p, q, NUMBERS, 8)
    if mechanism.name == "split_bits":
        return split_bits_variance(pairs, NUMBERS)
    if mechanism.name == "rappor":
        return string_variance(mechanism, p, q)
    return share_variance(p, q, 0.25)


def string_variance(mechanism: Any, p: float, q: float) -> float:
    """Return n times the variance of a share in a single cohort: that of its least squares."""
    sets = np.array(
        [
            [mechanism.filter_of(name, 0) >> bit & 1 for name in STRINGS[:4]]
            for bit in range(mechanism.bits)
        ]
    )
    design = sets - (1 - (1 - 1 / mechanism.bits) ** mechanism.hashes)
    return share_variance(p, q, 0.0) * float(np.linalg.inv(design.T @ design)[0, 0])


def main() -> None:
    """Print n times the variances of fresh reports, of their formula, and of relaxed reports."""
    error = (2 / REPLICAS) ** 0.5
    print(f"epsilon {EPSILON / 1e6:g}, {CLIENTS:,} clients, {REPLICAS:,} replicas, seed {SEED}")
    table = Table(f"{'mechanism':<26}<", "n Var", "formula", "         ratio", " relaxed/fresh")
    for name, (spec, values, value) in cases().items():
        alone = build(spec, [EPSILON], "metric")
        ladder = build(spec, [EPSILON // 2, EPSILON, 2 * EPSILON], "metric")
        fresh = CLIENTS * float(replicas(alone, values, 0, value).var(ddof=1))
        relaxed = CLIENTS * float(replicas(ladder, values, 1, value).var(ddof=1))
        expected = formula(alone)
        table.row(
            *(name, f"{fresh:.3f}", f"{expected:.3f}", f"{fresh / expected:.3f} ± {error:.3f}"),
            f"{relaxed / fresh:.3f} ± {2**0.5 * error:.3f}",
        )
