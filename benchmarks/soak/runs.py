"""The fault run of bounded runs: processes of their own, killed at a step or at any moment."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.soak.checker import (
    Audited,
    Windows,
    audit_of_fleet,
    audit_of_state,
    compare_audits,
    windows_of,
)
from benchmarks.soak.faults import Play
from benchmarks.soak.fleet import plan_of
from benchmarks.soak.stage import CHOICES, STAGE_FAULTS, FaultError, Injection, Stage, wait_until
from pipelines.bounded.driver import STEPS as COMMIT_STEPS
from pipelines.bounded.run import aggregate
from pipelines.results.tables import WINDOWS
from pipelines.sinks.sql import Results, of_state
from pipelines.sources.base import BoundedSource
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from sotto.errors import AggregationError, BrokerError
from sotto.plan.registry import Registry

#: The exit status of a run that could not go on; its log says why.
REFUSED = 3
KILLED = -signal.SIGKILL
#: How long a run may take, in seconds, on a machine that has much else to do: more is a fault.
PATIENCE = 900
#: Reports that a run takes at most: so few that a run commits several times.
MAX_REPORTS, _FEW = 2_000, 1_000
#: Points at which a run may be killed: steps of its commit, and the middle of writing a file.
STEPS = (*COMMIT_STEPS, "write")


class Orders(NamedTuple):
    """Instructions for a run."""

    source: BoundedSource
    state: str
    log: str
    max_reports: int = MAX_REPORTS
    #: The point at which the system kills it: one of ``STEPS``; it does not if this is empty.
    step: str = ""
    occurrence: int = 1
    #: The longest file that it may write; 0 for any.
    file_bytes: int = 0


def run(orders: Orders) -> None:
    """Aggregate a source to its end, and die on the way if so ordered."""
    # A limit on the length of files is one on the log's too: what has it begins a log of its own.
    own = f"{orders.log}.limited" if orders.file_bytes else orders.log
    begun = os.O_TRUNC if orders.file_bytes else os.O_APPEND
    log = os.open(own, os.O_WRONLY | os.O_CREAT | begun, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # A run that takes too long is told to end, and says where it was.
    faulthandler.register(signal.SIGTERM, log, chain=True)
    if orders.file_bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (orders.file_bytes, resource.RLIM_INFINITY))
    seen = 0

    def reached(step: str) -> None:
        nonlocal seen
        seen += step == orders.step
        if step == orders.step and seen == orders.occurrence:
            os.kill(os.getpid(), signal.SIGKILL)

    if orders.step == "write":
        _report_half_writes(reached)
    state, limit = Path(orders.state), orders.max_reports
    try:
        aggregate(orders.source, state, [plan_of()], max_reports=limit, checkpoint=reached)
    except (AggregationError, BrokerError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(REFUSED)


def _report_half_writes(reached: Callable[[str], None]) -> None:
    """Call ``reached`` amid every write of a file of the state directory."""
    real = os.write

    def write(descriptor: int, data: memoryview) -> int:
        half = real(descriptor, data[: len(data) // 2])
        reached("write")
        return half + real(descriptor, data[half:])

    files.os.write = write  # type: ignore[attr-defined]


class Runs(Play):
    """Runs of a stage, into a state directory on its disk at ``DISK``."""

    DISK = "disk"

    def __init__(self, stage: Stage) -> None:
        self.stage, self.kinds = stage, _KINDS
        at_a_step = dict.fromkeys(("run killed at a step", "consumer far behind"), STEPS)
        self.choices = {**CHOICES, **at_a_step, "disk full": ("full", "file size")}
        self.state = StateDirectory(stage.folder / self.DISK / "state")
        self._context = multiprocessing.get_context("forkserver")
        # Runs start quickly: all that they import is there already.
        self._context.set_forkserver_preload(["benchmarks.soak.runs"])

    def counted(self, settled: Callable[[Windows], bool]) -> Windows:
        """Aggregate to the end and return what is counted: then it is settled."""
        status = self.end(self.start(max_reports=1_000_000))
        if status:
            raise FaultError(f"an undisturbed run ended with {status}: see run.log")
        return list(windows_of(self.state))

    def rejected(self) -> int:
        return sum(sum(each.rows.values()) for each in self.state.manifest().quarantine)

    def audited(self, counted: NDArray[np.int64]) -> Audited:
        fleet = self.stage.fleet
        state = audit_of_state(self.state, Registry([fleet.plan]))
        return compare_audits(state, audit_of_fleet(fleet, counted), self.stage.device_files())

    def unlike(self, counted: NDArray[np.int64]) -> int:
        """Return how many windows of the database have other numbers of reports."""
        with Results(of_state(self.state.path)) as results:
            there: dict[tuple[object, object], object] = {
                (row["metric"], row["window_start"]): row["n"] for row in results.table(WINDOWS)
            }
        names = {metric.index: metric.name for metric in self.stage.fleet.plan.metrics}
        here: dict[tuple[object, object], object] = {
            (names[key.metric], key.start): int(matrix.sum())
            for key, matrix in windows_of(self.state)
            if matrix.any()
        }
        return sum(here.get(key) != there.get(key) for key in here.keys() | there.keys())

    @property
    def generation(self) -> int:
        """The generation that is committed, 0 before the first."""
        if not (self.state.path / "MANIFEST.json").exists():
            return 0
        return self.state.manifest().generation

    def start(self, **orders: Any) -> ForkServerProcess:
        """Start a run; see :class:`Orders`."""
        where = (self.stage.source, str(self.state.path), str(self.stage.folder / "run.log"))
        process = self._context.Process(target=run, args=(Orders(*where, **orders),))
        process.start()
        return process

    def end(self, process: ForkServerProcess, *allowed: int) -> int:
        """Wait for a run's end and return its exit status."""
        process.join(PATIENCE)
        status = process.exitcode
        if status is None:
            process.terminate()
            process.join(10)
            process.kill()
            process.join()
        process.close()
        if status is None:
            raise FaultError(f"a run has not ended within {PATIENCE} s")
        if allowed and status not in allowed:
            raise FaultError(f"a run ended with {status}: see run.log")
        return status


def at_step(runs: Runs, fault: Injection) -> bool:
    """Kill a run at a step of its commit."""
    process = runs.start(step=fault.what, occurrence=fault.occurrence)
    return runs.end(process, 0, KILLED) == KILLED


def at_instant(runs: Runs, fault: Injection) -> bool:
    """Kill a run after a while."""
    process = runs.start()
    time.sleep(fault.delay)
    process.kill()
    return runs.end(process, 0, KILLED) == KILLED


def beside(kind: str, *allowed: int) -> Callable[[Runs, Injection], bool]:
    """Return a fault of the stage amid a run, which may end with these statuses."""

    def inject(runs: Runs, fault: Injection) -> bool:
        process = runs.start()
        time.sleep(fault.delay)
        done = STAGE_FAULTS[kind](runs.stage, fault)
        runs.end(process, *allowed)
        return done

    return inject


def _disk(runs: Runs, fault: Injection) -> bool:
    """Fill the disk, or where there is none to fill allow no file beyond some size."""
    before, disk = runs.generation, runs.stage.disk
    if fault.what == "full" and disk.mounted:
        disk.leave(fault.room)
        status = runs.end(runs.start())
        disk.make_room()
    else:
        status = runs.end(runs.start(file_bytes=4096 + fault.room))
    if runs.generation < before:
        raise FaultError(f"generation {before} was committed and is not any more")
    if status not in (0, REFUSED):
        raise FaultError(f"a run ended with {status}: see run.log")
    return status == REFUSED


def _behind(runs: Runs, fault: Injection) -> bool:
    """Let much be sent that nobody takes; then take it in small runs, one of them killed."""
    progress = runs.stage.progress
    enough = progress.count("messages") + 2_000 + 500 * fault.occurrence
    wait_until(lambda: progress.count("messages") > enough, 30)
    process = runs.start(step=fault.what, occurrence=fault.occurrence, max_reports=_FEW)
    return runs.end(process, 0, KILLED) == KILLED


#: Kinds of faults: their shares of a run, and how each is brought about.
_KINDS: dict[str, tuple[int, Callable[[Runs, Injection], bool]]] = {
    "run killed at a step": (30, at_step),
    "run killed at any instant": (22, at_instant),
    "broker killed": (8, beside("broker killed", 0, REFUSED)),
    "sender killed": (10, beside("sender killed", 0)),
    "network": (14, beside("network", 0, REFUSED)),
    "disk full": (8, _disk),
    "repeated and reordered": (4, beside("repeated and reordered", 0)),
    "consumer far behind": (4, _behind),
}
