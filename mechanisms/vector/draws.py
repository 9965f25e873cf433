"""Ladders whose reports are several answers, each about a public coin of its own.

The answers of a report are randomized independently, each with the same share of the epsilon, so
that the likelihood ratio of a report is at most the product of those of its answers. What an
answer is about (a bit, a threshold, a coordinate) is decided by coins that are drawn from the
chain id: SplitMix64, seeded with the hash of the id.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.ladders import Ladder
from mechanisms.levels import Amounts, Probabilities, certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.sampling import choose

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def coin(seed: int, index: int) -> int:
    """Return output ``index`` of SplitMix64 seeded with ``seed``.

    Examples
    --------
    >>> hex(coin(0, 0))
    '0xe220a8397b1dcdaf'
    """
    return coins.mix64((seed + (index + 1) * _GAMMA) & _MASK)


def coin_column(seeds: NDArray[np.uint64], index: int) -> NDArray[np.uint64]:
    """Vectorised :func:`coin`: ``(n,)`` seeds in, ``(n,)`` ``uint64`` out."""
    import numpy as np

    return coins.mix64s(seeds + np.uint64((index + 1) * _GAMMA & _MASK))


@frozen
class PackedChain:
    """Independent chains of one kind, their symbols packed into an integer.

    Parameters
    ----------
    single : SymbolChain or FiniteChain
        What every answer goes through.
    count : int
        The number of answers; the first one has the lowest bits.
    """

    single: SymbolChain | FiniteChain
    count: int

    @cached_property
    def width(self) -> int:
        """Bits of an answer."""
        return (self.single.size - 1).bit_length()

    def pack(self, symbols: Sequence[int]) -> int:
        """Return symbols as one integer."""
        return sum(symbol << self.width * place for place, symbol in enumerate(symbols))

    def unpack(self, value: int) -> list[int]:
        """Return the symbols in an integer."""
        mask = (1 << self.width) - 1
        return [value >> self.width * place & mask for place in range(self.count)]

    def draw(self, value: int, source: Source) -> list[int]:
        """Draw a chain backward from packed symbols; return it weakest rung first."""
        drawn = [self.single.draw(symbol, source) for symbol in self.unpack(value)]
        return [self.pack(answers) for answers in zip(*drawn, strict=True)]

    def weaker(self, last: int, source: Source) -> list[int]:
        """Draw the outputs of all rungs but the last, weakest first, from that of the last."""
        drawn = [self.single.weaker(symbol, source) for symbol in self.unpack(last)]
        return [self.pack(answers) for answers in zip(*drawn, strict=True)]

    def forward(self, prior: Prior, previous: int, level: int, source: Source) -> int:
        """Draw the output of ``level`` given that of the level below, by exact weights."""
        value = prior[0][0]
        if len(prior) > 1:
            value = choose(self.posterior_weights(prior, previous, level - 1), source)
        single = [((symbol, 1),) for symbol in self.unpack(value)]
        return self.forward_each(single, previous, level, source)

    def forward_each(
        self, priors: Sequence[Prior], previous: int, level: int, source: Source
    ) -> int:
        """Draw the output of ``level`` where the symbols have independent priors."""
        before = self.unpack(previous)
        return self.pack(
            [
                self.single.forward(prior, answer, level, source)
                for prior, answer in zip(priors, before, strict=True)
            ]
        )

    def posterior_weights(self, prior: Prior, output: int, level: int) -> dict[int, int]:
        """Integer weights of the packed symbols of ``prior`` given the output of ``level``."""
        rows = self.single.channel(level).rows
        scale = math.lcm(*(entry.denominator for row in rows for entry in row))
        weights: dict[int, int] = {}
        answers = self.unpack(output)
        for value, weight in prior:
            symbols = zip(self.unpack(value), answers, strict=True)
            likely = math.prod(int(rows[x][o] * scale) for x, o in symbols)
            weights[value] = weights.get(value, 0) + weight * likely
        return weights


@frozen
class DrawsLadder(Ladder):
    """A ladder whose reports are ``count`` packed answers."""

    chain: PackedChain

    @property
    def count(self) -> int:
        """Answers of a report."""
        return self.chain.count

    @property
    @abstractmethod
    def count_length(self) -> int:
        """The length of a count vector."""

    @abstractmethod
    def encode(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the true answers to what the coins of ``seed`` ask."""

    @abstractmethod
    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        """Return, for each answer, what it may be, with integer weights; they are independent."""

    @abstractmethod
    def encode_many(
        self, symbols: Any, seeds: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Vectorised :meth:`encode`: ``(n, count)``."""

    @abstractmethod
    def cells(self, answers: NDArray[np.int64], seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the place of each of ``(n, count)`` answers in the count vector."""

    @cached_property
    def payload_width(self) -> int:
        """Bytes of a payload."""
        return -(-self.chain.count * self.chain.width // 8)

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the exact probabilities of a rung, the same for every answer."""
        return (self.chain.single.exact[level],)

    def forward(
        self,
        symbol: Any,
        previous: bytes,
        level: int,
        chain: bytes,
        pseudonym: bytes,
        source: Source,
    ) -> bytes:
        """Draw the payload of ``level`` given that of the level below, by the same joint law."""
        if not 1 <= level < self.levels:
            raise ParameterError(f"level must lie in [1, {self.levels}), not {level}")
        before = self._output(previous)
        priors = self.priors(symbol, self.seed(chain))
        return self._payloads([self.chain.forward_each(priors, before, level, source)])[0]

    def randomize(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``n`` values: ``(n, levels, payload_width)`` ``uint8``."""
        import numpy as np

        n = len(symbols)
        if not (chains.shape == (n, 2) and pseudonyms.shape == (n, 2)):
            raise ParameterError(
                f"{n} values need as many ids of shape (n, 2), not chains {chains.shape} and "
                f"pseudonyms {pseudonyms.shape}"
            )
        answers = self.encode_many(symbols, self.seeds(chains), source)
        drawn = self.chain.single.randomize(answers.reshape(-1), source)
        width = self.chain.width
        bits = drawn.reshape(n, self.count, self.levels, 1) >> np.arange(width) & 1
        planes = bits.astype(np.uint8).transpose(0, 2, 1, 3)
        planes = planes.reshape(n, self.levels, self.count * width)
        return np.packbits(planes, axis=2, bitorder="little")

    def valid(self, payloads: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``(n, payload_width)`` payloads are possible outputs."""
        spare = -self.chain.count * self.chain.width % 8
        clear: NDArray[np.bool_] = payloads[:, -1] <= 0xFF >> spare
        return clear & (self.answers(payloads) < self.chain.single.size).all(axis=1)

    def answers(self, payloads: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Return the symbols in ``(n, payload_width)`` payloads: ``(n, count)``."""
        import numpy as np

        width = self.chain.width
        bits = np.unpackbits(payloads, axis=1, count=self.count * width, bitorder="little")
        weights = 1 << np.arange(width, dtype=np.int64)
        symbols: NDArray[np.int64] = bits.reshape(len(payloads), self.count, width) @ weights
        return symbols

    def accumulate(
        self,
        payloads: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        groups: NDArray[np.int64],
        n_groups: int,
    ) -> NDArray[np.int64]:
        """Count the answers of valid payloads by group: ``(n_groups, count_length)`` ``int64``."""
        import numpy as np

        from mechanisms.estimators.counting import grouped_counts

        cells = self.cells(self.answers(payloads), self.seeds(chains)).reshape(-1)
        return grouped_counts(cells, np.repeat(groups, self.count), n_groups, self.count_length)

    def seed(self, chain: bytes) -> int:
        """Return what the coins of a chain are drawn from."""
        return coins.hash_id(chain, self._domain)

    def seeds(self, chains: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Vectorised :meth:`seed`: ``(n, 2)`` in, ``(n,)`` out."""
        return coins.hash_ids(chains, self._domain)

    @cached_property
    def _domain(self) -> int:
        return coins.coin_domain(self.metric)

    @cached_property
    def _outputs(self) -> int:
        """One more than the largest integer that packs symbols."""
        return self.chain.pack([self.chain.single.size - 1] * self.chain.count) + 1

    def _output(self, payload: bytes) -> int:
        output = super()._output(payload)
        if not max(self.chain.unpack(output)) < self.chain.single.size:
            raise ParameterError("the payload is none of this mechanism")
        return output

    def _encoded(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return self.chain.pack(self.encode(symbol, self.seed(chain), source))

    def _prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        product: dict[int, int] = {}
        for combination in itertools.product(*self.priors(symbol, self.seed(chain))):
            value = self.chain.pack([answer for answer, _ in combination])
            product[value] = product.get(value, 0) + math.prod(w for _, w in combination)
        return tuple(product.items())


def packed_chain(size: int, count: int, ladder: Sequence[int]) -> tuple[PackedChain, Amounts]:
    """Build the chain of ``count`` answers of ``size`` symbols, and certify it.

    Each answer has an equal share of every rung's amount. The largest likelihood ratio of a
    report is the product of those of its answers: all of them can change at once.

    Raises
    ------
    ParameterError, UnrelatedLevelsError
        As :func:`mechanisms.levels.check_ladder` and
        :func:`mechanisms.chains.symbols.symbol_chain`.
    """
    rungs = check_ladder(ladder, count)
    single = symbol_chain(size, [Fraction(micro, count) for micro in rungs])
    ratios = [(rung.p / rung.q) ** count for rung in single.exact]
    return PackedChain(single, count), certify(rungs, ratios)
