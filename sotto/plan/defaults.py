"""Parameters of mechanisms that need not be written: they follow from the metric."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

from mechanisms.exact import MICRO
from mechanisms.ordinal.brr import best_subset_size as best_window
from mechanisms.registry import mechanism_class
from mechanisms.survey.christofides import cards_of
from mechanisms.vector.coordinates import MAX_DIMENSIONS, MAX_SAMPLED
from mechanisms.vector.optimum import optimal_sampled
from mechanisms.vector.sampled_hybrid import optimal_sampled_hybrid
from sotto.plan.types import Parameter

#: Points of the grid on which a coordinate of a vector is hidden.
VECTOR_POINTS = 33
#: Parameters that the metric itself tells, for those mechanisms that have them.
_TOLD = frozenset({"domain_size", "missing", "clip", "dimensions"})


class Asked(NamedTuple):
    """What a metric says of the mechanism that it needs.

    Parameters
    ----------
    kind : str
        The metric's type.
    given : mapping
        What the metric tells of its mechanism's parameters.
    ladder : tuple of int
        Nominal micro-epsilon, weakest first.
    metric : str
        Its name.
    constant : bool
        Whether the last rung is a permanent response.
    counts : int or None
        How long a count vector may be, for all that are open at a time to fit.
    """

    kind: str
    given: Mapping[str, Parameter]
    ladder: tuple[int, ...]
    metric: str
    constant: bool = False
    counts: int | None = None

    @property
    def level(self) -> int:
        """The last rung that is sent."""
        return len(self.ladder) - 1 - self.constant

    @property
    def epsilon(self) -> float:
        """Nominal epsilon of that rung, 0 if there is none."""
        return self.ladder[self.level] / MICRO if self.level >= 0 else 0.0

    def number(self, name: str) -> int:
        """Return a parameter that is a whole number."""
        value = self.given[name]
        assert isinstance(value, int)
        return value


def spec_of(
    name: str, asked: Asked, written: Mapping[str, Parameter] | None = None
) -> dict[str, Parameter]:
    """Return a mechanism of the registry with all its parameters.

    Parameters
    ----------
    name : str
        In the registry.
    asked : Asked
    written : mapping, optional
        Parameters in the plan; one that is none of the mechanism's stays, so that it is refused.

    Examples
    --------
    >>> asked = Asked("category", {"domain_size": 5, "missing": False}, (1_000_000,), "colour")
    >>> spec_of("grr", asked)
    {'name': 'grr', 'domain_size': 5}
    """
    kind = mechanism_class(name)
    fields = kind.parameters()
    known = {key: value for key, value in asked.given.items() if key in fields or key not in _TOLD}
    known |= written or {}
    left = set(fields) - set(known)
    if name not in _DEFAULTS and left:
        micro = asked.ladder[asked.level] if asked.level >= 0 else 0
        known |= {key: made for key, made in kind.defaults(micro, known).items() if key in left}
    for key, default in _DEFAULTS.get(name, {}).items():
        if key in left:
            known[key] = default(asked)
    return {"name": name, **known}


def _sampled(asked: Asked) -> int:
    """Return how many coordinates of a vector a report is best about."""
    dimensions = asked.number("dimensions")
    if not (1 <= dimensions <= MAX_DIMENSIONS and asked.epsilon > 0):
        return 1
    return min(optimal_sampled(dimensions, asked.epsilon), MAX_SAMPLED)


def _sampled_on_grid(asked: Asked) -> int:
    """Return the same where each is hidden on a grid."""
    dimensions = asked.number("dimensions")
    if not (1 <= dimensions <= MAX_DIMENSIONS and asked.epsilon > 0):
        return 1
    return optimal_sampled_hybrid(dimensions, asked.ladder[asked.level], VECTOR_POINTS)


def _favoured(asked: Asked) -> int:
    """Return how many candidates bipartite randomized response favours at that rung."""
    points = asked.number("domain_size") - asked.number("missing")
    if not (points > 2 and asked.epsilon > 0):
        return 1
    return best_window(points, asked.ladder[asked.level])


def _cards(asked: Asked) -> tuple[int, ...]:
    """Return three cards that reach the ladder's last epsilon, one in a hundred in the middle."""
    if not asked.ladder or asked.ladder[-1] <= 0:
        return (1, 1, 1)
    return cards_of(Fraction(asked.ladder[-1], MICRO), Fraction(1, 100))


#: Points of the grid on which a number is hidden.
_POINTS: Mapping[str, Callable[[Asked], Parameter]] = {"points": lambda asked: 65}
_DEFAULTS: Mapping[str, Mapping[str, Callable[[Asked], Parameter]]] = {
    "brr": {"subset_size": _favoured},
    "sampled_vector": {"sampled": _sampled, "bits": lambda asked: 0},
    "sampled_hybrid": {"sampled": _sampled_on_grid, "points": lambda asked: VECTOR_POINTS},
    "piecewise": _POINTS,
    "hybrid": _POINTS,
    "square_wave": _POINTS,
    "simmons": {"unrelated": lambda asked: 50},
    "christofides": {"cards": _cards},
}
