"""The channel of least loss: private, never above bipartite response, equal where it must be."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from mechanisms.ordinal.brr import probabilities
from mechanisms.ordinal.sizes import equidistant_size
from papers.bipartite_randomized_response import Loss, bipartite_loss, equidistant
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
    _, best = optimal_channel(equidistant(8), 0.5)
    other = bipartite_loss(8, equidistant_size(8, 0.5), 0.5) * 7
    assert best == pytest.approx(1.878, abs=5e-4)
    assert other == pytest.approx(2.258, abs=5e-4)
    assert 1 - best / other == pytest.approx(0.17, abs=5e-3)


@pytest.mark.parametrize("epsilon", [1e-6, 0.01, 0.5, 2.0, 8.0, 25.0])
@pytest.mark.parametrize("name", ["line", "sets"])
def test_it_is_private_and_never_worse(name: str, epsilon: float) -> None:
    sets = [{1}, {1, 2}, {2, 3}, {3, 4, 5}, {1, 5}, {2}]
    jaccard = tuple(tuple(1 - Fraction(len(a & b), len(a | b)) for b in sets) for a in sets)
    loss: Loss = equidistant(9) if name == "line" else jaccard
    channel, best = optimal_channel(loss, epsilon)
    assert channel.sum(axis=1) == pytest.approx(1)
    assert (
        channel.max(axis=0) <= math.exp(epsilon) * channel.min(axis=0) * (1 + 1e-6) + 1e-9
    ).all()
    least = min(bipartite(loss, size, epsilon) for size in range(1, len(loss)))
    assert best <= least * (1 + 1e-9)


def test_where_only_telling_the_truth_counts_it_is_randomized_response() -> None:
    loss = tuple(tuple(int(x != y) for y in range(5)) for x in range(5))
    high, low = probabilities(5, 1, 1.0)
    expected = np.where(np.eye(5, dtype=bool), high, low)
    assert optimal_channel(loss, 1.0)[0] == pytest.approx(expected, rel=1e-6)
