"""What the exponential mechanism and permute-and-flip share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import fsum

from mechanisms.errors import ParameterError
from mechanisms.exact import to_micro
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.top_item.scores import Thresholds


@frozen
class SelectionMechanism(ABC):
    """A private selection of one of several items by their scores.

    Parameters
    ----------
    epsilon : float
        In [1e-6, 40], the nominal amount; digits beyond the sixth are dropped.
    sensitivity : int
        At least 1, Δ: neighbours change each score by at most this.
    monotone : bool
        Whether neighbours change all scores in the same direction, as counts of records do.
    """

    epsilon: float
    sensitivity: int = 1
    monotone: bool = False

    def __post_init__(self) -> None:
        whole = isinstance(self.sensitivity, int) and not isinstance(self.sensitivity, bool)
        if not (whole and self.sensitivity >= 1):
            raise ParameterError(
                f"sensitivity must be an integer of at least 1, not {self.sensitivity!r}"
            )
        self.thresholds  # noqa: B018 - checks epsilon

    @cached_property
    def thresholds(self) -> Thresholds:
        """The integer thresholds from which it is drawn."""
        span = self.sensitivity * (1 if self.monotone else 2)
        return Thresholds(to_micro(self.epsilon), span)

    @property
    def certified(self) -> int:
        """The loss in micro-epsilon that the realised thresholds are proved not to exceed."""
        return self.thresholds.micro

    @abstractmethod
    def pmf(self, scores: Sequence[float]) -> list[float]:
        """Return the ideal probabilities of the items, ``(n,)``, of any real scores."""

    @abstractmethod
    def exact_pmf(self, scores: Sequence[int]) -> tuple[Fraction, ...]:
        """Return the exact probabilities with which :meth:`select` draws, of integer scores."""

    @abstractmethod
    def select(self, scores: Sequence[int], source: Source) -> int:
        """Return the place of an item, drawn in integers, of integer scores."""

    def expected_error(self, scores: Sequence[float]) -> float:
        """Return by how much the selected score is below the best on average."""
        return expected_error(scores, self.pmf(scores))


def expected_error(scores: Sequence[float], law: Sequence[float]) -> float:
    """Return the mean distance from the best score under a law."""
    best = max(scores)
    return fsum((best - score) * p for score, p in zip(scores, law, strict=True))
