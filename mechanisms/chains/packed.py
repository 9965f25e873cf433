"""Chains of several answers, each drawn on its own, packed into one output."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Any, Bools, Bytes, Floats, Ints, np
from mechanisms.chains.chain import Chain
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.symbols import SymbolChain
from mechanisms.frozen import frozen
from mechanisms.levels import Probabilities
from mechanisms.randomness import Source


@frozen
class PackedChain(Chain):
    """Independent chains of one kind, packed into an integer, the first one lowest."""

    single: SymbolChain | FiniteChain
    answers: int

    @cached_property
    def bits(self) -> int:
        return (self.single.size - 1).bit_length()

    @cached_property
    def size(self) -> int:
        """One more than the largest integer that packs symbols."""
        return self.pack([self.single.size - 1] * self.answers) + 1

    @property
    def levels(self) -> int:
        return self.single.levels

    @cached_property
    def payload_width(self) -> int:
        return -(-self.answers * self.bits // 8)

    @property
    def cells(self) -> int:
        return self.single.size

    @cached_property
    def input_bits(self) -> int:
        """Bits of an input, of which there can be more than outputs."""
        return (self.single.inputs - 1).bit_length()

    def pack(self, symbols: Sequence[int]) -> int:
        """Return outputs as one integer."""
        return sum(symbol << self.bits * place for place, symbol in enumerate(symbols))

    def unpack(self, value: int) -> list[int]:
        mask = (1 << self.bits) - 1
        return [value >> self.bits * place & mask for place in range(self.answers)]

    def pack_inputs(self, symbols: Sequence[int]) -> int:
        """Return inputs as one integer."""
        return sum(symbol << self.input_bits * place for place, symbol in enumerate(symbols))

    def unpack_inputs(self, value: int) -> list[int]:
        mask = (1 << self.input_bits) - 1
        return [value >> self.input_bits * place & mask for place in range(self.answers)]

    def contains(self, output: int) -> bool:
        return 0 <= output < self.size and max(self.unpack(output)) < self.single.size

    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        return self.single.exact_at(level)

    def ratio(self, level: int) -> Fraction:
        return self.single.ratio(level) ** self.answers

    def realised_ratio(self, level: int) -> Fraction:
        return self.single.realised_ratio(level) ** self.answers

    def law(self, value: int, level: int) -> dict[int, Fraction]:
        return self._product(
            [self.single.law(symbol, level) for symbol in self.unpack_inputs(value)]
        )

    def step(self, output: int, level: int) -> dict[int, Fraction]:
        return self._product([self.single.step(symbol, level) for symbol in self.unpack(output)])

    def _product(self, laws: Sequence[dict[int, Fraction]]) -> dict[int, Fraction]:
        found: dict[int, Fraction] = {}
        for answers in itertools.product(*(law.items() for law in laws)):
            output = self.pack([symbol for symbol, _ in answers])
            found[output] = math.prod((share for _, share in answers), start=Fraction(1))
        return found

    def draw(self, value: int, source: Source) -> list[int]:
        drawn = [self.single.draw(symbol, source) for symbol in self.unpack_inputs(value)]
        return [self.pack(answers) for answers in zip(*drawn, strict=True)]

    def weaker(self, last: int, source: Source) -> list[int]:
        drawn = [self.single.weaker(symbol, source) for symbol in self.unpack(last)]
        return [self.pack(answers) for answers in zip(*drawn, strict=True)]

    def payloads(self, values: Ints, source: Source) -> Bytes:
        n, width = len(values), self.bits
        drawn = self.single.randomize(values.reshape(-1), source)
        bits = drawn.reshape(n, self.answers, self.levels, 1) >> np.arange(width) & 1
        planes = bits.astype(np.uint8).transpose(0, 2, 1, 3)
        planes = planes.reshape(n, self.levels, self.answers * width)
        return np.packbits(planes, axis=2, bitorder="little")

    def symbols(self, payloads: Bytes) -> Ints:
        """Return the symbols in ``(n, payload_width)`` payloads: ``(n, answers)``."""
        width = self.bits
        bits = np.unpackbits(payloads, axis=1, count=self.answers * width, bitorder="little")
        weights = 1 << np.arange(width, dtype=np.int64)
        symbols: Ints = bits.reshape(len(payloads), self.answers, width) @ weights
        return symbols

    def valid(self, payloads: Bytes) -> Bools:
        spare = -self.answers * self.bits % 8
        clear: Bools = payloads[:, -1] <= 0xFF >> spare
        return clear & (self.symbols(payloads) < self.single.size).all(axis=1)

    def count(self, payloads: Bytes, places: Ints, n_places: int) -> Ints:
        from mechanisms.estimators.counting import grouped_counts

        symbols = self.symbols(payloads).reshape(-1)
        return grouped_counts(symbols, places.reshape(-1), n_places, self.single.size)

    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        low, high = self.single.repeats(lower, upper)
        return low**self.answers, high**self.answers

    def kept(self, lower: int, upper: int, newest: int) -> Floats | None:
        # Counts do not say which answers a report of several has.
        return self.single.kept(lower, upper, newest) if self.answers == 1 else None

    def hits(self, table: Ints) -> tuple[Ints, Ints]:
        return self.single.hits(table)

    def limits(self, level: int) -> tuple[Floats, Floats]:
        return self.single.limits(level)

    def mixed(self, level: int) -> Floats | None:
        return self.single.mixed(level)

    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        symbols, width = self.symbols(reports), self.single.payload_width
        total = np.zeros(len(reports))
        for place in range(self.answers):
            packed = np.ascontiguousarray(symbols[:, place].astype(f"<u{width}"))
            alone = packed.view(np.uint8).reshape(-1, width)
            total += self.single.log_ratios(one[:, place], other[:, place], alone, level)
        return total
