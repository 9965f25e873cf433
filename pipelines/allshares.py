"""All shares of a topic: what their state directories have committed, checked and added up."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path

from pipelines.audit import Totals
from pipelines.manifest import Manifest, Quarantined, add_totals
from pipelines.shares import Share
from pipelines.topiclanes import LaneName
from pipelines.written import Tally
from sotto.errors import DrainError


def in_order(manifests: Mapping[Path, Manifest]) -> list[Path]:
    """Return the state directories of all shares of one topic, by the shares' numbers.

    Parameters
    ----------
    manifests : mapping
        State directory to what it has committed.

    Raises
    ------
    DrainError
        A share is missing or there twice; or they are not of the same topics, or no shares.
    """
    found: dict[Share, Path] = {}
    for path, manifest in manifests.items():
        share = manifest.share
        if share is None:
            raise DrainError(f"{path} is no share of a topic: it has results of its own")
        if share in found:
            raise DrainError(f"{found[share]} and {path} are both of share {share}")
        found[share] = path
    divisions = sorted({share.of for share in found})
    if len(divisions) != 1:
        listed = " and ".join(f"{of} shares" for of in divisions) or "none"
        raise DrainError(f"shares of one division can be combined, not of {listed}")
    (of,) = divisions
    wanted = [Share(number, of) for number in range(1, of + 1)]
    missing = [str(share) for share in wanted if share not in found]
    if missing:
        raise DrainError(f"results of all shares are combined, and {', '.join(missing)} is missing")
    _check_topics(manifests)
    return [found[share] for share in wanted]


def _check_topics(manifests: Mapping[Path, Manifest]) -> None:
    """Refuse shares of topics of different names, or of a topic before and after it was made anew.

    A share may have nothing yet of an epoch of which another one has.
    """
    ids: dict[str, tuple[str, Path]] = {}
    names: dict[str, Path] = {}
    for path, manifest in manifests.items():
        for name in map(LaneName.parse, manifest.lanes):
            names.setdefault(name.topic.name, path)
            known, first = ids.setdefault(str(name.topic), (name.id, path))
            if known != name.id:
                raise DrainError(
                    f"{first} and {path} are of two topics that are both called {name.topic}"
                )
    if len(names) > 1:
        listed = " and ".join(f"{name} ({path})" for name, path in names.items())
        raise DrainError(f"the shares are of different topics: {listed}")


def summed(manifests: Sequence[Manifest]) -> Manifest:
    """Return what one process would have committed that had taken all shares.

    Parameters
    ----------
    manifests : sequence of Manifest
        Of all shares, by number.

    Returns
    -------
    Manifest
        Its state is a name for these directories together, its generation the sum of theirs, its
        clock the latest. It has no states, pages or key: files are in the shares' directories.
    """
    clocks = [manifest.clock for manifest in manifests if manifest.clock is not None]
    opens = [manifest.first_open for manifest in manifests if manifest.first_open is not None]
    state = "\n".join(["shares", *(manifest.state for manifest in manifests)])
    digests = "\n".join(str(manifest.digest(manifest.generation)) for manifest in manifests)
    return Manifest(
        state=hashlib.sha256(state.encode()).hexdigest()[:32],
        key=b"",
        generation=sum(manifest.generation for manifest in manifests),
        clock=max(clocks, default=None),
        first_open=max(opens, default=None),
        plans={found: name for each in manifests for found, name in each.plans.items()},
        periods=_audits(manifests),
        quarantine=_quarantine(manifests),
        expired=_rows(manifest.expired for manifest in manifests),
        lineage=(hashlib.sha256(digests.encode()).hexdigest()[:32],),
        tally=reduce(Tally.plus, (manifest.tally for manifest in manifests)),
        requeued=_rows(manifest.requeued for manifest in manifests),
    )


def _audits(manifests: Sequence[Manifest]) -> dict[int, Totals]:
    """Return the audits of periods, open and closed; shares have no pseudonym in common."""
    total: dict[int, Totals] = {}
    for manifest in manifests:
        for period, totals in manifest.audit().items():
            total[period] = add_totals(total[period], totals) if period in total else totals
    return total


def _quarantine(manifests: Sequence[Manifest]) -> tuple[Quarantined, ...]:
    """Return the numbers of quarantine by generation, each a share's own."""
    by_generation: dict[int, list[Quarantined]] = {}
    for manifest in manifests:
        for entry in manifest.quarantine:
            by_generation.setdefault(entry.generation, []).append(entry)
    return tuple(
        Quarantined(
            generation,
            None,
            _rows(entry.rows for entry in entries),
            tuple(mark for entry in entries for mark in entry.requeued),
        )
        for generation, entries in sorted(by_generation.items())
    )


def _rows(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return dict(sorted(total.items()))
