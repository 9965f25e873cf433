"""The faults of a run, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Injection(NamedTuple):
    """A fault that is to be.

    Attributes
    ----------
    kind : str
    what : str
        Which step, network or process; empty where there is no choice.
    occurrence : int
        Of a step.
    delay, seconds : float
        When, after a run was started, and how long.
    room : int
        Bytes that are left on a disk.
    """

    kind: str
    what: str = ""
    occurrence: int = 1
    delay: float = 0.0
    seconds: float = 0.0
    room: int = 0

    def __str__(self) -> str:
        return (
            f"{self.kind} ({self.what} {self.occurrence}, after {self.delay:.2f} s, "
            f"for {self.seconds:.2f} s, {self.room} bytes)"
        )


class FaultError(Exception):
    """Something did what it must not do, whatever befalls it."""


def schedule(
    seed: int, number: int, shares: Mapping[str, int], choices: Mapping[str, Sequence[str]]
) -> list[Injection]:
    """Return so many faults, every kind of them, as the seed wants.

    Parameters
    ----------
    seed : int
    number : int
    shares : mapping
        The share of each kind.
    choices : mapping
        What can be chosen in a kind, if anything.
    """
    source = random.Random(seed)
    kinds = [kind for kind, share in shares.items() for _ in range(share)]
    drawn = [*shares, *(source.choice(kinds) for _ in range(number - len(shares)))][:number]
    source.shuffle(drawn)
    return [
        Injection(
            kind,
            source.choice(choices.get(kind, ("",))),
            source.choice((1, 1, 1, 2, 3)),
            source.uniform(0, 1.5),
            source.choice((0.05, 0.5, 2.0, 5.0)) * source.uniform(0.5, 1.5),
            int(4096 * 2 ** source.uniform(0, 9)),
        )
        for kind in drawn
    ]
