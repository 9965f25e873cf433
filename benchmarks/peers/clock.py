"""Timings of several ways to do one thing, taken in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

ROUNDS = 7
#: Seconds that a round of one contender takes at least, where it can be repeated.
ROUND_SECONDS = 0.02


@dataclass(frozen=True)
class Timing:
    """The least seconds of one contender over all rounds, for one unit of work."""

    name: str
    seconds: float


def race(
    contenders: Mapping[str, Callable[[], object]], units: Mapping[str, int] | int = 1
) -> list[Timing]:
    """Time contenders in turns, so that what else the machine does meets all alike.

    Parameters
    ----------
    contenders : mapping of str to callable
        What each does once.
    units : int or mapping of str to int
        How many units of work one call is.

    Returns
    -------
    list of Timing
        In the order given, CPU seconds of this process a unit.
    """
    calls = {name: _calls(function) for name, function in contenders.items()}
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, function in contenders.items():
            best[name] = min(best[name], _seconds(function, calls[name]))
    return [
        Timing(name, taken / (units if isinstance(units, int) else units[name]))
        for name, taken in best.items()
    ]


def _calls(function: Callable[[], object]) -> int:
    function()
    once = _seconds(function, 1)
    return max(1, int(ROUND_SECONDS / max(once, 1e-9)))


def _seconds(function: Callable[[], object], calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - start) / calls
