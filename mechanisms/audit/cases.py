"""Claims about releases that no plan can ask for: what is claimed, what is true, and a sampler."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from mechanisms.arrays import Bools, Floats, Words
from mechanisms.audit.guessing import Attack, fair_bits, guess, key_of
from mechanisms.randomness import Source

#: Views of releases, each of the input that its secret bit chooses.
Views: TypeAlias = "Mapping[str, Words]"
Release: TypeAlias = "Callable[[Bools, Source], Views]"


@dataclass(frozen=True)
class Case:
    """A claim and what is true of it.

    ``source`` is where the claim is made, or the condition that is broken. ``claimed`` and ``true``
    are epsilons, the true one by calculation, infinite where no epsilon covers it. ``release``
    draws releases from a secret bit each; an attack draws ``cost`` times fewer, where one takes
    long. ``why`` is what is wrong.
    """

    name: str
    source: str
    claimed: float
    true: float
    release: Release
    why: str
    cost: int = 1

    @property
    def holds(self) -> bool:
        """Whether the claim is at least what is true."""
        return self.true <= self.claimed * (1 + 1e-9)

    def attack(self, source: Source, trials: int, confidence: float) -> Attack:
        """Distinguish the two inputs; see :func:`mechanisms.audit.attack.attack`."""
        secrets = fair_bits(2 * max(100, trials // self.cost), source)
        return guess(self.release(secrets, source), secrets, confidence)


def unit(n: int, source: Source) -> Floats:
    """Return ``(n,)`` uniform numbers in [0, 1) of 53 bits."""
    return (source.words(n) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def law_release(one: Sequence[float], other: Sequence[float]) -> Release:
    """Return what draws from one of two laws of the same outcomes."""

    def release(secrets: Bools, source: Source) -> Views:
        drawn = unit(len(secrets), source)
        outcomes = [
            np.minimum(np.searchsorted(np.cumsum(law), drawn, side="right"), len(law) - 1)
            for law in (one, other)
        ]
        return {"the outcome": key_of(np.where(secrets, outcomes[1], outcomes[0])[:, None])}

    return release
