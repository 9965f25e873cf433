"""Shared code of all benchmarks: timing, what a process takes, tables."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Mapping
from pathlib import Path

ROUNDS = 7
#: Seconds that a round of one contender takes at least, where it can be repeated.
ROUND_SECONDS = 0.02


def cpu_seconds(function: Callable[[], object], calls: int = 1, rounds: int = 5) -> float:
    """Return the least CPU seconds of one call in several rounds.

    The process's own time, since the machine has other work.
    """
    best = float("inf")
    for _ in range(rounds):
        start = time.process_time()
        for _ in range(calls):
            function()
        best = min(best, (time.process_time() - start) / calls)
    return best


def race(
    contenders: Mapping[str, Callable[[], object]], units: Mapping[str, int] | int = 1
) -> dict[str, float]:
    """Time contenders in turns, so that what else the machine does meets all alike.

    Return, in the order given, the least CPU seconds of this process for a unit of work; ``units``
    says how many of them one call does.
    """
    calls = {}
    for name, function in contenders.items():
        function()
        calls[name] = max(1, int(ROUND_SECONDS / max(cpu_seconds(function, rounds=1), 1e-9)))
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(ROUNDS):
        for name, function in contenders.items():
            best[name] = min(best[name], cpu_seconds(function, calls[name], rounds=1))
    return {
        name: taken / (units if isinstance(units, int) else units[name])
        for name, taken in best.items()
    }


def processor_seconds(pid: int | None) -> float:
    """Return the processor time of a process; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int | None) -> int:
    """Return the memory of a process (RSS); 0 if it has ended."""
    try:
        return (
            int(Path(f"/proc/{pid}/statm").read_text("ascii").split()[1]) * resource.getpagesize()
        )
    except OSError:
        return 0


class Table:
    """Prints rows in aligned columns, each as soon as it is known.

    The lengths of heads are the least widths; a ``<`` at the end aligns a column to the left.
    """

    def __init__(self, *heads: str) -> None:
        names = [head.removesuffix("<") for head in heads]
        self._forms = [
            f"{'<' if head.endswith('<') else '>'}{max(12, len(name))}"
            for head, name in zip(heads, names, strict=True)
        ]
        self.row(*names)

    def row(self, *cells: object) -> None:
        """Print a row; integers get separators between thousands."""
        texts = (f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells)
        shown = (f"{text:{form}}" for text, form in zip(texts, self._forms, strict=True))
        print("  ".join(shown).rstrip(), flush=True)
