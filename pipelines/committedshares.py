"""What all shares of a topic have committed at a moment, and the sums of their windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from pipelines import counts, files
from pipelines.allshares import in_order, summed
from pipelines.commit import StateDirectory
from pipelines.counts import Window, WindowKey
from pipelines.estimates import Candidates
from pipelines.manifest import Manifest
from pipelines.plannames import check_plans
from pipelines.projection import projection_of
from pipelines.results import Projection
from sotto.errors import DrainError
from sotto.registry import Registry

Windows: TypeAlias = Mapping[WindowKey, Window]


class Pages:
    """Pages of counts, each read once however often all is tried."""

    def __init__(self) -> None:
        self._read: dict[Path, Windows] = {}

    def windows(self, directory: StateDirectory, page: int, generation: int) -> Windows:
        """Return the windows of a page as a generation wrote it."""
        path = directory.page(page, generation)
        if path not in self._read:
            self._read[path] = counts.unpack_page(files.load(path, counts.KIND))
        return self._read[path]


@dataclass(frozen=True, eq=False)
class CommittedShares:
    """The manifests of all shares; files that they name may be gone by now.

    Parameters
    ----------
    manifests : mapping
        State directory to what it has committed, by the shares' numbers.
    registry, candidates
        By which windows are estimated.
    pages : Pages
    """

    manifests: Mapping[StateDirectory, Manifest]
    registry: Registry
    candidates: Candidates
    pages: Pages = field(default_factory=Pages)

    @classmethod
    def read(
        cls,
        directories: Sequence[StateDirectory],
        registry: Registry,
        candidates: Candidates,
        pages: Pages,
    ) -> CommittedShares:
        """Return what the shares have committed now.

        Raises
        ------
        DrainError
            They are not all shares of one topic, or a plan is missing.
        """
        found = {directory.path: directory.manifest() for directory in directories}
        if len(found) < len(directories):
            raise DrainError("a state directory is given twice")
        for manifest in found.values():
            check_plans(manifest, registry)
        ordered = {StateDirectory(path): found[path] for path in in_order(found)}
        return cls(ordered, registry, candidates, pages)

    @cached_property
    def whole(self) -> Manifest:
        """What one process would have committed."""
        return summed(list(self.manifests.values()))

    @property
    def generations(self) -> tuple[int, ...]:
        """The shares' own, by number."""
        return tuple(manifest.generation for manifest in self.manifests.values())

    def changed(self, since: Sequence[int]) -> list[list[tuple[WindowKey, Window]]]:
        """Return the sums of windows that any share has changed after a generation, page by page.

        Raises
        ------
        FileNotFoundError
            A later commit has removed a page.
        """
        wanted = {
            page
            for manifest, before in zip(self.manifests.values(), since, strict=True)
            for page, generation in manifest.pages.items()
            if generation > before or manifest.restated(before)
        }
        return [
            _added(
                [
                    (
                        manifest.stated(self.pages.windows(directory, page, manifest.pages[page])),
                        before,
                    )
                    for (directory, manifest), before in zip(
                        self.manifests.items(), since, strict=True
                    )
                    if page in manifest.pages
                ]
            )
            for page in sorted(wanted)
        ]

    def projection(
        self, changed: list[list[tuple[WindowKey, Window]]], *, anew: bool = False
    ) -> Projection:
        """Return what brings results to the sum, given the windows that changed."""
        return projection_of(self.whole, self.registry, self.candidates, changed, anew=anew)


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
