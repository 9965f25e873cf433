"""Generalized randomized response on one device's most frequent item."""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.estimators.variance import share_variance
from mechanisms.frozen import frozen
from mechanisms.randomness import Source, uniform_below
from mechanisms.top_item.mechanism import TopItemMechanism, uniforms_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


@frozen
class TopResponse(TopItemMechanism):
    """Generalized randomized response on one person's most frequent item.

    Takes n = ``domain_size`` items in [2, 1024], each counted up to ``clip`` in [1, 65536], ties
    above it broken at random; ``epsilon`` lies in [1e-6, 40].

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
    >>> top = TopResponse((0.5, 1.0), domain_size=4, clip=10)
    >>> [top.certified(level) for level in (0, 1)]
    [500000, 1000000]
    """

    epsilon: Epsilon
    domain_size: int
    clip: int

    name = "top_response"
    symbolic = True
    gives = (
        "of what share of devices each of {symbols} is the most frequent; at most {clip} of each "
        "are counted"
    )

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(self.domain_size, self.micros)

    def selection(self, symbol: Any) -> tuple[Fraction, ...]:
        ties = self._ties(symbol)
        return tuple(Fraction(item in ties, len(ties)) for item in range(self.domain_size))

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        ties = self._ties(symbol)
        return ties[uniform_below(len(ties), source)]

    def extremes(self, level: int) -> tuple[float, float]:
        """Return the same as for other mechanisms, by the standard library alone."""
        pair = self.probabilities(level)[0]
        return share_variance(*pair, 0.0), share_variance(*pair, 1.0)

    def _ties(self, symbol: Any) -> list[int]:
        counts = self.counts(symbol)
        best = max(counts)
        return [item for item, count in enumerate(counts) if count == best]

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        counts = self.count_rows(symbols)
        tied = counts == counts.max(axis=1, initial=0)[:, None]
        many = tied.sum(axis=1)
        pick = np.empty(len(counts), dtype=np.int64)
        for number in np.unique(many).tolist():
            rows = np.flatnonzero(many == number)
            pick[rows] = uniforms_below(number, len(rows), source)
        ranks = np.cumsum(tied, axis=1) - 1
        chosen: Ints = np.argmax(tied & (ranks == pick[:, None]), axis=1)
        return chosen

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        rest = [0] * (self.domain_size - 2)
        return (self.clip, 0, *rest), (0, self.clip, *rest)
