"""``python -m examples.learning``: print accuracy against nominal and certified epsilon."""

from __future__ import annotations

import argparse

from examples.learning.experiment import run, table

NOTES = """
Accuracy in per cent on images that no client holds, mean over {seeds} seeds ± standard error.
{clients} clients, each with one of 1,347 images drawn with replacement and 16 features; each sends
features and label once. Epsilon is a client's, for all features; the label's is beside it.
"Off by" is the root mean square error of the mean of a feature, which lies in [0, 1].
A dash: a float original whose proof is for real numbers. The nominal epsilon of f-RR is what its
paper claims; the certified one is its exact worst case. The last rows give the others as much.
"""


def main() -> None:
    """Read the arguments, run, print."""
    parser = argparse.ArgumentParser(prog="python -m examples.learning", description=__doc__)
    parser.add_argument("--clients", type=int, default=60_000, help="how many clients report")
    parser.add_argument("--seeds", type=int, default=6, help="how often all is repeated")
    arguments = parser.parse_args()
    seeds = range(1, arguments.seeds + 1)
    results = run(arguments.clients, seeds, (1.0, 2.0, 4.0, 8.0), (1.0,))
    print(table(results))
    print(NOTES.format(seeds=arguments.seeds, clients=f"{arguments.clients:,}"))


if __name__ == "__main__":
    main()
