"""The channel of least loss: certified, never above bipartite response, equal where it must be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain
from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro
from mechanisms.ordinal.brr import probabilities
from mechanisms.ordinal.sizes import Loss, equidistant, equidistant_size
from papers.bipartite_randomized_response import bipartite_loss
from papers.extremal_mechanisms import optimal_channel


def bipartite(loss: Loss, size: int, epsilon: float) -> float:
    high, low = probabilities(len(loss), size, epsilon)
    windows = [sorted(range(len(row)), key=row.__getitem__)[:size] for row in loss]
    terms = (
        float(cost) * (high if y in window else low)
        for row, window in zip(loss, windows, strict=True)
        for y, cost in enumerate(row)
    )
    return math.fsum(terms) / len(loss)


def test_it_beats_bipartite_response_by_a_sixth() -> None:
    best = optimal_channel(equidistant(8), 0.5)
    other = bipartite_loss(8, equidistant_size(8, 0.5), 0.5) * 7
    assert best.loss == pytest.approx(1.878, abs=5e-4)
    assert other == pytest.approx(2.258, abs=5e-4)
    assert 1 - best.loss / other == pytest.approx(0.17, abs=5e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 2.0, 8.0, 25.0])
@pytest.mark.parametrize("name", ["line", "sets"])
def test_it_is_certified_and_never_worse(name: str, epsilon: float) -> None:
    sets = [{1}, {1, 2}, {2, 3}, {3, 4, 5}, {1, 5}, {2}]
    jaccard = tuple(tuple(1 - Fraction(len(a & b), len(a | b)) for b in sets) for a in sets)
    loss: Loss = equidistant(9) if name == "line" else jaccard
    best = optimal_channel(loss, epsilon)
    ratio = FiniteChain(best.draw).ratio(0)
    assert ratio <= exp_micro(best.nominal)[0]
    assert best.certified <= best.nominal == round(epsilon * 1e6)
    least = min(bipartite(loss, size, epsilon) for size in range(1, len(loss)))
    assert best.bound <= least * (1 + 1e-9)
    assert best.loss == pytest.approx(best.bound, rel=1e-6)


def test_where_only_telling_the_truth_counts_it_is_randomized_response() -> None:
    loss = tuple(tuple(int(x != y) for y in range(5)) for x in range(5))
    best = optimal_channel(loss, 1.0)
    high, low = probabilities(5, 1, 1.0)
    expected = np.where(np.eye(5, dtype=bool), high, low)
    assert FiniteChain(best.draw).matrix(0) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("points", "epsilon", "prior"),
    [(1, 1.0, None), (129, 1.0, None), (3, 0.0, None), (3, 41.0, None), (3, 1.0, [0.5, 0.4, 0.2])],
)
def test_bad_parameters_are_refused(points: int, epsilon: float, prior: list[float] | None) -> None:
    with pytest.raises(ParameterError):
        optimal_channel(equidistant(points), epsilon, prior)
