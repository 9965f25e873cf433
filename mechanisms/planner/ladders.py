"""How precise the estimates are of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

from mechanisms.ladders import Ladder
from mechanisms.number.random_threshold import ThresholdLadder
from mechanisms.number.sampled_bit import SampledBitLadder
from mechanisms.number.sampled_bits import SampledBitsLadder
from mechanisms.planner.predictions import mean_variance
from mechanisms.planner.targets import Assumed, Precision
from mechanisms.vector.coordinates import CoordinatesLadder


def precision(mechanism: Ladder, level: int, assumed: Assumed, scale: float) -> Precision:
    """Return how precise the main estimate of a level will be."""
    if isinstance(mechanism, CoordinatesLadder):
        return _of_coordinate(mechanism, level, assumed, scale)
    return _of_number(mechanism, level, assumed, scale)


def _of_number(mechanism: Ladder, level: int, assumed: Assumed, scale: float) -> Precision:
    data = "the values given" if assumed.values is not None else "the worst values"
    if isinstance(mechanism, ThresholdLadder | SampledBitLadder | SampledBitsLadder):

        def variance(n: int) -> float:
            return mean_variance(mechanism, level, assumed.values, n)

    else:
        unit = mean_variance(mechanism, level, assumed.values)

        def variance(n: int) -> float:
            return unit

    return Precision("the mean", data, variance, scale)


def _of_coordinate(
    mechanism: CoordinatesLadder, level: int, assumed: Assumed, scale: float
) -> Precision:
    from mechanisms.vector.precision import coordinate_variance

    data = "the values given" if assumed.values is not None else "the worst values"

    def variance(n: int) -> float:
        return coordinate_variance(mechanism, level, assumed.values, n)

    return Precision("the mean of a coordinate", data, variance, scale)
