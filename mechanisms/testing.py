"""Seeded randomness, for tests and simulations only.

In ``clientsdk`` and ``pipelines`` only ``clientsdk.testing`` imports this module; a test holds that
line. What it draws can be predicted by anyone who knows the seed and protects nobody.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

    from mechanisms.arrays import Words


class SeededSource:
    """A reproducible :class:`~mechanisms.randomness.Source`.

    Parameters
    ----------
    seed : int
        Equal seeds give equal draws.

    Examples
    --------
    >>> SeededSource(1).bits(64) == SeededSource(1).bits(64)
    True
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = random.Random(seed)
        self._generator: np.random.Generator | None = None

    def bits(self, n: int) -> int:
        """Return a pseudo-random integer in ``[0, 2**n)``."""
        return self._random.getrandbits(n)

    def words(self, n: int) -> Words:
        """Return ``(n,)`` pseudo-random 64-bit words."""
        import numpy as np

        if self._generator is None:
            self._generator = np.random.default_rng(self._seed)
        return self._generator.integers(0, 2**64, size=n, dtype=np.uint64)
