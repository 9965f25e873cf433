"""The results of all shares of a topic in one database.

Every share's state directory is read as it is committed, without its lock: a manifest is replaced
whole, and where a later commit has removed a file under the reader, all is read again. Shards are
of one share each, so that counts, audits and numbers of quarantine add up, and the sum is what one
process would have that took all partitions.

The sum's generation is the sum of the shares' generations, and a window's revision that of its
revisions: they rise with every commit that changes something. The database keeps, beside them,
which generation of each share it has; windows that have not changed since are not estimated again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from sqlalchemy import URL

from pipelines import counts, files
from pipelines.allshares import in_order, summed
from pipelines.commit import StateDirectory
from pipelines.counts import Window, WindowKey
from pipelines.estimates import Candidates
from pipelines.manifest import Manifest
from pipelines.plannames import check_plans
from pipelines.projection import projection_of
from pipelines.results import SHARES, ProjectionError, Results
from sotto.compiled import CompiledPlan
from sotto.errors import DrainError
from sotto.registry import Registry

#: How often all is read again that commits change under the reader, and the pause between, s.
ATTEMPTS = 50
_PAUSE = 0.05

Windows: TypeAlias = Mapping[WindowKey, Window]


@dataclass(frozen=True)
class Combined:
    """What adding shares up came to.

    Parameters
    ----------
    generations : tuple of int
        The shares' own, by number.
    changed : bool
        Whether the database was behind.
    windows : int
        How many had changed and were estimated.
    """

    generations: tuple[int, ...]
    changed: bool = False
    windows: int = 0

    @property
    def generation(self) -> int:
        """The sum of the shares' generations."""
        return sum(self.generations)


def combine(
    state_dirs: Sequence[str | os.PathLike[str]],
    plans: Sequence[CompiledPlan],
    database: str | URL,
    candidates: Candidates | None = None,
) -> Combined:
    """Bring a database to what all shares have committed.

    Parameters
    ----------
    state_dirs : sequence of path
        Of all shares, in any order.
    plans : sequence of CompiledPlan
        All under which any share has counted.
    database : str or URL
        Of these results alone, as SQLAlchemy takes it.
    candidates : mapping, optional
        Strings to look for, by plan fingerprint and metric.

    Raises
    ------
    DrainError
        The directories are not all shares of one topic, or not those of the database; or one of
        them, or the database, was restored from a copy.
    ProjectionError
        The database cannot be used now, or the shares commit too fast.
    """
    registry = Registry(plans)
    directories = [StateDirectory(path) for path in state_dirs]
    pages = _Pages()
    with Results(database) as results:
        for _ in range(ATTEMPTS):
            shares = _committed(directories, registry)
            manifests = list(shares.values())
            whole = summed(manifests)
            since = _since(results, whole, manifests)
            now = tuple(manifest.generation for manifest in manifests)
            if since == now:
                return Combined(now)
            try:
                changed = _changed(shares, since or (0,) * len(now), pages)
            except FileNotFoundError:
                time.sleep(_PAUSE)
                continue
            made = projection_of(whole, registry, candidates or {}, changed, anew=since is None)
            results.project(replace(made, shares=[_row(manifest) for manifest in manifests]))
            return Combined(now, True, sum(map(len, changed)))
    raise ProjectionError("the shares commit faster than their results can be read: try again")


def _committed(
    directories: Sequence[StateDirectory], registry: Registry
) -> dict[StateDirectory, Manifest]:
    """Return what the shares have committed, by their numbers."""
    found = {directory.path: directory.manifest() for directory in directories}
    if len(found) < len(directories):
        raise DrainError("a state directory is given twice")
    for manifest in found.values():
        check_plans(manifest, registry)
    return {StateDirectory(path): found[path] for path in in_order(found)}


def _since(
    results: Results, whole: Manifest, manifests: Sequence[Manifest]
) -> tuple[int, ...] | None:
    """Return which generation of each share a database has; None if it is to be made anew."""
    if not results.projected(whole.state):
        return (0,) * len(manifests)
    had = {row["state"]: row for row in results.table(SHARES)}
    since = []
    for manifest in manifests:
        generation = int(str(had[manifest.state]["generation"]))
        if generation > manifest.generation:
            raise DrainError(
                f"the database has generation {generation} of share {manifest.share}, but its "
                f"state directory only {manifest.generation}: one was restored from a copy"
            )
        # The results may be of a copy of the state directory that went another way.
        if generation and had[manifest.state]["lineage"] != manifest.digest(generation):
            return None
        since.append(generation)
    return tuple(since)


class _Pages:
    """Pages of counts, each read once however often all is tried."""

    def __init__(self) -> None:
        self._read: dict[tuple[StateDirectory, int, int], Windows] = {}

    def windows(self, directory: StateDirectory, page: int, generation: int) -> Windows:
        """Return the windows of a page as a generation wrote it."""
        key = (directory, page, generation)
        if key not in self._read:
            body = files.load(directory.page(page, generation), counts.KIND)
            self._read[key] = counts.unpack_page(body)
        return self._read[key]


def _changed(
    shares: Mapping[StateDirectory, Manifest], since: Sequence[int], pages: _Pages
) -> list[list[tuple[WindowKey, Window]]]:
    """Return the sums of windows that any share has changed after a generation, page by page."""
    wanted = {
        page
        for manifest, before in zip(shares.values(), since, strict=True)
        for page, generation in manifest.pages.items()
        if generation > before
    }
    return [
        _added(
            [
                (pages.windows(directory, page, manifest.pages[page]), before)
                for (directory, manifest), before in zip(shares.items(), since, strict=True)
                if page in manifest.pages
            ]
        )
        for page in sorted(wanted)
    ]


def _added(parts: Sequence[tuple[Windows, int]]) -> list[tuple[WindowKey, Window]]:
    """Return the sums of a page's windows of which any part has changed after its generation."""
    changed = {
        key for part, since in parts for key, window in part.items() if window.revision > since
    }
    found = []
    for key in sorted(changed):
        windows = [part[key] for part, _ in parts if key in part]
        total = sum((window.counts for window in windows[1:]), windows[0].counts)
        found.append((key, Window(sum(window.revision for window in windows), total)))
    return found


def _row(manifest: Manifest) -> dict[str, object]:
    return {
        "state": manifest.state,
        "share": str(manifest.share),
        "generation": manifest.generation,
        "lineage": manifest.digest(manifest.generation),
    }
