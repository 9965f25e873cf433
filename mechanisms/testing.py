"""Seeded randomness, for tests and simulations only; it protects nobody."""

from __future__ import annotations

import random

from mechanisms.arrays import Words, np


class SeededSource:
    """A reproducible :class:`~mechanisms.randomness.Source`: equal seeds give equal draws.

    In ``clientsdk`` and ``pipelines`` only ``clientsdk.testing`` imports it; a test holds that
    line.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._generator: np.random.Generator | None = None

    def bits(self, n: int) -> int:
        return self._random.getrandbits(n)

    def words(self, n: int) -> Words:
        if self._generator is None:
            self._generator = np.random.default_rng(self._seed)
        return self._generator.integers(0, 2**64, size=n, dtype=np.uint64)
