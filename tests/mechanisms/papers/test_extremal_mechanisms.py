"""The channel of least loss: certified, never above bipartite response, equal where it must be."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mechanisms.chains.finite import FiniteChain
from mechanisms.errors import ParameterError
from mechanisms.exact import exp_micro
from mechanisms.ordinal.brr import equidistant_windows, probabilities, windows_of
from mechanisms.ordinal.losses import Loss, equidistant, jaccard
from mechanisms.ordinal.search import equidistant_size
from mechanisms.papers.bipartite_randomized_response import bipartite_loss
from mechanisms.papers.extremal_mechanisms import best_bipartite_size, optimal_channel


def bipartite(loss: Loss, size: int, epsilon: float) -> float:
    high, low = probabilities(len(loss), size, epsilon)
    windows = windows_of(loss, size)
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
    loss = equidistant(9) if name == "line" else jaccard(sets)
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


def test_a_prior_decides_what_is_best() -> None:
    prior = [0.7, 0.1, 0.1, 0.1]
    informed = optimal_channel(equidistant(4), 0.3, prior)
    shares = np.array(prior)[:, None] * np.array(equidistant(4))
    plain = FiniteChain(optimal_channel(equidistant(4), 0.3).draw).matrix(0)
    assert informed.loss < float((shares * plain).sum()) - 0.01
    assert informed.certified <= 300_000


def test_the_best_size_within_bipartite_response() -> None:
    for points in (2, 5, 12, 20):
        for epsilon in (1e-9, 0.3, 1.0, 3.0, 300.0):
            losses = [bipartite_loss(points, m, epsilon) for m in range(1, points)]
            size = best_bipartite_size(equidistant(points), epsilon)
            assert losses[size - 1] == pytest.approx(min(losses), rel=1e-12)


def test_what_the_search_loses_to_the_best_size() -> None:
    worst: dict[float, tuple[float, int]] = {}
    for epsilon in (0.25, 1.0, 5.0):
        found = []
        for points in range(2, 60):
            size = equidistant_size(points, epsilon)
            least = min(bipartite_loss(points, m, epsilon) for m in range(1, points))
            found.append((1 - least / bipartite_loss(points, size, epsilon), points))
        worst[epsilon] = max(found)
    assert [points for _, points in worst.values()] == [4, 5, 26]
    assert [lost for lost, _ in worst.values()] == pytest.approx([0.0089, 0.0326, 0.1257], abs=1e-4)
    direct = [bipartite(equidistant(26), size, 5.0) / 25 for size in (1, 3)]
    assert 1 - direct[1] / direct[0] == pytest.approx(worst[5.0][0], rel=1e-9)


@pytest.mark.parametrize(
    ("points", "epsilon", "prior"),
    [(1, 1.0, None), (129, 1.0, None), (3, 0.0, None), (3, 41.0, None), (3, 1.0, [0.5, 0.4, 0.2])],
)
def test_bad_parameters_are_refused(points: int, epsilon: float, prior: list[float] | None) -> None:
    with pytest.raises(ParameterError):
        optimal_channel(equidistant(points), epsilon, prior)


def test_windows_of_the_line_are_the_windows() -> None:
    assert windows_of(equidistant(7), 3) == equidistant_windows(7, 3)
