"""The publications of the windows of a page of counts: how they are read, and renewed by a commit.

:mod:`pipelines.aggregation.published` decides what is published; this module knows the files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from pipelines.aggregation import counts, published
from pipelines.aggregation.counts import WindowCounts, WindowKey, page_of
from pipelines.aggregation.published import PublishedWindow, windows_before
from pipelines.aggregation.result_rows import joined, published_again
from pipelines.storage import files
from pipelines.storage.directory import StateFiles
from pipelines.storage.manifest import Manifest, PublishedPage
from sotto.plan.registry import Registry


def windows_of(
    state: StateFiles, manifest: Manifest, page: int, registry: Registry
) -> list[tuple[WindowKey, WindowCounts]]:
    """Return the windows of a committed page of counts, versions of a plan added up."""
    path = state.page(page, manifest.pages[page])
    with files.committed(path):
        return joined(counts.unpack_page(files.load(path, counts.KIND)), registry, manifest.time)


def published_of(
    state: StateFiles, manifest: Manifest, page: int, registry: Registry
) -> dict[WindowKey, PublishedWindow]:
    """Return the publications of a page's windows, under the windows' present names."""
    if page not in manifest.published:
        return {}
    path = state.published(page, manifest.published[page].generation)
    with files.committed(path):
        found = published.unpack(files.load(path, published.KIND))
    return _renamed(found, registry, manifest.generation)


def publish(
    state: StateFiles, manifest: Manifest, pages: Iterable[int], registry: Registry
) -> dict[int, PublishedPage]:
    """Renew the publications of the windows of pages and write them; return the new files by page.

    ``manifest``: that of the generation that is committed.
    """
    found = {}
    of_page: dict[int, dict[WindowKey, PublishedWindow]] = {}

    def known(page: int) -> dict[WindowKey, PublishedWindow]:
        if page not in of_page:
            of_page[page] = published_of(state, manifest, page, registry)
        return of_page[page]

    for page in sorted(pages):
        before, windows = known(page), windows_of(state, manifest, page, registry)
        earlier = {
            each: known(at)[each] for each, at in _earlier(windows, registry) if each in known(at)
        }
        given = {**earlier, **before}
        now = {**before, **published_again(windows, registry, given, manifest.generation)}
        of_page[page] = now
        due = [
            registry.complete_at(*key[:3])
            for key, _ in windows
            if not now[key._replace(cell=0)].complete
        ]
        content = files.with_checksum(published.KIND, published.pack(now))
        files.create(state.published(page, manifest.generation), content)
        found[page] = PublishedPage(manifest.generation, min(due, default=None))
    return found


def _earlier(
    windows: Iterable[tuple[WindowKey, WindowCounts]], registry: Registry
) -> set[tuple[WindowKey, int]]:
    """Return the earlier windows whose held-back segments may be taken over, and their pages."""
    found = set()
    for key in {key._replace(cell=0) for key, _ in windows}:
        plan = registry.by_fingerprint[key.fingerprint]
        if plan.attributes:
            before = windows_before(key, plan.metrics[key.metric].window)
            found |= {(each, page_of(each, registry.period)) for each in before}
    return found


def _renamed(
    before: dict[WindowKey, PublishedWindow], registry: Registry, generation: int
) -> dict[WindowKey, PublishedWindow]:
    """Return publications under the present names of their windows.

    A window is named after the lowest version of its plan that has the metric, which may have come
    since. The former name stays, as ``superseded`` and without figures.
    """
    found = {}
    for key, window in before.items():
        first = registry.same[key.fingerprint, key.metric][0]
        name = WindowKey(first.fingerprint, first.metric.index, key.start)
        found[key] = window
        if name != key and not window.superseded:
            found[key] = PublishedWindow(generation, complete=True, superseded=True)
            found[name] = replace(window, revision=generation)
    return found
