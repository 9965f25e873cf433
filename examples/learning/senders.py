"""What clients send about the features of their image, and what that costs them.

Duchi's and Laplace's mechanisms are float originals, for simulation: their proofs hold for real
numbers, while what floating point rounds away is certified by nobody.

References
----------
J. C. Duchi, M. I. Jordan, M. J. Wainwright, "Minimax Optimal Procedures for Locally Private
Estimation", JASA 113, 2018, section 4.2.3. C. Dwork, F. McSherry, K. Nissim, A. Smith, "Calibrating
Noise to Sensitivity in Private Data Analysis", TCC 2006.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mechanisms.frozen import frozen
from mechanisms.number.gridded import PiecewiseMechanism
from mechanisms.number.laws import contributions
from mechanisms.testing import SeededSource
from mechanisms.vector.sampled_hybrid import SampledHybrid
from mechanisms.vector.sampled_vector import SampledVector
from papers.bitrand import FeatureRandomizedResponse

#: Features of an image.
DIMENSIONS = 16
#: Bits of a feature in f-RR, and how many stand before the point: the paper's setting.
BITS, INTEGER_BITS = 10, 5

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Sender:
    """Randomizes features; what it returns is all that the server sees.

    ``nominal`` is the epsilon of the features as its paper or its user calls it, ``certified`` what
    they really cost, None where nobody has certified the sampler. ``send`` makes of ``(n, d)``
    features in [0, 1] and a seed ``(n, d)`` numbers, NaN where nothing is reported.
    """

    name: str
    nominal: float
    certified: float | None
    send: Callable[[Values, int], Values]


NO_PRIVACY = Sender("no privacy", math.inf, math.inf, lambda features, seed: features)


def published(nominal: float) -> Sender:
    """Return f-RR of BitRand: features fill its encoding's range, and are decoded as published."""
    mechanism = FeatureRandomizedResponse(nominal, DIMENSIONS, BITS, INTEGER_BITS)

    def send(features: Values, seed: int) -> Values:
        limit = mechanism.encoding.limit
        bits = mechanism.randomize((2 * features - 1) * limit, SeededSource(seed))
        return mechanism.decode(bits) / (2 * limit) + 0.5

    return Sender("f-RR, as published", nominal, mechanism.certified_epsilon, send)


def thresholds(epsilon: float) -> Sender:
    """Return some coordinates' answers at random thresholds, debiased.

    What answers at thresholds of the same bin are on average is replaced by the coordinate's mean:
    the public thresholds then add no noise of their own.
    """
    mechanism = SampledVector(epsilon, DIMENSIONS)

    def send(features: Values, seed: int) -> Values:
        n, source = len(features), SeededSource(seed)
        chains = source.words(2 * n).reshape(n, 2)
        reports = mechanism.report(features, source, chains)
        answers = (mechanism.chain.symbols(reports) - mechanism.q) / (mechanism.p - mechanism.q)
        cells = mechanism.places(mechanism.seeds(chains))
        chosen = cells // mechanism.slots
        reported = np.bincount(cells.ravel(), minlength=DIMENSIONS * mechanism.slots)
        above = np.bincount(cells.ravel(), answers.ravel(), reported.size) / np.maximum(reported, 1)
        means = above.reshape(DIMENSIONS, mechanism.slots).mean(axis=1)
        return _scattered(features, chosen, answers - above[cells] + means[chosen])

    return Sender("sampled vector", epsilon, mechanism.certified_epsilon, send)


@frozen
class SampledPiecewise(SampledHybrid):
    """Answer by the Piecewise Mechanism about a few coordinates of a vector."""

    name = "sampled_piecewise"
    number = PiecewiseMechanism


def on_grid(epsilon: float, *, piecewise: bool = False) -> Sender:
    """Return some coordinates by the Hybrid Mechanism on a grid, or by the Piecewise one.

    Of the latter max(1, min(d, ⌊ε/2.5⌋)) coordinates, as Wang et al. do.
    """
    mechanism = SampledHybrid(epsilon, DIMENSIONS)
    if piecewise:
        sampled = max(1, min(DIMENSIONS, int(epsilon / 2.5)))
        mechanism = SampledPiecewise(epsilon, DIMENSIONS, sampled)
    grid = mechanism.grid

    def send(features: Values, seed: int) -> Values:
        n, source = len(features), SeededSource(seed)
        chains = source.words(2 * n).reshape(n, 2)
        reports = mechanism.report(features, source, chains)
        exact = contributions(grid.shape, grid.laws[0]).value
        values = np.array([0.5 + float(value) for value in exact])
        chosen = mechanism.coordinates_many(mechanism.seeds(chains))
        return _scattered(features, chosen, values[mechanism.chain.symbols(reports)])

    name = "sampled Piecewise" if piecewise else "sampled Hybrid"
    return Sender(name, epsilon, mechanism.certified_epsilon, send)


def _scattered(features: Values, chosen: NDArray[np.int64], values: Values) -> Values:
    out = np.full(features.shape, np.nan)
    out[np.arange(len(features))[:, None], chosen] = values
    return out


def float_original(
    name: str, randomize: Callable[[Values, float, np.random.Generator], Values], epsilon: float
) -> Sender:
    """Return a mechanism on [-1, 1] that nobody has certified."""

    def send(features: Values, seed: int) -> Values:
        return (randomize(2 * features - 1, epsilon, np.random.default_rng(seed)) + 1) / 2

    return Sender(name, epsilon, None, send)


def laplace(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Add Laplace noise to every coordinate, each at an equal share of the epsilon."""
    scale = 2 * values.shape[1] / epsilon
    noisy: Values = values + generator.laplace(0.0, scale, values.shape)
    return noisy


def duchi(values: Values, epsilon: float, generator: np.random.Generator) -> Values:
    """Report a corner of a cube, more likely on the side of the rounded vector than opposite."""
    n, d = values.shape
    corner = np.where(generator.random((n, d)) < (1 + values) / 2, 1.0, -1.0)
    side = np.where(generator.random(n) < 1 / (1 + math.exp(-epsilon)), 1.0, -1.0)
    corner *= side[:, None]
    out = np.empty((n, d))
    waiting = np.arange(n)
    while waiting.size:
        drawn = generator.choice([-1.0, 1.0], size=(waiting.size, d))
        kept = (drawn * corner[waiting]).sum(axis=1) >= 0
        out[waiting[kept]] = drawn[kept]
        waiting = waiting[~kept]
    half = d // 2
    ties = 0 if d % 2 else math.comb(d, half) / 2
    constant = (2 ** (d - 1) + ties) / math.comb(d - 1, half)
    out *= constant / math.tanh(epsilon / 2)
    return out


def honest_senders(epsilon: float) -> list[Sender]:
    return [
        thresholds(epsilon),
        on_grid(epsilon),
        on_grid(epsilon, piecewise=True),
        float_original("Duchi", duchi, epsilon),
        float_original("Laplace", laplace, epsilon),
    ]
