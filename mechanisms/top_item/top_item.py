# mypy: disable-error-code="no-any-return"
"""The most frequent item of one device's period: what its ladders have in common.

A device counts the items of a period in memory, clips each count to [0, clip] and releases one
item. All of a period's values are protected together, so that *any* two vectors of clipped counts
are neighbours: each count may change by up to the clip, in either direction, and the sensitivity is
the clip.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.ladders import SymbolLadder
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.estimate import Estimate

#: Largest number of items, and largest clip.
MAX_ITEMS, MAX_CLIP = 1 << 10, 1 << 16


@frozen
class TopItemLadder(SymbolLadder):
    """A ladder whose symbols are tuples of clipped counts, one an item, and whose reports items.

    Parameters
    ----------
    clip : int
        Counts lie in [0, clip].
    """

    clip: int

    @property
    def domain_size(self) -> int:
        """The number of items."""
        return self.chain.size

    @property
    def count_length(self) -> int:
        """One count an item."""
        return self.chain.size

    @abstractmethod
    def support_pairs(self) -> NDArray[np.float64]:
        """Return (p, q) of every level: a report names the supported item, and another one."""

    def supports(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """A report supports the item that it names."""
        return table, table.sum(axis=1)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its item."""
        return reports

    def randomize(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``(n, items)`` counts: ``(n, levels, payload_width)`` ``uint8``."""
        return super().randomize(list(symbols), chains, pseudonyms, source)

    def frequencies(self, counts: ArrayLike) -> list[Estimate]:
        """Estimate the share of devices that name each item."""
        from mechanisms.estimators.frequency import count_table, shares

        table = count_table(self, counts)
        return shares(*self.supports(table), self.support_pairs())

    def counts(self, symbol: Any) -> Sequence[int]:
        """Return clipped counts, after a check."""
        if not (isinstance(symbol, tuple | list) and len(symbol) == self.chain.size):
            raise ParameterError(f"a symbol must be a tuple of {self.chain.size} counts")
        if not all(isinstance(count, int) and 0 <= count <= self.clip for count in symbol):
            raise ParameterError(f"counts must be integers in [0, {self.clip}]")
        return symbol

    def count_rows(self, symbols: Any) -> NDArray[np.int64]:
        """Return ``(n, items)`` clipped counts as ``int64``, after a check."""
        import numpy as np

        try:
            given = np.asarray(symbols)
        except ValueError:
            raise ParameterError(f"symbols must be rows of {self.chain.size} counts") from None
        if not given.size:
            return np.zeros((0, self.chain.size), dtype=np.int64)
        if given.ndim != 2 or given.shape[1] != self.chain.size or given.dtype.kind not in "iu":
            raise ParameterError(f"symbols must be rows of {self.chain.size} integer counts")
        if not (given.min() >= 0 and given.max() <= self.clip):
            raise ParameterError(f"counts must lie in [0, {self.clip}]")
        return given.astype(np.int64)


def uniforms_below(bound: int, n: int, source: Source) -> NDArray[np.int64]:
    """Return ``(n,)`` uniform integers in [0, bound), by rejection."""
    import numpy as np

    words = source.words(n)
    limit = GRAINS - GRAINS % bound
    while limit < GRAINS and (off := np.flatnonzero(words >= np.uint64(limit))).size:
        words[off] = source.words(off.size)
    return (words % np.uint64(bound)).astype(np.int64)


def check_items(domain_size: int, clip: int) -> None:
    """Refuse a number of items, or a clip, outside its range."""
    for name, value, low, high in (
        ("domain_size", domain_size, 2, MAX_ITEMS),
        ("clip", clip, 1, MAX_CLIP),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ParameterError(f"{name} must be an integer in [{low}, {high}], not {value!r}")
