"""Requeues the quarantine of a state directory: counts messages whose plan was missing.

It also counts records that were ahead of the reader's clock, once their time has come.

A requeue is a commit like a run's, under the same lock, with the same job. Its intent lists which
messages of which quarantine files are taken, and its manifest notes them as taken. If it is killed,
the next requeue or run finishes it; a second requeue finds nothing.

Messages go through the same decoding and the same step, with the append times by which they were
judged first (a record that was ahead of the reader's clock has its own). So a late report stays
late, a closed period stays closed, a report that has been counted is a duplicate, and a revoked
pseudonym stays revoked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import URL

from pipelines.aggregation.result_rows import Candidates
from pipelines.bounded.driver import Driver
from pipelines.bounded.run import MAX_REPORTS, Progress, RunResult, opened
from pipelines.sinks.quarantine import CURABLE, check_reasons
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent, Requeue
from pipelines.storage.quarantine_files import waiting
from sotto.clocks import now_ms
from sotto.plan.compiled import CompiledPlan
from sotto.wire.reasons import Reason


def requeue(
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan] = (),
    database: str | URL | None = None,
    reasons: Collection[Reason] = CURABLE,
    max_reports: int = MAX_REPORTS,
    progress: Progress = lambda done, total: None,
    checkpoint: Checkpoint = lambda step: None,
    *,
    candidates: Candidates | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: float = 0.0,
    clock: Callable[[], int] = now_ms,
) -> RunResult:
    """Count the messages in quarantine that can be counted now; the result's size is in reports.

    ``plans``: those that were missing, unless the state directory has them already. ``reasons``:
    some of :data:`CURABLE`. ``max_reports``: about how many reports a commit takes, which bounds
    memory. ``wait``: seconds to wait for a run that holds the directory. ``clock``: returns the
    time, ms; records that are ahead of it are not counted. Other parameters are as for
    :func:`pipelines.bounded.run.aggregate`.

    Raises ParameterError if a reason cannot be cured, AggregationError if it cannot go on; the last
    commit is then intact.
    """
    check_reasons(reasons)
    StateDirectory(state_dir).manifest()  # Refuses what no run has made.
    with opened(state_dir, plans, candidates, database, checkpoint, wait=wait) as (driver, seconds):
        result = RunResult(driver.manifest.generation)
        if (interrupted := driver.own_interrupted("requeue")) is not None:
            result = _take(result, driver, interrupted)
        known = {plan.fingerprint_hex for plan in driver.registry.plans}
        now = clock()
        found = waiting(driver.directory, driver.manifest, reasons, now)
        cured = [each for each in found if each.plan in known]
        total = result.size + _rows(cured)
        progress(result.size, total)
        for part in _parts(cured, max_reports):
            if stop():
                break
            manifest = driver.manifest
            intent = Intent(
                generation=manifest.generation + 1,
                clock=manifest.clock,
                items=(),
                requeue=part,
                reports=_rows(part),
                trusted=now,
            )
            driver.begin(intent)
            result = _take(result, driver, intent)
            progress(result.size, total)
        return replace(result, seconds=seconds(), unit="reports")


def _take(result: RunResult, driver: Driver, intent: Intent) -> RunResult:
    result = result.plus(intent, driver.commit(intent, None))
    return replace(result, size=result.size + _rows(intent.requeue))


def _rows(found: Iterable[Requeue]) -> int:
    return sum(each.rows for each in found)


def _parts(found: Iterable[Requeue], most: int) -> Iterator[tuple[Requeue, ...]]:
    """Yield what a commit takes: entries of at most so many reports, but at least one entry."""
    part: list[Requeue] = []
    for each in found:
        if part and _rows(part) + each.rows > most:
            yield tuple(part)
            part = []
        part.append(each)
    if part:
        yield tuple(part)
