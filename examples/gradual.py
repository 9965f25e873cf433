"""Two experiments on gradual release, beside what theory says: ``python -m examples.gradual``.

The first relaxes 1,000 bits, 600 of them ones, along the epsilons that one to ten noisy samples
cost, and compares the variances of both. The second relaxes 1,500 values of five kinds from epsilon
0.1 to 1. Both end with four ways to guess a value from all of its reports.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, section 6.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from mechanisms.chains.symbols import symbol_chain
from mechanisms.exact import to_micro
from mechanisms.testing import SeededSource
from papers.gradual_release.attacks import ATTACKS, least_error
from papers.gradual_release.comparison import compare
from papers.gradual_release.formulas import response_share_variance, response_shares

BITS, KINDS = (400, 600), (100, 200, 300, 400, 500)
LADDER = [k / 10 for k in range(1, 11)]
#: Ten samples at epsilon 0.5 of one permanent response at epsilon 1.
NOISY = compare(1.0, 0.5, range(1, 11), sum(BITS))


def experiment(counts: Sequence[int], epsilons: Sequence[float], repeats: int, seed: int) -> None:
    """Print the estimated share of the last kind at each level, and how often each guess fails."""
    n, kinds = sum(counts), len(counts)
    values = np.tile(np.repeat(np.arange(kinds), counts), repeats)
    law = symbol_chain(kinds, [to_micro(epsilon) for epsilon in epsilons])
    chains = law.randomize(values, SeededSource(seed))
    print("epsilon    true    mean  deviation  theory")
    for level, epsilon in enumerate(epsilons):
        tables = (np.bincount(one, minlength=kinds) for one in chains[:, level].reshape(repeats, n))
        found = np.array([response_shares(epsilon, table.tolist())[-1] for table in tables])
        true = counts[-1] / n
        due = response_share_variance(kinds, epsilon, true, n) ** 0.5
        print(f"{epsilon:7.4f}  {true:.4f}  {found.mean():.4f}     {found.std():.4f}  {due:.4f}")
    # The bound is for values that are equally likely: each kind has the same weight.
    weights = (1 / np.array(counts))[values]
    for name, attack in ATTACKS.items():
        wrong = np.average(attack(chains, kinds, epsilons) != values, weights=weights)
        least = least_error(kinds, epsilons[-1])
        print(f"{name:>4} guesses wrong: {wrong:.4f}; the least possible: {least:.4f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both experiments."""
    parser = argparse.ArgumentParser(prog="python -m examples.gradual")
    parser.add_argument("--repeats", type=int, default=100, help="100, as the paper")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    print("1. Bits, relaxed as far as noisy samples cost; the last kind is 1\n")
    experiment(BITS, [row.epsilon for row in NOISY], options.repeats, options.seed)
    print("\nsamples  epsilon  deviation if relaxed  of noisy samples")
    for row in NOISY:
        relaxed, noisy = row.relaxation**0.5, row.noisy_sampling**0.5
        print(f"{row.samples:7}  {row.epsilon:7.4f}  {relaxed:20.4f}  {noisy:16.4f}")
    print("\n2. Values of five kinds, relaxed from 0.1 to 1; the last kind is 5\n")
    experiment(KINDS, LADDER, options.repeats, options.seed)


if __name__ == "__main__":
    main()
