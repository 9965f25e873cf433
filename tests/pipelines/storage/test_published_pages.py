"""A page's published windows depend on earlier pages if segments are put together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from step_plans import DAY, PERIOD, category, plan

from mechanisms.frozen import replace as with_changes
from pipelines.aggregation import counts
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.result_rows import rows_of_windows
from pipelines.storage import files
from pipelines.storage.directory import StateFiles
from pipelines.storage.manifest import Manifest
from pipelines.storage.published import publish, published_of, windows_of
from sotto.plan.registry import Registry

SEGMENTS = [{"name": "os", "values": ["linux", "mac", "bsd"]}]
PLAN = with_changes(plan(1, 8, category("colour", 3, 1), segments=SEGMENTS), minimum_reports=20)
REGISTRY, LENGTH, START = Registry([PLAN]), 2 * DAY, 2800 * PERIOD
#: Reports of linux, mac, bsd and the others, window by window.
REPORTS = [
    (18, 400, 60, 80),
    (25, 400, 90, 70),
    (19, 400, 300, 50),
    *[(30, 400, 300, 50)] * 3,
    (30, 400, 300, 50),
    (12, 400, 300, 50),
]
BSD, OTHER = "os=linux or bsd", "os=linux or other"


class Directory:
    """A state directory in which windows are published, some at a time."""

    def __init__(self, root: Path) -> None:
        for name in ("counts", "published"):
            (root / name).mkdir(parents=True)
        self.state = StateFiles(root)
        self.manifest = Manifest(state="a", key=bytes(16))
        self.windows: dict[WindowKey, WindowCounts] = {}

    def publish(self, *numbers: int, gone: int = 0) -> None:
        """Publish windows, from each value of which so many reports have gone since."""
        generation, touched = self.manifest.generation + 1, set[int]()
        for number in numbers:
            key = WindowKey(PLAN.fingerprint, 0, START + number * LENGTH)
            touched.add(counts.page_of(key, PERIOD))
            for cell, reports in enumerate(REPORTS[number]):
                matrix = np.zeros((1, 3 + 2), dtype=np.int64)
                matrix[0, 0] = reports - gone
                self.windows[key._replace(cell=cell)] = WindowCounts(generation, matrix)
        pages = dict(self.manifest.pages)
        for page in touched:
            inside = {k: w for k, w in self.windows.items() if counts.page_of(k, PERIOD) == page}
            body = files.with_checksum(counts.KIND, counts.pack_page(inside))
            files.create(self.state.page(page, generation), body)
            pages[page] = generation
        self.manifest = replace(
            self.manifest, generation=generation, time=START + 900 * DAY, pages=pages
        )
        found = publish(self.state, self.manifest, touched, REGISTRY)
        self.manifest = replace(self.manifest, published={**self.manifest.published, **found})

    def unions(self) -> dict[int, list[str]]:
        """Return the segments with a row of several values, by window."""
        found: dict[int, list[str]] = {}
        for page in self.manifest.pages:
            windows = windows_of(self.state, self.manifest, page, REGISTRY)
            published = published_of(self.state, self.manifest, page, REGISTRY)
            for row in rows_of_windows(windows, REGISTRY, {}, published)[0]:
                named = found.setdefault((int(str(row["window_start"])) - START) // LENGTH, [])
                if " or " in str(row["segment"]):
                    assert row["withheld"] is None
                    named.append(str(row["segment"]))
        return found


@pytest.mark.parametrize("at_once", [1, 3, len(REPORTS)])
def test_windows_keep_the_union_of_those_before_them_over_pages_and_runs(tmp_path, at_once):
    directory, numbers = Directory(tmp_path), [*range(len(REPORTS))]
    for first in range(0, len(numbers), at_once):
        directory.publish(*numbers[first : first + at_once])
    assert len(directory.manifest.pages) == 3
    # Windows 3 to 6 are four in a row with enough reports of every part.
    assert [*directory.unions().values()] == [*[[BSD]] * 6, [], [OTHER]]


def test_a_window_whose_first_reports_come_late_changes_none_that_is_published(tmp_path):
    directory = Directory(tmp_path)
    directory.publish(1, 2)
    before = directory.unions()
    assert before == {1: [], 2: [OTHER]}
    directory.publish(0)
    assert directory.unions() == {**before, 0: [BSD]}


def test_a_window_that_reports_have_left_since_is_still_known_to_those_after_it(tmp_path):
    directory = Directory(tmp_path)
    directory.publish(0, 1, 2, 3, 4, 5)
    directory.publish(5, gone=25)
    # It has no segments any more; the next one is the fourth in which all had enough.
    directory.publish(6)
    assert [*directory.unions().values()] == [*[[BSD]] * 5, [], []]


def test_windows_after_a_long_pause_begin_anew(tmp_path):
    directory = Directory(tmp_path)
    directory.publish(0)
    directory.publish(5)
    directory.publish(4)
    assert directory.unions() == {0: [BSD], 4: [BSD], 5: []}
