"""Sources of bits that tests control: scripted ones, and one that tries everything."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Outcome = TypeVar("Outcome")


class ScriptedSource:
    """Hands out given words, as ``bits`` and as ``words``; an error once they are used up."""

    def __init__(self, words: Iterable[int]) -> None:
        self._words = list(words)

    def bits(self, n: int) -> int:
        word = self._words.pop(0)
        assert 0 <= word < 1 << n
        return word

    def words(self, n: int) -> NDArray[np.uint64]:
        taken, self._words = self._words[:n], self._words[n:]
        assert len(taken) == n
        return np.array(taken, dtype=np.uint64)


class _Path:
    """Replays the draws made so far and takes 0 for every new one."""

    def __init__(self, taken: list[int]) -> None:
        self.taken = taken
        self.sizes: list[int] = []

    def bits(self, n: int) -> int:
        if len(self.sizes) == len(self.taken):
            self.taken.append(0)
        self.sizes.append(n)
        return self.taken[len(self.sizes) - 1]

    def words(self, n: int) -> NDArray[np.uint64]:
        raise NotImplementedError


def exact_law(function: Callable[[_Path], Outcome]) -> dict[Outcome, Fraction]:
    """Return the law of ``function(source)`` by running it on every sequence of bits."""
    law: dict[Outcome, Fraction] = defaultdict(Fraction)
    taken: list[int] = []
    while True:
        path = _Path(taken)
        outcome = function(path)
        law[outcome] += Fraction(1, 1 << sum(path.sizes))
        while taken and taken[-1] == (1 << path.sizes[len(taken) - 1]) - 1:
            taken.pop()
        if not taken:
            return dict(law)
        taken[-1] += 1


class HighBits:
    """Lets only the highest bits of each 64-bit word vary."""

    def __init__(self, source: object, kept: int) -> None:
        self._source, self._kept = source, kept

    def bits(self, n: int) -> int:
        assert n % 64 == 0
        value = 0
        for _ in range(n // 64):
            value = value << 64 | self._source.bits(self._kept) << (64 - self._kept)
        return value
