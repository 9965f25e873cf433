"""Generalized randomized response on one device's most frequent item, as a ladder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.chains.chain import Prior
from mechanisms.chains.symbols import symbol_chain
from mechanisms.frozen import frozen
from mechanisms.levels import certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below
from mechanisms.top_item.top_item import TopItemLadder, check_items, uniforms_below

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@frozen
class TopResponseLadder(TopItemLadder):
    """Generalized randomized response on one person's most frequent item, relaxed.

    Privacy
    -------
    Any two vectors of counts in [0, clip] are neighbours. Only the best item, drawn among ties at
    random, enters; the loss is exactly that of generalized randomized response.

    Relaxation
    ----------
    Always.

    Utility
    -------
    The best item is released with probability e^ε/(e^ε + n − 1), the most that any mechanism can
    give to every item. The share of devices with a given best item is estimated without bias,
    with the variance of generalized randomized response.

    Use
    ---
    To learn on how many devices an item is the most frequent one.

    References
    ----------
    P. Kairouz, K. Bonawitz, D. Ramage, "Discrete Distribution Estimation under Local Privacy",
    ICML 2016.

    Examples
    --------
    >>> ladder = top_response_ladder(4, 10, [500_000, 1_000_000], "screen")
    >>> [ladder.certified(level) for level in (0, 1)]
    [500000, 1000000]
    """

    name = "top_response"

    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Draw one of the most frequent items."""
        ties = self._ties(symbol)
        return ties[uniform_below(len(ties), source)]

    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the most frequent items with equal weights."""
        return tuple((item, 1) for item in self._ties(symbol))

    def _ties(self, symbol: Any) -> list[int]:
        counts = self.counts(symbol)
        best = max(counts)
        return [item for item, count in enumerate(counts) if count == best]

    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Draw most frequent items, ``(n,)``."""
        import numpy as np

        counts = self.count_rows(symbols)
        tied = counts == counts.max(axis=1, initial=0)[:, None]
        many = tied.sum(axis=1)
        pick = np.empty(len(counts), dtype=np.int64)
        for number in np.unique(many).tolist():
            rows = np.flatnonzero(many == number)
            pick[rows] = uniforms_below(number, len(rows), source)
        ranks = np.cumsum(tied, axis=1) - 1
        chosen: NDArray[np.int64] = np.argmax(tied & (ranks == pick[:, None]), axis=1)
        return chosen

    def support_pairs(self) -> NDArray[np.float64]:
        """Return (p, q) of every level for the most frequent item, drawn among ties."""
        import numpy as np

        return np.array([self.probabilities(level)[0] for level in range(self.levels)])


def top_response_ladder(
    domain_size: int, clip: int, ladder: Sequence[int], metric: str
) -> TopResponseLadder:
    """Build a ladder of generalized randomized response on the most frequent item.

    Parameters
    ----------
    domain_size : int
        In [2, 1024], the number of items.
    clip : int
        In [1, 65536], the largest count of an item; ties above it are broken at random.
    ladder : sequence of int
        Micro-epsilon, weakest first.
    metric : str
    """
    rungs = check_ladder(ladder)
    check_items(domain_size, clip)
    chain = symbol_chain(domain_size, rungs)
    amounts = certify(rungs, [rung.p / rung.q for rung in chain.exact])
    return TopResponseLadder(metric, amounts, chain, clip)
