"""How precise the estimates are of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.ladders import Ladder
from mechanisms.planner.targets import Assumed, Precision, of_share
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder
from mechanisms.top_item.top_response import TopResponseLadder


def precision(mechanism: Ladder, level: int, assumed: Assumed, scale: float) -> Precision:
    """Return how precise the main estimate of a level will be."""
    if isinstance(mechanism, PermuteAndFlipLadder):
        raise ParameterError(
            "what permute_and_flip selects is near the most frequent item by chance, so that the "
            "error of its shares depends on the counts and is not predicted; top_response's is"
        )
    assert isinstance(mechanism, TopResponseLadder)
    what = "the share of devices whose most frequent item it is"
    p, q = mechanism.probabilities(level)[0]
    return of_share(what, (share_variance(p, q, 0.0), share_variance(p, q, 1.0)), assumed)
