"""Both experiments of section 6 of the paper on gradual release: ``python -m examples.gradual``.

The first relaxes 1,000 bits, 600 of them ones, ten times, along the epsilons that ten noisy
samples cost, and compares both. The second relaxes 1,500 values of five kinds from 0.1 to 1 in
steps of 0.1. Each looks at estimated shares and at four ways to guess the values.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, section 6.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mechanisms.chains.symbols import symbol_chain
from mechanisms.exact import MICRO, to_micro
from mechanisms.randomness import Source
from mechanisms.testing import SeededSource
from papers.gradual_release.attacks import ATTACKS, least_error
from papers.gradual_release.comparison import compare, noisy_sampling_epsilon
from papers.gradual_release.formulas import response_share_variance, response_shares
from papers.gradual_release.noisy_sampling import NoisySampling

#: The first experiment: how many bits are 0 and 1, and the epsilons of the two noises.
BITS = (400, 600)
PERMANENT, SAMPLE, ROUNDS = 1.0, 0.5, 10
#: The second: how many values are of each kind, and the ladder.
KINDS = (100, 200, 300, 400, 500)
LADDER = tuple(k / 10 for k in range(1, 11))


@dataclass(frozen=True)
class ShareRow:
    """A share as estimated in many repetitions, and its deviation, beside what theory says."""

    kind: int
    epsilon: float
    true: float
    mean: float
    mean_error: float
    deviation: float
    deviation_error: float
    theory: float


@dataclass(frozen=True)
class VarianceRow:
    """The variances of relaxation and of noisy sampling at the same cost, seen and in theory."""

    samples: int
    epsilon: float
    relaxation: float
    relaxation_theory: float
    noisy_sampling: float
    noisy_sampling_theory: float
    error: float


@dataclass(frozen=True)
class AttackRow:
    """How often an attack guesses wrong, beside the least that is possible."""

    name: str
    error_rate: float
    standard_error: float
    least: float


def chains_of(
    counts: Sequence[int], epsilons: Sequence[float], repeats: int, source: Source
) -> NDArray[np.int64]:
    """Relax ``counts[j]`` values j along a ladder: ``(repeats, sum(counts), levels)``."""
    values = np.repeat(np.arange(len(counts)), counts)
    chain = symbol_chain(len(counts), [to_micro(epsilon) for epsilon in epsilons])
    drawn = chain.randomize(np.tile(values, repeats), source)
    return drawn.reshape(repeats, len(values), len(epsilons))


def share_rows(
    chains: NDArray[np.int64], counts: Sequence[int], epsilons: Sequence[float]
) -> list[ShareRow]:
    """Estimate every share from the reports of every level."""
    repeats, n, _ = chains.shape
    rows = []
    for level, epsilon in enumerate(epsilons):
        found = np.array(
            [
                response_shares(epsilon, np.bincount(reports, minlength=len(counts)).tolist())
                for reports in chains[:, :, level]
            ]
        )
        for kind, count in enumerate(counts):
            spread, true = float(found[:, kind].std(ddof=1)), count / n
            mean = float(found[:, kind].mean()), spread / repeats**0.5
            deviation = spread, spread / (2 * (repeats - 1)) ** 0.5
            theory = response_share_variance(len(counts), epsilon, true, n) ** 0.5
            rows.append(ShareRow(kind, epsilon, true, *mean, *deviation, theory))
    return rows


def attack_rows(
    chains: NDArray[np.int64], counts: Sequence[int], epsilons: Sequence[float]
) -> list[AttackRow]:
    """Guess equally many values of each kind, since the bound is for uniform ones."""
    few = min(counts)
    starts = np.cumsum([0, *counts[:-1]])
    chosen = np.concatenate([np.arange(start, start + few) for start in starts])
    true = np.repeat(np.arange(len(counts)), few)
    flat = chains[:, chosen].reshape(-1, len(epsilons))
    least = least_error(len(counts), epsilons[-1])
    rows = []
    for name, attack in ATTACKS.items():
        guesses = attack(flat, len(counts), epsilons).reshape(len(chains), -1)
        rate = float((guesses != true).mean())
        error = (rate * (1 - rate) / guesses.size) ** 0.5
        rows.append(AttackRow(name, rate, error, least))
    return rows


def noisy_epsilons() -> list[float]:
    exact = [noisy_sampling_epsilon(PERMANENT, SAMPLE, k) for k in range(1, ROUNDS + 1)]
    return [to_micro(epsilon) / MICRO for epsilon in exact]


def variance_rows(
    chains: NDArray[np.int64], epsilons: Sequence[float], source: Source
) -> list[VarianceRow]:
    """Compare the relaxed bits with noisy samples of the same bits, level by level."""
    repeats, n, _ = chains.shape
    mechanism = NoisySampling(PERMANENT, SAMPLE, ROUNDS)
    bits = np.tile(np.repeat([0, 1], BITS), repeats)
    samples = mechanism.randomize(bits, source).reshape(repeats, n, ROUNDS)
    theory = compare(PERMANENT, SAMPLE, range(1, ROUNDS + 1), n)
    rows = []
    for level, (epsilon, row) in enumerate(zip(epsilons, theory, strict=True)):
        ones = chains[:, :, level].sum(axis=1).tolist()
        relaxed = [response_shares(epsilon, [n - k, k])[1] for k in ones]
        fewer = replace(mechanism, samples=row.samples)
        sampled = [fewer.estimate(each[:, : row.samples]).value for each in samples]
        ours = float(np.var(relaxed, ddof=1)), row.relaxation
        noisy = float(np.var(sampled, ddof=1)), row.noisy_sampling
        error = (2 / (repeats - 1)) ** 0.5
        rows.append(VarianceRow(row.samples, epsilon, *ours, *noisy, error))
    return rows


def print_rows(
    chains: NDArray[np.int64],
    counts: Sequence[int],
    epsilons: Sequence[float],
    kinds: Sequence[int],
) -> None:
    print("value  epsilon   true     mean ± s.e.          deviation ± s.e.     theory")
    for row in share_rows(chains, counts, epsilons):
        if row.kind in kinds:
            print(
                f"{row.kind + 1:5d} {row.epsilon:8.4f} {row.true:6.4f}   {row.mean:.4f} ± "
                f"{row.mean_error:.4f}      {row.deviation:.4f} ± {row.deviation_error:.4f}      "
                f"{row.theory:.4f}"
            )
    print("\nattack  wrong ± s.e.          least possible")
    for attack in attack_rows(chains, counts, epsilons):
        print(
            f"{attack.name:6s}  {attack.error_rate:.4f} ± {attack.standard_error:.4f}       "
            f"{attack.least:.4f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m examples.gradual")
    parser.add_argument("--repeats", type=int, default=100, help="at least 2 (100, as the paper)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.repeats < 2:
        parser.error("--repeats must be at least 2")
    source = SeededSource(options.seed)
    print(f"{options.repeats} repetitions, seed {options.seed}")

    epsilons = noisy_epsilons()
    chains = chains_of(BITS, epsilons, options.repeats, source)
    print(f"\n1. {sum(BITS)} bits, {BITS[1]} of them ones, relaxed as far as noisy samples cost\n")
    print_rows(chains, BITS, epsilons, [1])
    print("\nVariances at equal cost (relative s.e. of what is seen in the last column)")
    print("samples  epsilon   relaxed    theory     noisy      theory     s.e.")
    for row in variance_rows(chains, epsilons, source):
        print(
            f"{row.samples:7d} {row.epsilon:8.4f}   {row.relaxation:.6f}   "
            f"{row.relaxation_theory:.6f}   {row.noisy_sampling:.6f}   "
            f"{row.noisy_sampling_theory:.6f}   {row.error:.0%}"
        )

    chains = chains_of(KINDS, LADDER, options.repeats, source)
    print(f"\n2. {sum(KINDS)} values of {len(KINDS)} kinds, relaxed from 0.1 to 1\n")
    print_rows(chains, KINDS, LADDER, range(len(KINDS)))


if __name__ == "__main__":
    main()
