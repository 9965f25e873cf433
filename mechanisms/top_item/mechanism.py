"""The most frequent item of one device's period: what its mechanisms have in common.

A device counts the items of a period in memory, clips each count to [0, clip] and releases one
item. All of a period's values are protected together, so that *any* two vectors of clipped counts
are neighbours: each count may change by up to the clip, in either direction, and the sensitivity is
the clip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import lcm

from mechanisms.arrays import Any, Bytes, Floats, Ints, Words, np
from mechanisms.category.oracle import CategoryMechanism, FrequencyOracle
from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import SymbolChain
from mechanisms.errors import ParameterError, check_int
from mechanisms.levels import GRAINS, Probabilities
from mechanisms.noise import Noise
from mechanisms.randomness import Source, uniform_below

#: Largest number of items, and largest clip.
MAX_ITEMS, MAX_CLIP = 1 << 10, 1 << 16


class TopItemMechanism(FrequencyOracle):
    """A mechanism whose values are tuples of clipped counts, one an item, and its reports items."""

    types = ("top_item",)
    share_of = "the share of devices whose most frequent item it is"

    clip: int

    def _check(self) -> None:
        check_int("domain_size", self.domain_size, 2, MAX_ITEMS)
        check_int("clip", self.clip, 1, MAX_CLIP)

    @cached_property
    @abstractmethod
    def chain(self) -> SymbolChain:
        """The chain that is drawn: levels below the item that is selected."""

    @abstractmethod
    def selection(self, symbol: Any) -> tuple[Fraction, ...]:
        """Return the exact law of the item that is selected, before any is replaced by another."""

    def release(self, level: int) -> Probabilities:
        """Return how likely a report is the selected item, and a given other one.

        Estimates undo this alone, and are of devices on which an item was *selected*: what a
        selection by chance hides cannot be undone without a model of the counts.
        """
        return self.chain.exact[level]

    def support_pairs(self) -> Floats:
        return np.array(self.chain.exact, dtype=np.float64)

    def noise(self, level: int) -> Noise | None:
        return Noise.of(*self.release(level))

    describe = CategoryMechanism.describe

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        law = self.selection(symbol)
        scale = lcm(*(share.denominator for share in law))
        return tuple((item, int(share * scale)) for item, share in enumerate(law))

    def randomize(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Bytes:
        """Draw chains for ``(n, items)`` counts: ``(n, levels, payload_width)`` ``uint8``."""
        return super().randomize(list(symbols), chains, pseudonyms, source)

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        many = range(self.domain_size)
        return [tuple(uniform_below(self.clip + 1, source) for _ in many) for _ in range(count)]

    def log_ratios(
        self, values: tuple[Any, Any], reports: Bytes, chains: Words, level: int
    ) -> Floats:
        kept, other = self.release(level)
        logs = []
        for value in values:
            selected = np.array([float(share) for share in self.selection(value)])
            with np.errstate(divide="ignore"):
                logs.append(np.log(selected * float(kept - other) + float(other)))
        return (logs[1] - logs[0])[self.chain.symbols(reports)]

    def counts(self, symbol: Any) -> Sequence[int]:
        """Return clipped counts, after a check."""
        if not (isinstance(symbol, tuple | list) and len(symbol) == self.domain_size):
            raise ParameterError(f"a symbol must be a tuple of {self.domain_size} counts")
        if not all(isinstance(count, int) and 0 <= count <= self.clip for count in symbol):
            raise ParameterError(f"counts must be integers in [0, {self.clip}]")
        return symbol

    def count_rows(self, symbols: Any) -> Ints:
        """Return ``(n, items)`` clipped counts as ``int64``, after a check."""
        try:
            given = np.asarray(symbols)
        except ValueError:
            raise ParameterError(f"symbols must be rows of {self.domain_size} counts") from None
        if not given.size:
            return np.zeros((0, self.domain_size), dtype=np.int64)
        if given.ndim != 2 or given.shape[1] != self.domain_size or given.dtype.kind not in "iu":
            raise ParameterError(f"symbols must be rows of {self.domain_size} integer counts")
        if not (given.min() >= 0 and given.max() <= self.clip):
            raise ParameterError(f"counts must lie in [0, {self.clip}]")
        return given.astype(np.int64)


def uniforms_below(bound: int, n: int, source: Source) -> Ints:
    """Return ``(n,)`` uniform integers in [0, bound), by rejection."""
    words = source.words(n)
    limit = GRAINS - GRAINS % bound
    while limit < GRAINS and (off := np.flatnonzero(words >= np.uint64(limit))).size:
        words[off] = source.words(off.size)
    return (words % np.uint64(bound)).astype(np.int64)
