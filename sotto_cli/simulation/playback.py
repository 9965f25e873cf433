"""Plays a table's devices back in several processes, each writing partitions of its own."""

from __future__ import annotations

import csv
import gc
import multiprocessing
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, wait
from dataclasses import astuple, dataclass, field
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Any

import numpy as np

from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto_cli.simulation.devices import BUFFER_BYTES, AuditLine, Fleet, Played, Schedule, SortedLog
from sotto_cli.simulation.table import Recordings

if TYPE_CHECKING:
    from numpy.typing import NDArray

AUDIT_HEAD = ("device", "period", "pseudonym", "spent", "reserved")
#: Seconds between two notes of progress.
_TELL_EVERY = 0.1
_progress: Any = None


@dataclass(frozen=True)
class Replay:
    """How a table is played back."""

    #: The log. It must not hold anything yet.
    out: Path
    schedule: Schedule = field(default_factory=Schedule)
    processes: int = 2
    #: Memory for messages, in each process.
    buffer_bytes: int = BUFFER_BYTES
    #: The seed of all that is drawn; None for the operating system's randomness. Whoever knows it
    #: can undo the randomization.
    seed: int | None = None
    #: Makes what plays devices in each process; others compare them with real clients, or watch.
    fleet: Callable[[CompiledPlan, Recordings, Schedule, SortedLog, int | None], Fleet] = Fleet

    def run(
        self,
        plan: CompiledPlan,
        recordings: Recordings,
        progress: Callable[[int], object] = lambda rows: None,
    ) -> Played:
        """Play all devices back; progress is called with how many more rows are played back.

        Raises ParameterError if the log is not empty, PublishError if it takes nothing: the disk is
        full, for example.
        """
        if self.out.exists() and any(self.out.iterdir()):
            raise ParameterError(
                f"{self.out} is not empty: every replay makes new devices, so it needs a new log"
            )
        self.out.mkdir(parents=True, exist_ok=True)
        shares = recordings.deal(self.processes)
        if len(shares) > 1:
            parts = self._in_processes(plan, recordings, shares, progress)
        else:
            parts = [_play(self, plan, recordings, share, 0, progress) for share in shares]
        whole, *others = parts or [Played()]
        for part in others:
            whole.merge(part)
        whole.audit.sort(key=lambda line: (line.device, line.period))
        return whole

    def _in_processes(
        self,
        plan: CompiledPlan,
        recordings: Recordings,
        shares: list[NDArray[np.int64]],
        progress: Callable[[int], object],
    ) -> list[Played]:
        # Spawned, not forked: Arrow has threads, and a forked thread pool hangs.
        context = multiprocessing.get_context("spawn")
        queue = context.Queue()
        told = 0

        def tell(rows: int) -> None:
            nonlocal told
            told += rows
            progress(rows)

        with ProcessPoolExecutor(
            len(shares), mp_context=context, initializer=_start, initargs=(queue,)
        ) as pool:
            running = [
                pool.submit(_work, self, plan.to_json(), recordings.subset(share), share, part)
                for part, share in enumerate(shares)
            ]
            while True:
                done, waiting = wait(running, timeout=0.2)
                _report(queue, tell)
                if not waiting or any(future.exception() for future in done):
                    break
            parts = [future.result() for future in running]
        # A process that has ended may have notes in the queue that have not come yet.
        if told < len(recordings):
            progress(len(recordings) - told)
        return parts


def _play(
    replay: Replay,
    plan: CompiledPlan,
    recordings: Recordings,
    numbers: NDArray[np.int64],
    part: int,
    progress: Callable[[int], object],
) -> Played:
    """Play back a share of the devices, the ``i``-th of which is known as ``numbers[i]``."""
    with SortedLog(replay.out, f"replay-{part:02d}", replay.buffer_bytes) as log:
        fleet = replay.fleet(plan, recordings, replay.schedule, log, replay.seed)
        rows = np.diff(recordings.starts).tolist()
        done, told = 0, time.monotonic()
        for device, number in enumerate(numbers.tolist()):
            fleet.play(device, number)
            done += rows[device]
            if time.monotonic() - told > _TELL_EVERY:
                progress(done)
                done, told = 0, time.monotonic()
        progress(done)
    fleet.played.messages, fleet.played.written = log.messages, log.written
    return fleet.played


def _start(queue: Any) -> None:
    global _progress
    _progress = queue


def _work(
    replay: Replay, plan: bytes, recordings: Recordings, numbers: NDArray[np.int64], part: int
) -> Played:
    """Play a share back in a process of its own."""
    # Everything made by now stays to the end, and a device that is through leaves no cycles.
    gc.freeze()
    gc.set_threshold(50_000)
    return _play(replay, CompiledPlan.from_json(plan), recordings, numbers, part, _progress.put)


def _report(queue: Any, progress: Callable[[int], object]) -> None:
    while True:
        try:
            progress(queue.get_nowait())
        except Empty:
            return


def write_audit(path: Path, lines: Iterable[AuditLine]) -> None:
    """Write the devices' own ledgers as CSV: by device number and period, in micro-epsilon.

    A new file is its owner's alone: it says which device sent which reports.
    """
    path.touch(0o600)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(AUDIT_HEAD)
        writer.writerows(map(astuple, lines))
