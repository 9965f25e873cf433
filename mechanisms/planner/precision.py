"""How precise the estimates of a rung will be with so many reports, whatever the mechanism.

All variances come from realised probabilities. Values are fixed and the randomization is random;
all reports are of one rung, and no value is missing. What is not said of the data is assumed to be
as bad as it can be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.ladders import Ladder
from mechanisms.number.random_threshold import ThresholdLadder
from mechanisms.number.sampled_bit import SampledBitLadder
from mechanisms.number.sampled_bits import SampledBitsLadder
from mechanisms.ordinal.brr import BrrLadder
from mechanisms.planner.predictions import mean_variance
from mechanisms.planner.targets import Assumed, Precision, of_share
from mechanisms.survey.ladders import SurveyLadder
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder
from mechanisms.top_item.top_response import TopResponseLadder
from mechanisms.vector.coordinates import CoordinatesLadder

if TYPE_CHECKING:
    from mechanisms.base import Mechanism


def precision(
    mechanism: Mechanism,
    level: int,
    assumed: Assumed | None = None,
    *,
    scale: float = 1.0,
) -> Precision:
    """Return how precise the main estimate of a rung will be.

    Parameters
    ----------
    mechanism : Mechanism
    level : int
    assumed : Assumed, optional
        By default the worst of all data.
    scale : float
        The length of the range, of a number, an ordinal value or a coordinate.

    Returns
    -------
    Precision
        Of the share of a category, of yes, of a candidate string or of the devices whose most
        frequent item it is; of the mean of a number or of a coordinate; of ordinal values that of
        the wider of the two bounds of the mean.

    Raises
    ------
    ParameterError
        The level is no rung, the filters of candidate strings cannot be told apart, or nothing
        can be said of the mechanism.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> grr = build({"name": "grr", "domain_size": 4}, [1_000_000, 2_000_000], "colour")
    >>> rare = precision(grr, 1, Assumed(share=0.01))
    >>> round(rare.width(10_000), 4), rare.reports("width", 0.02)
    (0.0189, 8957)
    >>> round(rare.floor(10_000), 4)
    0.0135
    """
    if not 0 <= level < mechanism.levels:
        raise ParameterError(f"level must lie in [0, {mechanism.levels}), not {level}")
    told = assumed or Assumed()
    if not isinstance(mechanism, Ladder):
        return mechanism.precision(level, told, scale)
    if isinstance(mechanism, SurveyLadder):
        part = mechanism.contributions[level]
        return of_share("the share of yes", (part.no, part.yes), told)
    if isinstance(mechanism, CoordinatesLadder):
        return _of_coordinate(mechanism, level, told, scale)
    if isinstance(mechanism, BrrLadder):
        return ordinal_mean(mechanism, level, told, scale=scale)
    if isinstance(mechanism, PermuteAndFlipLadder):
        raise ParameterError(
            "what permute_and_flip selects is near the most frequent item by chance, so that the "
            "error of its shares depends on the counts and is not predicted; top_response's is"
        )
    if isinstance(mechanism, TopResponseLadder):
        what = "the share of devices whose most frequent item it is"
        p, q = mechanism.probabilities(level)[0]
        return of_share(what, (share_variance(p, q, 0.0), share_variance(p, q, 1.0)), told)
    return _of_number(mechanism, level, told, scale)


def _of_number(mechanism: Mechanism, level: int, assumed: Assumed, scale: float) -> Precision:
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


def ordinal_mean(
    mechanism: Mechanism,
    level: int,
    assumed: Assumed | None = None,
    *,
    scale: float = 1.0,
) -> Precision:
    """Return how precise the bounds of the mean of ordinal values will be: the wider of the two.

    Parameters
    ----------
    mechanism : Mechanism
        ``brr`` or ``grr``.
    level : int
    assumed : Assumed, optional
        ``values`` are points in [0, 1].
    scale : float
        The length of the range.
    """
    from mechanisms.ordinal.precision import mean_bound_variance

    told = assumed or Assumed()
    unit = mean_bound_variance(mechanism, level, told.values)
    data = "the values given" if told.values is not None else "the worst values"
    return Precision("a bound of the mean", data, lambda n: unit, scale)
