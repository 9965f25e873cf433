"""Mechanisms whose reports are several answers, each about a public coin of its own.

The answers of a report are randomized independently, each with the same share of the epsilon.
Coins that are drawn from the chain id decide what an answer is about (a bit, a threshold, a
coordinate): SplitMix64, seeded with the hash of the id.
"""

from __future__ import annotations

import itertools
import math
from abc import abstractmethod
from fractions import Fraction
from functools import cached_property

from mechanisms import coins
from mechanisms.arrays import Any, Bytes, Floats, Ints, Words, np
from mechanisms.base import ChainCoins
from mechanisms.chains.chain import Prior
from mechanisms.chains.packed import PackedChain
from mechanisms.chains.symbols import symbol_chain
from mechanisms.randomness import Source, SystemSource

_MASK = 2**64 - 1
_GAMMA = 0x9E3779B97F4A7C15


def coin(seed: int, index: int) -> int:
    """Return output ``index`` of SplitMix64 seeded with ``seed``."""
    return coins.mix64((seed + (index + 1) * _GAMMA) & _MASK)


def coin_column(seeds: Words, index: int) -> Words:
    """Vectorised :func:`coin`: ``(n,)`` seeds in, ``(n,)`` ``uint64`` out."""
    return coins.mix64s(seeds + np.uint64((index + 1) * _GAMMA & _MASK))


class SeveralAnswers(ChainCoins):
    """A mechanism whose reports are packed answers, counted one by one."""

    uncompared = "a report has several answers, which are counted one by one"

    @property
    @abstractmethod
    def answered(self) -> int:
        """How many answers a report has."""

    @property
    def _decisions(self) -> int:
        return self.answered

    @property
    def symbols(self) -> int:
        return 2

    @cached_property
    def chain(self) -> PackedChain:
        shares = [Fraction(micro, self.answered) for micro in self.micros]
        return PackedChain(symbol_chain(self.symbols, shares), self.answered)

    @abstractmethod
    def true_answers(self, symbol: Any, seed: int, source: Source) -> list[int]:
        """Return the true answers to what the coins of ``seed`` ask."""

    @abstractmethod
    def true_answers_many(self, symbols: Any, seeds: Words, source: Source) -> Ints:
        """Vectorised :meth:`true_answers`: ``(n, answered)``."""

    @abstractmethod
    def priors(self, symbol: Any, seed: int) -> list[Prior]:
        """Return, for each answer, what it may be, with integer weights; they are independent."""

    @abstractmethod
    def places(self, seeds: Words) -> Ints:
        """Return the stratum of each answer: ``(n, answered)``."""

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return self.chain.pack_inputs(self.true_answers(symbol, self.coin(chain), source))

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        product: dict[int, int] = {}
        for combination in itertools.product(*self.priors(symbol, self.coin(chain))):
            value = self.chain.pack_inputs([answer for answer, _ in combination])
            product[value] = product.get(value, 0) + math.prod(w for _, w in combination)
        return tuple(product.items())

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        return self.true_answers_many(symbols, self.coins_of(chains), source)

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        return self.places(self.coins_of(chains))

    def log_ratios(
        self, values: tuple[Any, Any], reports: Bytes, chains: Words, level: int
    ) -> Floats:
        one, other = (self.truths([each] * len(chains), chains) for each in values)
        return self.chain.log_ratios(one, other, reports, level)

    def truths(self, symbols: Any, chains: Words) -> Ints:
        return self.true_answers_many(symbols, self.coins_of(chains), SystemSource())

    def answers(self, payloads: Bytes) -> Ints:
        levels = range(payloads.shape[1])
        return np.stack([self.chain.symbols(payloads[:, level]) for level in levels], axis=1)
