"""Requeue: messages that were quarantined for want of a plan are counted once there is one.

A requeue is a commit like a drain's, under the same lock: an intent that says which messages of
which quarantine files are taken, the same job, and a manifest that marks them as taken together
with what they came to. Killed at any moment it is finished by the next requeue or drain; done
twice it finds nothing.

Messages go through the same decoding and the same step, with the append times by which they were
judged first. So what was late stays late, a period that is closed stays closed, a report that has
been counted is a duplicate, and a pseudonym that is revoked stays so.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from sqlalchemy import URL

from pipelines.bounded.driver import Driver
from pipelines.bounded.run import MAX_REPORTS, DrainResult, Progress
from pipelines.estimation.rows import Candidates
from pipelines.requeue.withheld import waiting
from pipelines.sinks.quarantine import CURABLE, check_reasons
from pipelines.sinks.sql import Results, of_state
from pipelines.storage.directory import StateDirectory
from pipelines.storage.files import Checkpoint
from pipelines.storage.intent import Intent, Requeue
from sotto.errors import DrainError, FormatError
from sotto.plan.compiled import CompiledPlan
from sotto.wire.reasons import Reason


def requeue(
    state_dir: str | os.PathLike[str],
    plans: Sequence[CompiledPlan] = (),
    database: str | URL | None = None,
    reasons: Collection[Reason] = CURABLE,
    max_reports: int = MAX_REPORTS,
    progress: Progress | None = None,
    checkpoint: Checkpoint | None = None,
    *,
    candidates: Candidates | None = None,
    stop: Callable[[], bool] = lambda: False,
    wait: float = 0.0,
) -> DrainResult:
    """Count what is in quarantine for want of one of these plans.

    Parameters
    ----------
    state_dir : path
        A drain's.
    plans : sequence of CompiledPlan
        Those that were missing, where the state directory does not have them yet.
    database : str or URL, optional
        As the drain's.
    reasons : collection of Reason
        Some of those that can be cured.
    max_reports : int
        About so many a commit; bounds memory.
    progress, checkpoint, candidates, stop
        As of :func:`pipelines.bounded.run.drain`.
    wait : float
        Seconds to wait for a drain that holds the directory.

    Returns
    -------
    DrainResult
        Its size is the number of reports taken again.

    Raises
    ------
    ParameterError
        A reason is none that can be cured.
    DrainError
        It cannot go on. The last commit is intact.
    """
    check_reasons(reasons)
    directory = StateDirectory(state_dir)
    directory.manifest()  # Refuses what no drain has made.
    began = time.monotonic()
    tell, note = progress or _ignore, checkpoint or _ignore
    with directory.lock(wait), Results(database or of_state(directory.path)) as results:
        try:
            registry, strings = directory.plans.with_given(plans, candidates or {})
            registry.require_signatures()
            driver = Driver(directory, registry, strings, results, note)
            result = _requeue(driver, reasons, max_reports, tell, stop)
        except (OSError, FormatError) as error:
            raise DrainError(f"the requeue was not finished: {error}") from error
    return replace(result, seconds=time.monotonic() - began, unit="reports")


def _requeue(
    driver: Driver,
    reasons: Collection[Reason],
    max_reports: int,
    progress: Progress,
    stop: Callable[[], bool],
) -> DrainResult:
    """Finish what was undertaken, then take what the plans cure."""
    result = DrainResult(driver.manifest.generation)
    undertaken = driver.undertaken()
    if undertaken is not None:
        if not undertaken.requeue:
            raise DrainError(
                "a drain was interrupted and is to be finished first: run sotto aggregate"
            )
        result = _taken(result, driver, undertaken)
    known = {plan.fingerprint_hex for plan in driver.registry.plans}
    found = waiting(driver.directory, driver.manifest, reasons)
    cured = [each for each in found if each.plan in known]
    total = result.size + sum(each.rows for each in cured)
    progress(result.size, total)
    for part in _parts(cured, max_reports):
        if stop():
            break
        manifest = driver.manifest
        rows = sum(each.rows for each in part)
        intent = Intent(manifest.generation + 1, manifest.clock, (), requeue=part, reports=rows)
        driver.begin(intent)
        result = _taken(result, driver, intent)
        progress(result.size, total)
    return result


def _taken(result: DrainResult, driver: Driver, intent: Intent) -> DrainResult:
    """Commit an intent; return the result with it."""
    result = result.plus(intent, driver.commit(intent, None))
    return replace(result, size=result.size + sum(each.rows for each in intent.requeue))


def _parts(found: Iterable[Requeue], most: int) -> Iterator[tuple[Requeue, ...]]:
    """Yield what is taken at once: of so many reports, or of one file and plan."""
    part: list[Requeue] = []
    for each in found:
        if part and sum(other.rows for other in part) + each.rows > most:
            yield tuple(part)
            part = []
        part.append(each)
    if part:
        yield tuple(part)


def _ignore(*_: object) -> None:
    pass
