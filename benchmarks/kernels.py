"""The counting kernels against what plain numpy can do at best.

The bound of the adder tree is five bitwise operations a 64-bit lane on operands in the cache; that
of grouped counts is one ``bincount``. Grouped bit sums are compared with the plain way, unpacking
all bits and adding them up.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from benchmarks.harness import Table, cpu_seconds
from mechanisms.estimators.counting import bit_sums, grouped_bit_sums, grouped_counts

WIDTH = 16
ROWS = 4_000_000
SMALL = 2000
LANES = 16384


def adder_bound() -> float:
    """Return the 128-bit rows a second that five operations a lane allow."""
    a, b = np.random.default_rng(1).integers(0, 2**63, (2, LANES)).astype(np.uint64)
    out = np.empty_like(a)
    lane = cpu_seconds(lambda: np.bitwise_xor(a, b, out=out), calls=200) / LANES
    return 1 / (5 * lane * WIDTH / 8)


def plain_sums(rows: np.ndarray, groups: np.ndarray, n_groups: int) -> np.ndarray:
    """Sum bits by group in the obvious way."""
    out = np.zeros((n_groups, 8 * rows.shape[1]), dtype=np.int64)
    order = np.argsort(groups, kind="stable")
    starts = np.searchsorted(groups[order], np.arange(n_groups))
    bits = np.unpackbits(rows[order], axis=1, bitorder="little")
    np.add.reduceat(bits, starts, axis=0, dtype=np.int64, out=out)
    return out


def main() -> None:
    """Print million rows a second of each kernel, and of what it is compared with."""
    table = Table(f"{'kernel':<37}<", "M rows/s", f"{'compared with':<19}<", "M rows/s", "ratio")

    def add(kernel: str, n: int, taken: float, against: str, other: float) -> None:
        rate = n / taken
        table.row(kernel, f"{rate / 1e6:.1f}", against, f"{other / 1e6:.1f}", f"{rate / other:.2f}")

    rng = np.random.default_rng(2)
    rows = rng.integers(0, 256, (ROWS, WIDTH), dtype=np.uint8)
    bound = adder_bound()
    taken = cpu_seconds(lambda: bit_sums(rows))
    add("128 bits, one group", ROWS, taken, "5 operations a lane", bound)
    groups = rng.integers(0, 4, ROWS)
    taken = cpu_seconds(lambda: grouped_bit_sums(rows, groups, 4))
    add("128 bits, 4 groups", ROWS, taken, "5 operations a lane", bound)
    for n, n_groups in ((200_000, 48), (200_000, 5000), (SMALL, 48)):
        part, some = rows[:n], np.arange(n) * 7919 % n_groups
        taken = cpu_seconds(partial(grouped_bit_sums, part, some, n_groups))
        plain = cpu_seconds(partial(plain_sums, part, some, n_groups))
        add(f"128 bits, {n:,} rows, {n_groups:,} groups", n, taken, "unpack and add", n / plain)
    symbols = rng.integers(0, 32, ROWS).astype(np.uint8)
    keys = groups * 32 + symbols
    taken = cpu_seconds(lambda: grouped_counts(symbols, groups, 4, 32))
    best = cpu_seconds(lambda: np.bincount(keys, minlength=128))
    add("32 symbols, 4 groups", ROWS, taken, "bincount alone", ROWS / best)
