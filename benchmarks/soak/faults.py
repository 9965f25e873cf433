"""A fault run: one fault after another, checks between them, a table at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.audits import Audited
from benchmarks.soak.checker import Verdict, judge, spread
from benchmarks.soak.schedule import FaultError, Injection
from benchmarks.soak.stage import Stage
from pipelines.aggregation.counts import Matrix, WindowKey
from sotto.errors import SottoError

#: After so many faults all that was acknowledged must be counted.
CHECK_EVERY = 10

Windows = Iterable[tuple[WindowKey, Matrix]]


class Play(Protocol):
    """What counts the reports of a stage, and what can befall it."""

    @property
    def stage(self) -> Stage:
        """Where reports come from."""

    @property
    def kinds(self) -> Sequence[str]:
        """The kinds of faults."""

    def inject(self, fault: Injection) -> bool:
        """Bring a fault about; return whether it has hit.

        Raises
        ------
        FaultError
            Something did what it must not do, whatever befalls it.
        """

    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        """Return all counts once they are settled, or when they should have been."""

    def rejected(self) -> int:
        """Return how many reports were rejected."""

    def audited(self, counted: NDArray[np.int64]) -> Audited:
        """Compare audits with the fleet's counts and the devices' ledgers, once all is sent."""

    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Return how many windows other results of the same reports have otherwise."""


@dataclass
class Outcome:
    """What a run has come to so far."""

    faults: Counter[str] = field(default_factory=Counter)
    missed: Counter[str] = field(default_factory=Counter)
    checks: int = 0
    verdict: Verdict | None = None
    audited: Audited | None = None
    unlike: int = 0
    rejected: int = 0
    broken: list[str] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether everything held."""
        return not self.broken and self.verdict is not None and self.audited is not None


def run(play: Play, planned: Sequence[Injection], faults: int, seconds: float) -> Outcome:
    """Inject so many faults, or as many as the time allows, and check.

    Parameters
    ----------
    play : Play
        Running.
    planned : sequence of Injection
        In this order. Some miss: a run may be through before it can be killed.
    faults : int
        How many have to hit.
    seconds : float
        No fault is begun after that.
    """
    outcome = Outcome()
    try:
        _inject(play, planned, faults, seconds, outcome)
        play.stage.finish_senders()
        _compare(play, _check(play, outcome), outcome)
    except (FaultError, SottoError) as error:
        outcome.broken.append(f"{type(error).__name__}: {error}")
    return outcome


def _inject(
    play: Play, planned: Sequence[Injection], faults: int, seconds: float, outcome: Outcome
) -> None:
    began = time.monotonic()
    for fault in planned:
        hit = sum(outcome.faults.values())
        if hit >= faults or outcome.broken or time.monotonic() - began > seconds:
            break
        done = play.inject(fault)
        (outcome.faults if done else outcome.missed)[fault.kind] += 1
        hit += done
        said = "" if done else "missed: "
        print(f"{time.monotonic() - began:7.1f} s  {hit:4d}  {said}{fault}", flush=True)
        if done and hit % CHECK_EVERY == 0:
            _check(play, outcome)


def _compare(play: Play, counted: NDArray[np.int64], outcome: Outcome) -> None:
    """Compare audits and other results with the counts, once all is sent and counted."""
    outcome.audited = play.audited(counted)
    if outcome.audited.wrong:
        outcome.broken.append(f"audits differ: {outcome.audited}")
    outcome.unlike = play.unlike(counted)
    if outcome.unlike:
        outcome.broken.append(f"{outcome.unlike} windows of other results are not as counted")


def _check(play: Play, outcome: Outcome) -> NDArray[np.int64]:
    """Have all that was acknowledged until now counted; return what counts."""
    stage = play.stage
    _, acknowledged = stage.books.copy()

    def judged(windows: Windows) -> tuple[Verdict, NDArray[np.int64]]:
        begun = stage.books.number("begun")
        counted, stray = spread(windows, stage.fleet, begun)
        sent, known = stage.books.sent[:begun].copy(), np.zeros(begun, dtype=np.uint8)
        known[: len(acknowledged)] = acknowledged
        return judge(counted, sent, known, stray), counted

    def settled(windows: Windows) -> bool:
        verdict, _ = judged(windows)
        return not (verdict.lost or verdict.older)

    outcome.verdict, counted = judged(play.counted(settled))
    outcome.checks += 1
    outcome.rejected = play.rejected()
    print(f"           {outcome.verdict}", flush=True)
    if not outcome.verdict.holds:
        outcome.broken.append(f"counts are not those of what was sent: {outcome.verdict}")
    if outcome.rejected:
        outcome.broken.append(f"{outcome.rejected} reports were rejected")
    return counted


def table(outcome: Outcome, kinds: Sequence[str], seconds: float) -> str:
    """Return what a run came to, for people."""
    lines = ["", _line("injections", sum(outcome.faults.values()))]
    for kind in kinds:
        missed = outcome.missed[kind]
        note = f"   ({missed} more were too late to hit)" if missed else ""
        lines.append(_line(f"  {kind}", outcome.faults[kind]) + note)
    if outcome.verdict is not None:
        verdict = outcome.verdict
        for name, number in (
            ("buckets sent", verdict.sent),
            ("  acknowledged", verdict.acknowledged),
            ("  counted once", verdict.once),
            ("  counted zero", verdict.zero),
            ("  counted more than once", verdict.more),
            ("  acknowledged and lost", verdict.lost),
            ("  at an older level", verdict.older),
            ("  at a level never sent", verdict.unsent),
            ("  nobody's", verdict.stray),
        ):
            lines.append(_line(name, number))
    if outcome.audited is not None:
        lines.append(_line("pseudonyms audited", outcome.audited.pseudonyms))
        lines.append(_line("  audit not as devices have it", outcome.audited.wrong))
        lines.append(_line("windows not as elsewhere", outcome.unlike))
    lines += [_line("reports rejected", outcome.rejected), _line("checks", outcome.checks)]
    lines.append(_line("seconds", round(seconds)))
    lines += [f"BROKEN: {each}" for each in outcome.broken]
    lines.append("held" if outcome.holds else "DID NOT HOLD")
    return "\n".join(lines)


def _line(name: str, number: int) -> str:
    return f"{name:32}{number:>12,}"
