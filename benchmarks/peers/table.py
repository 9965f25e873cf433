"""Tables of timings side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from benchmarks.peers.clock import Timing

#: Stands for whichever peer is the fastest.
FASTEST = "fastest"


class Line(NamedTuple):
    """One piece of work and what each contender took; the first is Sotto."""

    work: str
    timings: Sequence[Timing]


class Target(NamedTuple):
    """How many times faster than a peer Sotto is to be."""

    peer: str
    times: float


def ratio(line: Line, peer: str) -> float | None:
    """Return how many times as long as Sotto a peer takes, None if it does not do this work."""
    ours, *others = line.timings
    taken = [each.seconds for each in others if peer in (FASTEST, each.name)]
    return min(taken) / ours.seconds if taken else None


def show(
    title: str,
    lines: Sequence[Line],
    unit: tuple[str, float],
    targets: Mapping[str, Target],
    default: Target | None = None,
) -> None:
    """Print what each contender takes, how many times ours, and whether the target is met.

    Parameters
    ----------
    unit : (str, float)
        Its name, and how many of it a second has.
    targets : mapping of work to Target
    default : Target, optional
        For work that ``targets`` does not name.
    """
    name, scale = unit
    print(f"\n{title}, {name}")
    for line in lines:
        target = targets.get(line.work, default)
        reached = ratio(line, target.peer) if target else None
        verdict = ""
        if target and reached is not None:
            met = "met" if reached >= target.times else "NOT MET"
            verdict = f"   {target.times:g}x {target.peer}: {met}"
        print(f"  {line.work}{verdict}")
        ours = line.timings[0].seconds
        for each in line.timings:
            print(f"    {each.name:<18} {each.seconds * scale:>12.4g} {each.seconds / ours:>9.1f}x")
