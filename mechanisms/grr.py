"""Generalized randomized response: report the true category, or one of the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError
from mechanisms.laddered import Prior, SymbolLadder
from mechanisms.randomness import Source
from mechanisms.rungs import certify, check_ladder
from mechanisms.symbols import symbol_chain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class GrrLadder(SymbolLadder):
    """Generalized randomized response over ``domain_size`` categories, relaxed along a ladder."""

    name = "grr"

    @property
    def domain_size(self) -> int:
        """The number of categories."""
        return self.chain.size

    @property
    def count_length(self) -> int:
        """One count a category."""
        return self.chain.size

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the category itself."""
        if not 0 <= symbol < self.chain.size:
            raise ParameterError(f"a symbol must lie in [0, {self.chain.size})")
        return int(symbol)

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the category itself, with weight one."""
        if not 0 <= symbol < self.chain.size:
            raise ParameterError(f"a symbol must lie in [0, {self.chain.size})")
        return ((int(symbol), 1),)

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Return the categories as ``int64``."""
        return category_array(symbols, self.chain.size)

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its category."""
        return reports


def category_array(symbols: Any, domain_size: int) -> NDArray[np.int64]:
    """Return categories as an ``int64`` array, after a check of their range."""
    import numpy as np

    given = np.asarray(symbols)
    if given.dtype.kind not in "iu" or given.ndim != 1:
        raise ParameterError("symbols must be one row of integers")
    if given.size and not (given.min() >= 0 and given.max() < domain_size):
        raise ParameterError(f"symbols must lie in [0, {domain_size})")
    return given.astype(np.int64)


def grr_ladder(domain_size: int, ladder: Sequence[int], metric: str) -> GrrLadder:
    """Build a ladder of generalized randomized response."""
    rungs = check_ladder(ladder)
    chain = symbol_chain(domain_size, rungs)
    return GrrLadder(metric, certify(rungs, [rung.p / rung.q for rung in chain.rungs]), chain)
