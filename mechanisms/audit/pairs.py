"""The two inputs that an attack tells apart: a pair with the largest loss.

Where several pairs have it, one that an attack tells apart often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import nan
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.base import Mechanism
from mechanisms.chains.finite import FiniteChain
from mechanisms.ladders import Ladder
from mechanisms.number.gridded import GridLadder
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.randomness import Source
from mechanisms.sampling import some_below, uniform_below
from mechanisms.string.rappor import RapporLadder
from mechanisms.survey.ladders import SurveyLadder
from mechanisms.top_item.top_item import TopItemLadder
from mechanisms.vector.coordinates import CoordinatesLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: The device that is attacked; from this comes its cohort.
NAME = bytes(16)
#: Names of strings that are tried for disjoint filters without a collision.
_TRIED = 64
#: Inputs of a finite channel of which all pairs are tried, both ends among them.
_ROWS = 100


@dataclass(frozen=True)
class Pair:
    """Two values as ``draw`` takes them, and the pseudonym under which they are recorded."""

    values: tuple[Any, Any]
    name: bytes = NAME

    def column(self, secrets: NDArray[np.bool_]) -> Any:
        """Return the second value where the secret is set, as ``randomize`` takes a column."""
        return column_of(self.values, secrets.astype(int))


def column_of(values: Sequence[Any], places: NDArray[np.int64]) -> Any:
    """Return ``values[place]`` for each place, as ``randomize`` takes a column."""
    import numpy as np

    if any(isinstance(value, bytes) for value in values):
        return [values[place] for place in places.tolist()]
    return np.array([nan if value is None else value for value in values])[places]


def worst_pair(mechanism: Mechanism, level: int = -1) -> Pair:
    """Return two inputs that have the loss for which a rung, the last by default, is certified.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> worst_pair(build({"name": "threshold", "missing": False}, [1_000_000], "delay")).values
    (0.0, 1.0)
    """
    if not isinstance(mechanism, Ladder):
        return Pair(mechanism.worst_inputs(level))
    if isinstance(mechanism, TopItemLadder):
        rest = mechanism.domain_size - 2
        if mechanism.name == "permute_and_flip":
            return Pair(((mechanism.clip, 0, *[0] * rest), (0, *[mechanism.clip] * (rest + 1))))
        return Pair(((mechanism.clip, 0, *[0] * rest), (0, mechanism.clip, *[0] * rest)))
    if isinstance(mechanism, CoordinatesLadder):
        return Pair(((0.0,) * mechanism.dimensions, (1.0,) * mechanism.dimensions))
    if isinstance(mechanism, RapporLadder):
        return _strings(mechanism)
    if isinstance(mechanism, GridLadder):
        return Pair(_grid_values(mechanism, level))
    if isinstance(mechanism, SplitBitsLadder) and mechanism.missing:
        return Pair((None, 1.0))
    chain = getattr(mechanism, "chain", None)
    if isinstance(chain, FiniteChain) and not isinstance(mechanism, SurveyLadder):
        return Pair(_inputs(chain, level))
    whole = isinstance(mechanism, SurveyLadder) or hasattr(mechanism, "domain_size")
    return Pair((0, 1) if whole else (0.0, 1.0))


def _inputs(chain: FiniteChain, level: int) -> tuple[int, int]:
    """Return the pair of which the most outputs say nearly the largest ratio, then the farthest."""
    import numpy as np

    matrix = chain.matrix(level % chain.levels)
    # Outputs that no input has say nothing.
    matrix = matrix[:, matrix.max(axis=0) > 0]
    logs = np.log(matrix)
    largest = float((logs.max(axis=0) - logs.min(axis=0)).max())

    def told(pair: tuple[int, int]) -> tuple[float, int]:
        one, other = pair
        far = np.abs(logs[one] - logs[other]) > 0.999 * largest
        return round(float((matrix[one] + matrix[other])[far].sum()), 6), other - one

    distinct = np.sort(np.unique(matrix, axis=0, return_index=True)[1])
    some = np.linspace(0, len(distinct) - 1, min(len(distinct), _ROWS)).astype(int)
    one, other = max(combinations(distinct[some].tolist(), 2), key=told)
    return one, other


def _grid_values(mechanism: GridLadder, level: int) -> tuple[float | None, float | None]:
    steps = mechanism.shape.steps
    one, other = _inputs(mechanism.chain, level)
    values = [None if place > steps else place / steps for place in (one, other)]
    return values[0], values[1]


def _strings(mechanism: RapporLadder) -> Pair:
    """Return strings whose filters differ most, in the cohort of the device."""
    cohort = coins.hash_id(NAME, coins.cohort_domain(mechanism.metric)) % mechanism.cohorts
    strings: dict[int, bytes] = {}
    for number in range(_TRIED):
        string = f"string {number}".encode()
        strings.setdefault(mechanism.filter_of(string, cohort), string)
    if len(strings) == 1:
        return Pair((b"one", b"other"))
    one, other = max(combinations(strings, 2), key=lambda pair: (pair[0] ^ pair[1]).bit_count())
    return Pair((strings[one], strings[other]))


def some_inputs(mechanism: Mechanism, count: int, source: Source) -> list[Any]:
    """Return different inputs, all of them where there are no more than ``count``, else at random.

    Strings and counts of items are random; vectors have coordinates 0 and 1; numbers lie on the
    mechanism's own grid, both ends and a missing value among them.

    Parameters
    ----------
    mechanism : Mechanism
    count : int, at least 4
    source : Source

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> from mechanisms.testing import SeededSource
    >>> grr = build({"name": "grr", "domain_size": 3}, [1_000_000], "colour")
    >>> some_inputs(grr, 8, SeededSource(1))
    [0, 1, 2]
    """
    if not isinstance(mechanism, Ladder):
        return list(mechanism.some_inputs(count, source))
    known: Any = mechanism
    if isinstance(mechanism, RapporLadder):
        return [b"%016x" % source.bits(64) for _ in range(count)]
    if isinstance(mechanism, TopItemLadder):
        return [_items(mechanism, source) for _ in range(count)]
    if isinstance(mechanism, CoordinatesLadder):
        masks = some_below(1 << mechanism.dimensions, count, source)
        places = range(mechanism.dimensions)
        return [tuple(float(mask >> place & 1) for place in places) for mask in masks]
    if isinstance(mechanism, SurveyLadder):
        return [0, 1]
    if isinstance(getattr(known, "domain_size", None), int):
        inputs = known.chain.inputs if isinstance(known.chain, FiniteChain) else known.domain_size
        return list(some_below(inputs, count, source))
    missing = [None] if getattr(known, "missing", False) else []
    steps = _steps(mechanism)
    numbers = {0, steps, *some_below(steps + 1, count - 2 - len(missing), source)}
    return [number / steps for number in sorted(numbers)] + missing


def _items(mechanism: TopItemLadder, source: Source) -> tuple[int, ...]:
    return tuple(uniform_below(mechanism.clip + 1, source) for _ in range(mechanism.domain_size))


def _steps(mechanism: Mechanism) -> int:
    """Return the steps of a mechanism's grid of numbers, many where it has none."""
    if isinstance(mechanism, GridLadder):
        return mechanism.shape.steps
    bits = getattr(mechanism, "bits", None)
    return (1 << bits) - 1 if isinstance(bits, int) else 1 << 32
