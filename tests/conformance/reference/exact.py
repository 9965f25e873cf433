"""Exponentials and losses, in exact fractions; written from ``docs/spec/protocol.md`` alone."""

from __future__ import annotations

from fractions import Fraction
from functools import cache
from math import ceil

WORDS = 1 << 64
#: Digits for the series of e^x: enough that their error is far below 10^-50.
_SCALE = 10**90


@cache
def exponential(amount: Fraction) -> Fraction:
    """Return E(x) of the page: e^x less one part in 10^50, at least 1, for x in [0, 1000]."""
    if amount == 0:
        return Fraction(1)
    # e^x = (e^(x / 2^n))^(2^n), the smaller one by its series.
    halvings = 20
    reduced = amount / (1 << halvings)
    total = term = _SCALE
    count = 0
    while term:
        count += 1
        term = term * reduced.numerator // (reduced.denominator * count)
        total += term
    for _ in range(halvings):
        total = total * total // _SCALE
    return max(Fraction(1), Fraction(total, _SCALE) * (1 - Fraction(1, 10**50)))


def of_micro(micro: int | Fraction) -> Fraction:
    return exponential(Fraction(micro) / 1_000_000)


def loss(ratio: Fraction) -> int:
    """Return the least whole number of micro-epsilon whose E is not below a likelihood ratio."""
    if ratio == 1:
        return 0
    low, high = 0, 1_000_000_000
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if of_micro(middle) >= ratio else (middle, high)
    return high


def up(value: Fraction) -> int:
    return ceil(value)
