"""How precise the estimates are of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.ladders import Ladder
from mechanisms.number.random_threshold import ThresholdLadder
from mechanisms.number.sampled_bit import SampledBitLadder
from mechanisms.number.sampled_bits import SampledBitsLadder
from mechanisms.planner.predictions import mean_variance
from mechanisms.planner.targets import Assumed, Precision, of_share
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder
from mechanisms.top_item.top_response import TopResponseLadder
from mechanisms.vector.coordinates import CoordinatesLadder


def precision(mechanism: Ladder, level: int, assumed: Assumed, scale: float) -> Precision:
    """Return how precise the main estimate of a level will be."""
    if isinstance(mechanism, CoordinatesLadder):
        return _of_coordinate(mechanism, level, assumed, scale)
    if isinstance(mechanism, PermuteAndFlipLadder):
        raise ParameterError(
            "what permute_and_flip selects is near the most frequent item by chance, so that the "
            "error of its shares depends on the counts and is not predicted; top_response's is"
        )
    if isinstance(mechanism, TopResponseLadder):
        what = "the share of devices whose most frequent item it is"
        p, q = mechanism.probabilities(level)[0]
        return of_share(what, (share_variance(p, q, 0.0), share_variance(p, q, 1.0)), assumed)
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
