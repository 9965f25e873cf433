"""What clients send about the features of their image, and what that costs them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from examples.learning import peers
from examples.learning.data import DIMENSIONS
from mechanisms.exact import MICRO, to_micro
from mechanisms.number.contributions import contributions
from mechanisms.number.gridded import piecewise_ladder
from mechanisms.papers.bitrand import FeatureRandomizedResponse
from mechanisms.testing import SeededSource
from mechanisms.vector.sampled_hybrid import (
    SampledHybrid,
    SampledHybridLadder,
    over_coordinates,
)
from mechanisms.vector.sampled_vector import SampledVector, SampledVectorLadder

#: Bits of a feature in f-RR, and how many stand before the point: the paper's setting.
BITS, INTEGER_BITS = 10, 5


class Sender(Protocol):
    """Randomizes features; what it returns is all that the server sees."""

    @property
    def name(self) -> str:
        """As the table calls it."""
        ...

    @property
    def nominal(self) -> float:
        """The epsilon of the features as its paper or its user calls it."""
        ...

    @property
    def certified(self) -> float | None:
        """What the features really cost, or None where nobody has certified the sampler."""
        ...

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return ``(n, d)`` numbers for features in [0, 1]; NaN where nothing is said."""
        ...


@dataclass(frozen=True)
class Open:
    """No privacy at all."""

    name: str = "no privacy"
    nominal: float = math.inf
    certified: float | None = math.inf

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return the features."""
        return features


@dataclass(frozen=True)
class Published:
    """f-RR of BitRand: features fill the range of its encoding, and are decoded as published."""

    nominal: float
    name: str = "f-RR, as published"

    @property
    def mechanism(self) -> FeatureRandomizedResponse:
        """The randomizer of all features together."""
        return FeatureRandomizedResponse(self.nominal, DIMENSIONS, BITS, INTEGER_BITS)

    @property
    def certified(self) -> float | None:
        """The worst case over all bits."""
        return self.mechanism.certified_epsilon

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return the decoded bits."""
        mechanism = self.mechanism
        limit = mechanism.encoding.limit
        bits = mechanism.randomize((2 * features - 1) * limit, SeededSource(seed))
        return mechanism.decode(bits) / (2 * limit) + 0.5


@dataclass(frozen=True)
class Thresholds:
    """Some coordinates against random thresholds."""

    nominal: float
    name: str = "sampled vector"

    @property
    def mechanism(self) -> SampledVector:
        """The randomizer of all features together."""
        return SampledVector(self.nominal, DIMENSIONS)

    @property
    def certified(self) -> float | None:
        """The exact product of the likelihood ratios of its answers."""
        return self.mechanism.certified_epsilon

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return unbiased features, from debiased answers: above the threshold or not.

        What answers at thresholds of the same bin say on average is taken from each, and the
        coordinate's mean is added: the public thresholds then add no noise of their own.
        """
        ladder = self.mechanism.ladder
        assert isinstance(ladder, SampledVectorLadder)
        n, source = len(features), SeededSource(seed)
        chains = source.words(2 * n).reshape(n, 2)
        reports = self.mechanism.randomize(features, chains, source)
        [(p, q)] = ladder.probabilities(0)
        answers = (ladder.answers(reports) - q) / (p - q)
        seeds = ladder.seeds(chains)
        chosen = ladder.coordinates_many(seeds)
        cells = chosen * ladder.slots + ladder.places(seeds)
        reported = np.bincount(cells.ravel(), minlength=DIMENSIONS * ladder.slots)
        sums = np.bincount(cells.ravel(), answers.ravel(), reported.size)
        above = sums / np.maximum(reported, 1)
        means = above.reshape(DIMENSIONS, ladder.slots).mean(axis=1)
        out = np.full(features.shape, np.nan)
        out[np.arange(n)[:, None], chosen] = answers - above[cells] + means[chosen]
        return out


@dataclass(frozen=True)
class OnGrid:
    """Some coordinates by a mechanism on a grid: the Hybrid one, or the Piecewise one.

    The number of coordinates is the best one for the Hybrid Mechanism; for the Piecewise it is that
    of Wang et al., max(1, min(d, ⌊ε/2.5⌋)).
    """

    nominal: float
    name: str

    @property
    def ladder(self) -> SampledHybridLadder:
        """What randomizes, and estimates."""
        if self.name == HYBRID:
            ladder = SampledHybrid(self.nominal, DIMENSIONS).ladder
            assert isinstance(ladder, SampledHybridLadder)
            return ladder
        micro, count = to_micro(self.nominal), max(1, min(DIMENSIONS, int(self.nominal / 2.5)))
        grid = piecewise_ladder(33, False, [micro // count], "")
        return over_coordinates(grid, DIMENSIONS, count, (micro,))

    @property
    def certified(self) -> float | None:
        """The exact product of the likelihood ratios of its answers."""
        return float(self.ladder.certified(0) / MICRO)

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return what each answer contributes to a mean: unbiased."""
        ladder, n, source = self.ladder, len(features), SeededSource(seed)
        chains = source.words(2 * n).reshape(n, 2)
        reports = ladder.randomize(features, chains, chains, source)[:, 0]
        exact = contributions(ladder.grid.shape, ladder.grid.laws[0]).value
        values = np.array([0.5 + float(value) for value in exact])
        out = np.full(features.shape, np.nan)
        chosen = ladder.coordinates_many(ladder.seeds(chains))
        out[np.arange(n)[:, None], chosen] = values[ladder.answers(reports)]
        return out


@dataclass(frozen=True)
class Peer:
    """A float original on [-1, 1]."""

    nominal: float
    name: str

    @property
    def certified(self) -> float | None:
        """None: its proof is for real numbers."""
        return None

    def send(self, features: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
        """Return unbiased features."""
        generator = np.random.default_rng(seed)
        return (PEERS[self.name](2 * features - 1, self.nominal, generator) + 1) / 2


HYBRID, PIECEWISE = "sampled Hybrid", "sampled Piecewise"
PEERS = {"Duchi": peers.duchi, "Laplace": peers.laplace}


def honest_senders(epsilon: float) -> list[Sender]:
    """Return what keeps to an epsilon, certified or by a proof for real numbers."""
    return [
        Thresholds(epsilon),
        OnGrid(epsilon, HYBRID),
        OnGrid(epsilon, PIECEWISE),
        *(Peer(epsilon, name) for name in PEERS),
    ]
