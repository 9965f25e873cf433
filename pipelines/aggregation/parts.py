"""Into how many parts the state of a budget period is cut, by the shards of its pseudonyms.

What a part costs in a run is nearly the same for one report as for a thousand: few reports over
many periods want few parts. Parts bound what is held in memory at once, and what workers do side
by side: many chains want many. So a period gets its number when reports of it first come, by how
large the run is and how many chains the periods before had; it keeps that number for ever.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

#: Chains that a part is expected to have, at most.
CHAINS = 1 << 18


def parts_for(chains: Iterable[int], shards: int) -> int:
    """Return the number of parts for a period of which reports come for the first time.

    Parameters
    ----------
    chains : iterable of int
        How many it may have: reports of the run, chains of other periods. The most counts.
    shards : int
        At most so many parts.

    Examples
    --------
    >>> parts_for([0], 64), parts_for([CHAINS, 5], 64), parts_for([5 * CHAINS], 64)
    (1, 1, 8)
    >>> parts_for([1000 * CHAINS], 64)
    64
    """
    wanted = -(-max(chains) // CHAINS)
    return min(1 << max(wanted - 1, 0).bit_length(), shards)


@dataclass(frozen=True)
class Parts:
    """The numbers of parts of budget periods.

    Parameters
    ----------
    known : mapping
        Period to its number.
    new : int
        The number of all other periods.
    """

    known: Mapping[int, int]
    new: int

    def of(self, period: int) -> int:
        """Return how many parts a period has."""
        return self.known.get(period, self.new)

    def part_of(self, shard: int, period: int) -> int:
        """Return the part of a period that a shard is in."""
        return shard % self.of(period)

    def place(self, shards: NDArray[np.int64], periods: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return :meth:`part_of` of each of many."""
        numbers = np.full(len(periods), self.new, dtype=np.int64)
        for period, number in self.known.items():
            if number != self.new:
                numbers[periods == period] = number
        placed: NDArray[np.int64] = shards % numbers
        return placed
