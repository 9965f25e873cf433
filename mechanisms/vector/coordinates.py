"""Vectors of which a report is about some coordinates, chosen by public coins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mechanisms.errors import ParameterError, check_int
from mechanisms.frozen import frozen
from mechanisms.number.grid import check_unit, unit_array
from mechanisms.single import CoinMechanism
from mechanisms.vector.draws import DrawsLadder, coin, coin_column

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.number.results import NumericEstimates

#: A vector has at most so many coordinates, and a report at most so many answers.
MAX_DIMENSIONS, MAX_SAMPLED = 1024, 64


@frozen
class CoordinatesLadder(DrawsLadder):
    """Answers about different coordinates of a vector of ``dimensions`` numbers in [0, 1]."""

    dimensions: int

    @property
    def sampled(self) -> int:
        """Coordinates that a report is about."""
        return self.chain.count

    def coordinates(self, seed: int) -> list[int]:
        """Return the different coordinates that the coins choose, by Floyd's algorithm."""
        chosen: list[int] = []
        for place in range(self.count):
            last = self.dimensions - self.count + place
            drawn = coin(seed, place) % (last + 1)
            chosen.append(last if drawn in chosen else drawn)
        return chosen

    def values(self, symbol: Any) -> Sequence[float]:
        """Return the numbers of a vector, after a check."""
        if not (isinstance(symbol, (tuple, list)) and len(symbol) == self.dimensions):
            raise ParameterError(f"a vector must be a tuple of {self.dimensions} numbers")
        for value in symbol:
            check_unit(value, missing=False)
        return symbol

    def coordinates_many(self, seeds: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Vectorised :meth:`coordinates`: ``(n, sampled)``."""
        import numpy as np

        chosen = np.empty((len(seeds), self.count), dtype=np.int64)
        for place in range(self.count):
            last = self.dimensions - self.count + place
            drawn = (coin_column(seeds, place) % np.uint64(last + 1)).astype(np.int64)
            taken = (chosen[:, :place] == drawn[:, None]).any(axis=1)
            chosen[:, place] = np.where(taken, last, drawn)
        return chosen

    def columns(self, symbols: Any, seeds: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the chosen coordinates of ``(n, dimensions)`` numbers: ``(n, sampled)``."""
        import numpy as np

        values = unit_array(symbols, missing=False)[0]
        if not len(values):
            values = values.reshape(0, self.dimensions)
        if values.ndim != 2 or values.shape[1] != self.dimensions:
            raise ParameterError(f"vectors must have shape (n, {self.dimensions})")
        return np.take_along_axis(values, self.coordinates_many(seeds), axis=1)


@frozen
class CoordinatesMechanism(CoinMechanism):
    """A mechanism for vectors at a single epsilon, whose ladder is a :class:`CoordinatesLadder`."""

    def estimate(
        self, counts: ArrayLike, low: float = 0.0, high: float = 1.0
    ) -> tuple[NumericEstimates, ...]:
        """Estimate each coordinate; see :func:`mechanisms.vector.means.vector_estimates`."""
        import numpy as np

        from mechanisms.vector.means import VECTOR_LADDERS, vector_estimates

        ladder = self.ladder
        assert isinstance(ladder, VECTOR_LADDERS)
        return vector_estimates(ladder, np.asarray(counts)[np.newaxis], low, high)


def check_dimensions(dimensions: int, sampled: int) -> None:
    """Refuse a number of coordinates outside [1, 1024], or of sampled ones outside [1, 64].

    Raises
    ------
    ParameterError
        Also where more coordinates are sampled than there are.
    """
    check_int("dimensions", dimensions, 1, MAX_DIMENSIONS)
    most = min(dimensions, MAX_SAMPLED)
    check_int("sampled", sampled, 1, most)
