"""A fault run: one fault after another, checks between them, a table at the end."""

from __future__ import annotations

import random
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.checker import Audited, Verdict, Windows, judge, spread
from benchmarks.soak.stage import FaultError, Injection, Stage
from sotto.errors import SottoError

#: After so many faults all that was acknowledged must be counted.
CHECK_EVERY = 10


class Play(ABC):
    """An aggregator of a stage's reports, and the faults that can happen to it."""

    #: The stage that reports come from.
    stage: Stage
    #: Kinds of faults: their shares of a run, and how each is brought about; whether it has hit.
    kinds: Mapping[str, tuple[int, Callable[[Any, Injection], bool]]]
    #: The variants that a kind has to choose from, if any.
    choices: Mapping[str, Sequence[str]]

    @property
    def shares(self) -> Mapping[str, int]:
        """The kinds of faults, and the share of each."""
        return {kind: share for kind, (share, _) in self.kinds.items()}

    def inject(self, fault: Injection) -> bool:
        """Bring a fault about; return whether it has hit."""
        return self.kinds[fault.kind][1](self, fault)

    @abstractmethod
    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        """Return all counts once they are settled, or when they should have been."""

    @abstractmethod
    def rejected(self) -> int:
        """Return how many reports were rejected."""

    @abstractmethod
    def audited(self, counted: NDArray[np.int64]) -> Audited:
        """Compare audits with the fleet's counts and the devices' ledgers, once all is sent."""

    @abstractmethod
    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Return how many windows other results of the same reports have otherwise."""


def schedule(
    seed: int, number: int, shares: Mapping[str, int], choices: Mapping[str, Sequence[str]]
) -> list[Injection]:
    """Return so many faults drawn from a seed, every kind of them; see :class:`Play`."""
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


@dataclass
class Outcome:
    """The results of a run so far."""

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
    """Inject planned faults until so many have hit, or the time is over, and check.

    Some miss: a run may be through before it can be killed.
    """
    outcome, began = Outcome(), time.monotonic()
    try:
        for fault in planned:
            hit = outcome.faults.total()
            if hit >= faults or outcome.broken or time.monotonic() - began > seconds:
                break
            done = play.inject(fault)
            (outcome.faults if done else outcome.missed)[fault.kind] += 1
            hit += done
            missed = "" if done else "missed: "
            print(f"{time.monotonic() - began:7.1f} s  {hit:4d}  {missed}{fault}", flush=True)
            if done and hit % CHECK_EVERY == 0:
                _check(play, outcome)
        play.stage.finish_senders()
        counted = _check(play, outcome)
        outcome.audited = play.audited(counted)
        if outcome.audited.wrong:
            outcome.broken.append(f"audits differ: {outcome.audited}")
        outcome.unlike = play.unlike(counted)
        if outcome.unlike:
            outcome.broken.append(f"{outcome.unlike} windows of other results are not as counted")
    except (FaultError, SottoError) as error:
        outcome.broken.append(f"{type(error).__name__}: {error}")
    return outcome


def _check(play: Play, outcome: Outcome) -> NDArray[np.int64]:
    """Have all that was acknowledged until now counted; return what counts."""
    stage = play.stage
    acknowledged = stage.progress.known()

    def judged(windows: Windows) -> tuple[Verdict, NDArray[np.int64]]:
        begun = stage.progress.count("begun")
        counted, stray = spread(windows, stage.fleet, begun)
        sent, known = stage.progress.sent[:begun].copy(), np.zeros(begun, dtype=np.uint8)
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
    rows: list[tuple[str, int]] = [("injections", outcome.faults.total())]
    for kind in kinds:
        missed = outcome.missed[kind]
        note = f" ({missed} more were too late to hit)" if missed else ""
        rows.append((f"  {kind}{note}", outcome.faults[kind]))
    if (verdict := outcome.verdict) is not None:
        rows += [
            ("buckets sent", verdict.sent),
            ("  acknowledged", verdict.acknowledged),
            ("  counted once", verdict.once),
            ("  counted zero", verdict.zero),
            ("  counted more than once", verdict.more),
            ("  acknowledged and lost", verdict.lost),
            ("  at an older level", verdict.older),
            ("  at a level never sent", verdict.unsent),
            ("  nobody's", verdict.stray),
        ]
    if outcome.audited is not None:
        rows.append(("pseudonyms audited", outcome.audited.pseudonyms))
        rows.append(("  audit not as devices have it", outcome.audited.wrong))
        rows.append(("windows not as elsewhere", outcome.unlike))
    rows += [("reports rejected", outcome.rejected), ("checks", outcome.checks)]
    rows.append(("seconds", round(seconds)))
    lines = ["", *(f"{name:64}{number:>12,}" for name, number in rows)]
    lines += [f"BROKEN: {each}" for each in outcome.broken]
    return "\n".join([*lines, "held" if outcome.holds else "DID NOT HOLD"])
