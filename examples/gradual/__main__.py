"""Print both experiments beside their theory: ``python -m examples.gradual``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from examples.gradual.experiments import (
    BITS,
    KINDS,
    LADDER,
    AttackRow,
    ShareRow,
    attack_rows,
    chains_of,
    noisy_epsilons,
    share_rows,
    variance_rows,
)
from mechanisms.testing import SeededSource


def print_shares(rows: Sequence[ShareRow]) -> None:
    """Print estimated shares with their deviations."""
    print("value  epsilon   true     mean ± s.e.          deviation ± s.e.     theory")
    for row in rows:
        print(
            f"{row.kind + 1:5d} {row.epsilon:8.4f} {row.true:6.4f}   {row.mean:.4f} ± "
            f"{row.mean_error:.4f}      {row.deviation:.4f} ± {row.deviation_error:.4f}      "
            f"{row.theory:.4f}"
        )


def print_attacks(rows: Sequence[AttackRow]) -> None:
    """Print error rates beside the least possible one."""
    print("attack  wrong ± s.e.          least possible")
    for row in rows:
        print(
            f"{row.name:6s}  {row.error_rate:.4f} ± {row.standard_error:.4f}       {row.least:.4f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Run both experiments."""
    parser = argparse.ArgumentParser(prog="python -m examples.gradual", description=__doc__)
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
    print_shares([row for row in share_rows(chains, BITS, epsilons) if row.kind == 1])
    print("\nVariances at equal cost (relative s.e. of what is seen in the last column)")
    print("samples  epsilon   relaxed    theory     noisy      theory     s.e.")
    for row in variance_rows(chains, epsilons, source):
        print(
            f"{row.samples:7d} {row.epsilon:8.4f}   {row.relaxation:.6f}   "
            f"{row.relaxation_theory:.6f}   {row.noisy_sampling:.6f}   "
            f"{row.noisy_sampling_theory:.6f}   {row.error:.0%}"
        )
    print()
    print_attacks(attack_rows(chains, BITS, epsilons))

    chains = chains_of(KINDS, LADDER, options.repeats, source)
    print(f"\n2. {sum(KINDS)} values of {len(KINDS)} kinds, relaxed from 0.1 to 1\n")
    print_shares(share_rows(chains, KINDS, LADDER))
    print()
    print_attacks(attack_rows(chains, KINDS, LADDER))


if __name__ == "__main__":
    main()
