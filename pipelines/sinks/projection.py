"""What a database is to hold: made from the committed files alone, for any generation it has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict

from pipelines.aggregation import counts
from pipelines.aggregation.counts import Window, WindowKey
from pipelines.aggregation.result_rows import Candidates, joined, rows_of_windows
from pipelines.sinks.results import Projection
from pipelines.storage import files
from pipelines.storage.directory import StateDirectory
from pipelines.storage.manifest import Manifest, Quarantined
from sotto.plan.registry import Registry


def projection(
    directory: StateDirectory,
    manifest: Manifest,
    registry: Registry,
    candidates: Candidates,
    since: int,
    *,
    anew: bool = False,
) -> Projection:
    """Return what brings a database from one generation to the committed one.

    Parameters
    ----------
    directory : StateDirectory
        Holds the counts.
    manifest : Manifest
        What is committed.
    registry, candidates
        By which windows are estimated.
    since : int
        The generation that the database has; 0 for none. Windows changed after it are estimated.
    anew : bool
        Whether the database is emptied first.
    """
    return Projection(
        state=manifest.state,
        generation=manifest.generation,
        clock=manifest.clock,
        changed=(
            _rows(windows, registry, candidates)
            for windows in _changed(directory, manifest, registry, since)
        ),
        periods=list(_periods(manifest, registry)),
        quarantine=list(_quarantine(manifest)),
        lineage=manifest.digest(manifest.generation),
        anew=anew,
    )


def _rows(
    windows: list[tuple[WindowKey, Window]], registry: Registry, candidates: Candidates
) -> tuple[list[dict[str, object]], list[dict[str, object]]]:
    """Return the rows of windows; no estimates of those whose reports were all taken back."""
    full = [(key, window) for key, window in windows if window.counts.any()]
    empty = [(key, window) for key, window in windows if not window.counts.any()]
    rows, estimates = rows_of_windows(full, registry, candidates)
    return rows + rows_of_windows(empty, registry, candidates)[0], estimates


def _changed(
    directory: StateDirectory, manifest: Manifest, registry: Registry, since: int
) -> Iterator[list[tuple[WindowKey, Window]]]:
    """Yield what changed after a generation, page by page."""
    restated = manifest.restated(since)
    for page, generation in sorted(manifest.pages.items()):
        if generation > since or restated:
            body = files.load(directory.page(page, generation), counts.KIND)
            windows = manifest.stated(counts.unpack_page(body), registry)
            whole = joined(windows, registry)
            changed = [(key, window) for key, window in whole if window.revision > since]
            yield changed + (manifest.renamed(changed, registry, since) if since else [])


def _periods(manifest: Manifest, registry: Registry) -> Iterator[dict[str, object]]:
    for period, totals in sorted(manifest.audit().items()):
        yield {
            "collector": registry.collector,
            "period_start": period * registry.period,
            "period_end": (period + 1) * registry.period,
            "closed": manifest.first_open is not None and period < manifest.first_open,
            **asdict(totals),
        }


def _quarantine(manifest: Manifest) -> Iterator[dict[str, object]]:
    kept = [(each.generation, each.rows, _requeued(each)) for each in manifest.quarantine]
    gone = Counter(manifest.requeued)
    for _, _, requeued in kept:
        gone.subtract(requeued)
    for generation, rows, requeued in [(0, manifest.expired, gone), *kept]:
        for reason, number in rows.items():
            yield {
                "generation": generation,
                "reason": reason,
                "rows": number,
                "requeued": requeued[reason],
            }


def _requeued(entry: Quarantined) -> Counter[str]:
    """Return how many rows of a quarantine file have been taken again, by reason."""
    total: Counter[str] = Counter()
    for reason, _, rows in entry.requeued:
        total[reason] += rows
    return total
