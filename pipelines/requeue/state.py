"""Requeue: messages that were quarantined for want of a plan, or of time, are counted afterwards.

A requeue is a commit like a run's, under the same lock: an intent that lists which messages of
which quarantine files are taken, the same job, and a manifest that notes them as taken together
with what they came to. Killed at any moment it is finished by the next requeue or run; done
twice it finds nothing.

Messages go through the same decoding and the same step, with the append times by which they were
judged first; a record that was ahead of the reader's clock, with its own. So what was late stays
late, a period that is closed stays closed, a report that has been counted is a duplicate, and a
pseudonym that is revoked stays so.
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
    """Count what is in quarantine and can be counted now; the result's size is in reports.

    ``plans``: those that were missing, where the state directory does not have them yet.
    ``reasons``: some of those that can be cured. ``max_reports``: about so many a commit; bounds
    memory. ``wait``: seconds to wait for a run that holds the directory. ``clock``: the time, ms:
    records that are ahead of it are not counted. All else is as of
    :func:`pipelines.bounded.run.aggregate`.

    Raises ParameterError if a reason is none that can be cured, AggregationError if it cannot go
    on; the last commit is then intact.
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
    """Yield what is taken at once: of so many reports, or of one file and plan."""
    part: list[Requeue] = []
    for each in found:
        if part and _rows(part) + each.rows > most:
            yield tuple(part)
            part = []
        part.append(each)
    if part:
        yield tuple(part)
