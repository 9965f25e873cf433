"""A draw from a row of integer weights over 2**64, and the rounding of a channel to such rows."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

from mechanisms.arrays import Ints, Words, np
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, ceil_fraction, exp_micro
from mechanisms.frozen import frozen
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source

#: Largest number of inputs, and of outputs.
MAX_SYMBOLS = 1024

Row = tuple[int, ...]
#: Rows are rounded from integers over this.
_FINE = GRAINS * GRAINS
#: More of the uniform than this is not rounding, but another mechanism.
MAX_SHARE = Fraction(1, 1 << 16)
#: Covers what is lost beyond the whole grain, at most, that rounding moves an entry by.
_SLACK = 1 + Fraction(1, 1 << 30)


@frozen
class FiniteDraw:
    """One random word decides: an output by the integer weights of the input's row.

    ``weights[x][o]`` of the 2**64 values of a random word turn ``x`` into ``o``; an output of
    weight zero is never drawn. There are 1 to 1024 rows, of as many columns, each of sum 2**64.
    """

    weights: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not (1 <= len(self.weights) <= MAX_SYMBOLS and 1 <= self.outputs <= MAX_SYMBOLS):
            raise ParameterError(f"a finite draw has 1 to {MAX_SYMBOLS} rows and columns")
        for row in self.weights:
            if not (len(row) == self.outputs and min(row) >= 0 and sum(row) == GRAINS):
                raise ParameterError("the weights of every row must be of one length, sum 2**64")

    @property
    def inputs(self) -> int:
        return len(self.weights)

    @property
    def outputs(self) -> int:
        return len(self.weights[0]) if self.weights else 0

    def weight(self, x: int, output: int) -> int:
        return self.weights[x][output]

    def apply(self, x: int, word: int) -> int:
        return bisect_right(self._totals[x], word)

    def apply_many(self, xs: Ints, words: Words) -> Ints:
        out = np.empty(len(xs), dtype=np.int64)
        order = np.argsort(xs.astype(np.uint16), kind="stable")
        ends = np.cumsum(np.bincount(xs, minlength=self.inputs)).tolist()
        start = 0
        for totals, end in zip(self._totals, ends, strict=True):
            if start < end:
                places = order[start:end]
                table = np.frombuffer(totals, dtype=np.uint64) if totals else words[:0]
                out[places] = np.searchsorted(table, words[places], side="right")
            start = end
        return out

    def draw_many(self, xs: Ints, source: Source) -> Ints:
        return self.apply_many(xs, source.words(len(xs)))

    @cached_property
    def _totals(self) -> tuple[array[int], ...]:
        # All rows at once: a table of the rows in use would tell which values were recorded.
        # A total of 2**64 is above every word and left out.
        return tuple(
            array("Q", [total for total in accumulate(row) if total < GRAINS])
            for row in self.weights
        )


def rounded(rows: Sequence[Sequence[Fraction]], micro: int) -> FiniteDraw:
    """Round a channel to integers over 2**64 whose largest exact ratio is within e^epsilon.

    A tiny share of the uniform law over the possible outputs is mixed in first, just enough for the
    rounding, by less than a grain an entry, never to exceed the amount. Equal rows stay equal and
    impossible outputs impossible. The rows, one an input, may exceed the amount by as little as the
    mixing takes back; ``ParameterError`` where they are no distributions, or more than 2**-16 of
    the uniform would be needed.
    """
    fine = [[entry.numerator * _FINE // entry.denominator for entry in row] for row in rows]
    width = len(fine[0]) if fine else 0
    for row in fine:
        if not (len(row) == width and min(row) >= 0 and _FINE - width <= sum(row) <= _FINE):
            raise ParameterError("rows must be distributions of one length")
    bound = int(exp_micro(micro)[0] * _FINE)
    columns = list(zip(*fine, strict=True))
    used = [any(column) for column in columns]
    excess = max((max(column) << 128) - bound * min(column) for column in columns)
    share = _share(Fraction(excess, _FINE * GRAINS), Fraction(bound, _FINE), sum(used))
    weights = {row: _round(row, used, share) for row in map(tuple, fine)}
    draw = FiniteDraw(tuple(weights[tuple(row)] for row in fine))
    for column in zip(*draw.weights, strict=True):
        if max(column) << 128 > bound * min(column):
            raise ParameterError(f"thresholds of 64 bits cannot honour epsilon {micro / MICRO}")
    return draw


def _share(excess: Fraction, bound: Fraction, used: int) -> int:
    """Return, over 2**128, the share of the uniform that an excess in grains needs."""
    lack = excess + (bound + 1) * _SLACK
    if lack <= 0:
        return 0
    share = lack / (excess + GRAINS * (bound - 1) / used) if bound > 1 else Fraction(1)
    if not 0 < share <= MAX_SHARE:
        raise ParameterError(
            "the rows exceed the amount, or thresholds of 64 bits cannot honour it: "
            f"a share of {float(share):.3g} of the uniform would be needed"
        )
    return ceil_fraction(share * _FINE)


def _round(row: Row, used: Sequence[bool], share: int) -> Row:
    noise = share // sum(used)
    mixed = [
        entry * (_FINE - share) // _FINE + noise if place else 0
        for entry, place in zip(row, used, strict=True)
    ]
    grains = [entry >> 64 for entry in mixed]
    by_remainder = sorted(
        (number for number, place in enumerate(used) if place),
        key=lambda number: (-(mixed[number] & (GRAINS - 1)), number),
    )
    for number in by_remainder[: GRAINS - sum(grains)]:
        grains[number] += 1
    return tuple(grains)
