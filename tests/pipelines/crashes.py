"""Runs that end at a step of a commit, and what an undisturbed run makes of the same log."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from committed_states import committed, empty_state, projected
from memory_files import FILES
from report_logs import START, faulty, honest, write
from step_plans import DAY, plans

from pipelines.bounded import run
from pipelines.bounded.run import RunResult

#: Runs at one and the same time, so that what they commit can be compared byte by byte.
aggregate = partial(run.aggregate, clock=lambda: START + 900 * DAY)
#: Reports that a run of these tests takes at most.
MAX_REPORTS = 100


class Killed(BaseException):
    """A process ends here, and what it has in memory is gone."""


def kill_at(step: str, occurrence: int = 1) -> Callable[[str], None]:
    """Return a checkpoint that ends the process at an occurrence of a step."""
    seen = 0

    def check(found: str) -> None:
        nonlocal seen
        seen += found == step
        if found == step and seen == occurrence:
            raise Killed

    return check


def after_runs(number: int) -> Callable[[], bool]:
    """Return what lets an aggregation stop after so many runs."""
    return iter([False] * number + [True]).__next__


def status_of_child(act: Callable[[], object]) -> int:
    """Return the exit status of a forked child that does something, 0 if it gets to the end."""
    child = os.fork()
    if child == 0:
        # Collecting what other tests have left of gRPC would abort: its threads are the parent's.
        gc.disable()
        act()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


class World:
    """A log, an empty state for it, maybe with its files elsewhere, and what a run makes of it."""

    def __init__(self, folder: Path, place: str | None = None) -> None:
        self.folder, self.number = folder, 0
        self.log = write(folder / "log", honest(10, 3, 11) + faulty(12))
        self.empty = empty_state(folder / "empty", place)
        self.done = self.new_state()
        assert self.aggregate(self.done).runs == 2
        self.files = dict(FILES)

    def new_state(self) -> Path:
        """Return a copy of the empty state; its files elsewhere are none."""
        FILES.clear()
        self.number += 1
        return Path(shutil.copytree(self.empty, self.folder / f"state-{self.number}"))

    def aggregate(
        self, state: Path, checkpoint: Callable[[str], None] = lambda _: None
    ) -> RunResult:
        return aggregate(self.log, state, plans(), max_reports=MAX_REPORTS, checkpoint=checkpoint)

    def check(self, state: Path) -> None:
        """Finish, and compare everything with the undisturbed run."""
        self.aggregate(state)
        assert self.files == FILES
        assert committed(state) == committed(self.done)
        assert projected(state) == projected(self.done)
