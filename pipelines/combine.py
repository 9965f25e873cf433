"""The results of all shares of a topic, in one database and in one topic of estimates.

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
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import URL

from pipelines.combinedtopic import CombinedTopic
from pipelines.commit import StateDirectory
from pipelines.committedshares import CommittedShares, Pages
from pipelines.estimates import Candidates
from pipelines.manifest import Manifest
from pipelines.results import SHARES, ProjectionError, Results
from sotto.compiled import CompiledPlan
from sotto.errors import BrokerError, DrainError
from sotto.registry import Registry

#: How often all is read again that commits change under the reader, and the pause between, s.
ATTEMPTS = 50
_PAUSE = 0.05


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
    unpublished : str
        Why results could not be published, if so; the database has them.
    """

    generations: tuple[int, ...]
    changed: bool = False
    windows: int = 0
    unpublished: str = ""

    @property
    def generation(self) -> int:
        """The sum of the shares' generations."""
        return sum(self.generations)


def combine(
    state_dirs: Sequence[str | os.PathLike[str]],
    plans: Sequence[CompiledPlan],
    database: str | URL,
    candidates: Candidates | None = None,
    publish: CombinedTopic | None = None,
) -> Combined:
    """Bring a database, and a topic, to what all shares have committed.

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
    publish : CombinedTopic, optional
        Publishes what is in the database by then; the same one each time, for what it remembers.

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
    pages = Pages()
    done = Combined(())
    with Results(database) as results:
        for _ in range(ATTEMPTS):
            shares = CommittedShares.read(directories, registry, candidates or {}, pages)
            try:
                found = _project(results, shares)
                done = replace(
                    found,
                    changed=done.changed or found.changed,
                    windows=done.windows + found.windows,
                )
                return replace(done, unpublished=_publish(publish, shares))
            except FileNotFoundError:
                time.sleep(_PAUSE)
    raise ProjectionError("the shares commit faster than their results can be read: try again")


def _project(results: Results, shares: CommittedShares) -> Combined:
    """Bring a database to the sum of the shares."""
    manifests, now = list(shares.manifests.values()), shares.generations
    since = _since(results, shares.whole, manifests)
    if not results.withholds_as(shares.registry.plans):
        since = None
    if since == now:
        return Combined(now)
    changed = shares.changed(since or (0,) * len(now))
    made = shares.projection(changed, anew=since is None)
    results.project(replace(made, shares=[_row(manifest) for manifest in manifests]))
    return Combined(now, True, sum(map(len, changed)))


def _publish(publish: CombinedTopic | None, shares: CommittedShares) -> str:
    """Bring a topic to the sum of the shares; return why it cannot be."""
    try:
        if publish is not None:
            publish(shares)
    except BrokerError as error:
        return str(error)
    return ""


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


def _row(manifest: Manifest) -> dict[str, object]:
    return {
        "state": manifest.state,
        "share": str(manifest.share),
        "generation": manifest.generation,
        "lineage": manifest.digest(manifest.generation),
    }
