"""The fault run of the drains: one fault after another, checks between, a table at the end."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.soak import audits
from benchmarks.soak.audits import Audited
from benchmarks.soak.checker import Verdict, judge, spread, windows_of
from benchmarks.soak.injections import KINDS, Injection, inject
from benchmarks.soak.world import World
from pipelines.results import WINDOWS, Results, of_state
from sotto.registry import Registry

#: After so many faults all that was acknowledged must be counted.
CHECK_EVERY = 10


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


def run(
    folder: Path,
    seed: int,
    planned: Sequence[Injection],
    faults: int,
    seconds: float,
    rate: float,
) -> Outcome:
    """Inject so many faults, or as many as the time allows, and check.

    Parameters
    ----------
    folder : Path
        For all that the run leaves.
    seed : int
        Of the fleet.
    planned : sequence of Injection
        In this order. Some miss: a drain may be through before it can be killed.
    faults : int
        How many have to hit.
    seconds : float
        No fault is begun after that.
    rate : float
        Messages of the fleet a second.
    """
    outcome, began = Outcome(), time.monotonic()
    with World(folder, seed, rate) as world:
        world.drain_to_the_end()
        for fault in planned:
            hit = sum(outcome.faults.values())
            if hit >= faults or time.monotonic() - began > seconds:
                break
            done = inject(world, fault)
            (outcome.faults if done else outcome.missed)[fault.kind] += 1
            hit += done
            print(
                f"{time.monotonic() - began:7.1f} s  {hit:4d}  {'' if done else 'missed: '}{fault}",
                flush=True,
            )
            if done and hit % CHECK_EVERY == 0:
                _check(world, outcome)
            if outcome.broken:
                break
        world.finish_senders()
        _check(world, outcome)
        _audit(world, outcome)
    return outcome


def _check(world: World, outcome: Outcome) -> None:
    """Let a drain go to its end; what was acknowledged before must be counted."""
    _, acknowledged = world.books.copy()
    world.drain_to_the_end()
    sent = world.books.sent[: len(acknowledged)].copy()
    begun = world.books.number("begun")
    counted, stray = spread(windows_of(world.state), world.fleet, begun)
    known = counted[:, : len(acknowledged)]
    outcome.verdict = judge(known, sent, acknowledged, stray)
    outcome.checks += 1
    outcome.rejected = sum(sum(q.rows.values()) for q in world.state.manifest().quarantine)
    print(f"           {outcome.verdict}", flush=True)
    if not outcome.verdict.holds:
        outcome.broken.append(f"counts are not those of what was sent: {outcome.verdict}")
    if outcome.rejected:
        outcome.broken.append(f"{outcome.rejected} reports were rejected")


def _audit(world: World, outcome: Outcome) -> None:
    """Compare audits and the database with the counts, once everything is delivered."""
    fleet = world.fleet
    counted, _ = spread(windows_of(world.state), fleet, world.books.number("begun"))
    state = audits.of_state(world.state, Registry([fleet.plan]))
    outcome.audited = audits.compare(state, audits.of_fleet(fleet, counted), world.device_files())
    if outcome.audited.wrong:
        outcome.broken.append(f"audits differ: {outcome.audited}")
    with Results(of_state(world.state.path), create=False) as results:
        told: dict[tuple[object, object], object] = {
            (row["metric"], row["window_start"]): row["n"] for row in results.table(WINDOWS)
        }
    names = {metric.index: metric.name for metric in fleet.plan.metrics}
    mine: dict[tuple[object, object], object] = {
        (names[key.metric], key.start): int(matrix.sum())
        for key, matrix in windows_of(world.state)
        if matrix.any()
    }
    outcome.unlike = sum(mine.get(key) != told.get(key) for key in mine.keys() | told.keys())
    if outcome.unlike:
        outcome.broken.append(f"{outcome.unlike} windows of the database are not as counted")


def table(outcome: Outcome, seconds: float) -> str:
    """Return what a run came to, for people."""
    lines = ["", f"{'injections':32}{sum(outcome.faults.values()):>12,}"]
    for kind in KINDS:
        missed = outcome.missed[kind]
        note = f"   ({missed} more were too late to hit)" if missed else ""
        lines.append(f"  {kind:30}{outcome.faults[kind]:>12,}{note}")
    if outcome.verdict is not None:
        verdict = outcome.verdict
        for name, number in (
            ("buckets sent", verdict.sent),
            ("  acknowledged", verdict.acknowledged),
            ("  counted once", verdict.once),
            ("  counted zero", verdict.zero),
            ("  counted more than once", verdict.more),
            ("  acknowledged and lost", verdict.lost),
            ("  at an older rung", verdict.older),
            ("  at a rung never sent", verdict.unsent),
            ("  nobody's", verdict.stray),
        ):
            lines.append(f"{name:32}{number:>12,}")
    if outcome.audited is not None:
        lines.append(f"{'pseudonyms audited':32}{outcome.audited.pseudonyms:>12,}")
        lines.append(f"{'  audit not as devices have it':32}{outcome.audited.wrong:>12,}")
        lines.append(f"{'windows not as in the database':32}{outcome.unlike:>12,}")
    lines.append(f"{'reports rejected':32}{outcome.rejected:>12,}")
    lines.append(f"{'checks':32}{outcome.checks:>12,}")
    lines.append(f"{'seconds':32}{seconds:>12,.0f}")
    lines += [f"BROKEN: {each}" for each in outcome.broken]
    lines.append("held" if outcome.holds else "DID NOT HOLD")
    return "\n".join(lines)
