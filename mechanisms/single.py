"""Mechanisms at a single epsilon: frozen values that randomize, count and know their loss.

Each is a ladder of one level, so that what is released once and what is relaxed is the same code.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, to_micro
from mechanisms.frozen import frozen, types_of
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.base import Mechanism

#: The types of parameters, as they are declared: a bool is no int, and a truth is a bool.
_KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "int | None": (int, type(None)),
    "bool": (bool,),
    "str": (str,),
}


@frozen
class SingleLevel(ABC):
    """What all mechanisms at a single epsilon have in common.

    Parameters
    ----------
    epsilon : float
        The nominal amount; digits beyond the sixth are dropped.
    """

    epsilon: float

    def __post_init__(self) -> None:
        self._check_types()
        # It refuses what no ladder can honour.
        self.ladder  # noqa: B018

    @cached_property
    def ladder(self) -> Mechanism:
        """The ladder whose only level is this mechanism."""
        return self._build(to_micro(self.epsilon))

    def _check_types(self) -> None:
        """Refuse parameters that are not exactly of their type, before anything is computed."""
        for name, declared in types_of(type(self)).items():
            kinds, value = _KINDS.get(declared), getattr(self, name)
            if kinds and type(value) not in kinds:
                raise ParameterError(f"{name} must be of type {declared}, not {value!r}")

    @abstractmethod
    def _build(self, micro: int) -> Mechanism:
        """Return the ladder whose only level is this mechanism."""

    @property
    def certified(self) -> int:
        """The worst-case loss from the realised probabilities, in micro-epsilon, rounded up."""
        return self.ladder.certified(0)

    @property
    def certified_epsilon(self) -> float:
        """The same, as an epsilon; the float is never below the exact amount."""
        epsilon = self.certified / MICRO
        if Fraction(epsilon) < Fraction(self.certified, MICRO):
            epsilon = math.nextafter(epsilon, math.inf)
        return epsilon

    @property
    def p(self) -> float:
        """Probability of the true answer (of the first bit: that a 1 is reported as 1)."""
        return self.ladder.probabilities(0)[0][0]

    @property
    def q(self) -> float:
        """Probability of a given other answer (of the first bit: that a 0 is reported as 1)."""
        return self.ladder.probabilities(0)[0][1]


@frozen
class SymbolMechanism(SingleLevel):
    """A mechanism for one of several symbols; it needs no public coin."""

    def randomize(self, values: ArrayLike, source: Source) -> NDArray[np.uint8]:
        """Randomize symbols.

        Parameters
        ----------
        values : array_like, shape (n,), integers
            From 0 to below the number of symbols (``domain_size``, ``points``).
        source : Source

        Returns
        -------
        ndarray, shape (n, payload_width), uint8
            A packed report a row, as it goes on the wire.
        """
        import numpy as np

        ids = np.zeros((np.size(values), 2), dtype=np.uint64)
        return self.ladder.randomize(values, ids, ids, source)[:, 0]

    def count(self, reports: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Count ``(n, payload_width)`` reports: ``(count_length,)`` ``int64``, which add up."""
        import numpy as np

        return _count(self.ladder, reports, np.zeros((len(reports), 2), dtype=np.uint64))


def _count(
    ladder: Mechanism, reports: NDArray[np.uint8], ids: NDArray[np.uint64]
) -> NDArray[np.int64]:
    import numpy as np

    groups = np.zeros(len(reports), dtype=np.int64)
    return ladder.accumulate(reports, ids, ids, groups, 1).reshape(-1)
