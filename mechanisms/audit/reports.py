"""Attacked reports: whatever makes reports of given values, a device's code or a batch's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, Protocol, TypeAlias

import numpy as np

from mechanisms.arrays import Bytes, Ints, Words
from mechanisms.base import NO_ID, Mechanism
from mechanisms.randomness import Source


class UnexpectedReportsError(Exception):
    """A device refuses a recording, or sends other reports than its plan says."""


@dataclass(frozen=True, eq=False)
class AttackedReports:
    """Chains of reports, and which of the given values each is of.

    ``places`` is ``(n,)``, ``payloads`` are ``(n, levels, payload_width)``, ``chains`` their ids,
    ``(n, 2)``. Pseudonyms have the public coins of ``NO_ID``.
    """

    places: Ints
    payloads: Bytes
    chains: Words


#: Makes reports of values, one for each place in the list of them; the source is a batch's.
Sampler: TypeAlias = "Callable[[Sequence[Any], Ints, Source], AttackedReports]"


class SamplerOfDevices(Protocol):
    """Reports of devices: a :data:`Sampler`."""

    @property
    def cost(self) -> int:
        """How many recordings take as long as one usually does."""
        ...

    def __call__(self, values: Sequence[Any], places: Ints, source: Source) -> AttackedReports: ...


def batch_sampler(mechanism: Mechanism, randomize: Callable[..., Bytes] | None = None) -> Sampler:
    """Return what draws by a mechanism's ``randomize``, or by something in its place."""
    draw = mechanism.randomize if randomize is None else randomize

    def sample(values: Sequence[Any], places: Ints, source: Source) -> AttackedReports:
        n = len(places)
        chains = source.words(2 * n).reshape(n, 2)
        names = np.tile(np.frombuffer(NO_ID, dtype="<u8").astype(np.uint64), (n, 1))
        return AttackedReports(
            places, draw(column_of(values, places), chains, names, source), chains
        )

    return sample


def column_of(values: Sequence[Any], places: Ints) -> Any:
    """Return ``values[place]`` for each place, as ``randomize`` takes a column."""
    if any(isinstance(value, bytes) for value in values):
        return [values[place] for place in places.tolist()]
    return np.array([nan if value is None else value for value in values])[places]
