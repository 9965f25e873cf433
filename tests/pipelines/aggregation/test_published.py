"""No combination of all publications of a window's total depends on few reports of any level."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from every_type import KINDS, counts_of, every_plan
from linear_forms import depends_on_few
from numpy.typing import NDArray
from step_plans import HOUR, PERIOD, THRESHOLD, category, number, plan
from step_universe import made_rows
from test_publication import fewest_touched, figures_of, separable_plan

from mechanisms.frozen import replace
from pipelines.aggregation import published
from pipelines.aggregation.breakdown import slices
from pipelines.aggregation.counts import WindowCounts, WindowKey
from pipelines.aggregation.published import (
    NOTHING,
    PublishedWindow,
    fewest,
    renewed,
    windows_before,
)
from pipelines.aggregation.result_rows import published_again, rows_of_windows
from pipelines.aggregation.rows import Rows
from pipelines.aggregation.state import State
from pipelines.aggregation.step import retracted, step_rows
from sotto.plan.compiled import CompiledPlan
from sotto.plan.registry import Registry

LEAST, SYMBOLS, START = 3, 250, 2800 * PERIOD
COLOUR = category("colour", SYMBOLS, 0.5, 1, 2)
SEGMENTS = [{"name": "os", "values": ["a"]}]


def asking(least: int, metric: dict[str, object] = COLOUR, **changes: object) -> CompiledPlan:
    return replace(plan(1, 8, metric, **changes), minimum_reports=least)


def test_at_least_m_changed_is_not_enough():
    """19 of the first 20 reports and 1 of the next 20 move up: the cut is 2."""
    assert fewest([np.array([n]) for n in (20, 40, 20)], [], 1) == 0
    assert fewest([np.array([n]) for n in (20, 40)], [], 1) == 20
    first, second, third = [1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 1, 0]
    weights = [1, 19, 19, 1]
    assert depends_on_few([first, second, third], weights, 3)
    assert not depends_on_few([first, second, third], weights, 2)


class Telemetry:
    """A window to which reports come, and from which they go, through the real step.

    Every chain answers with a symbol of its own, so that tables show which reports they are of.
    """

    def __init__(self, of: CompiledPlan, seed: int) -> None:
        self.random, self.plan, self.registry = random.Random(seed), of, Registry([of])
        self.key = WindowKey(of.fingerprint, 0, START)
        self.state = State(self.registry, 0, 2800, bytes(16))
        self.cells = [np.zeros((3, SYMBOLS + 6), dtype=np.int64) for _ in range(of.cells)]
        self.levels: dict[int, int] = {}
        self.used = 0
        self.published, self.revision, self.complete = NOTHING, 0, False
        self.tables: list[NDArray[np.int64]] = []
        #: The window before has put some values together, whatever its reports were.
        names = [each.name for each in slices(of.attributes)[1:]]
        held = {name: self.random.randrange(5) for name in names if self.random.random() < 0.5}
        before, *_ = windows_before(self.key, of.metrics[0].window)
        self.earlier = {before: PublishedWindow(complete=True, held=held)}

    def rows(self, reports: Sequence[tuple[int, int, int]]) -> Rows:
        """Return rows of chains, each with the level and symbol; each chain is of a device."""
        chain, level, symbol = np.array(reports).T
        ids = np.stack([chain, chain], axis=1).astype(np.uint64)
        event = np.full(len(reports), START + HOUR)
        return made_rows(
            len(reports),
            period=2800,
            pseudonym=ids,
            chain=ids,
            event=event,
            append=event,
            level=level.astype(np.uint8),
            cell=(chain % self.plan.cells).astype(np.uint8),
            payload=symbol.astype(np.uint8)[:, None],
        )

    def send(self, reports: Sequence[tuple[int, int, int]]) -> None:
        if reports:
            self.add(step_rows(self.state, [self.rows(reports)]).changes)

    def add(self, changes: dict[WindowKey, NDArray[np.int64]]) -> None:
        for key, matrix in changes.items():
            self.cells[key.cell] += matrix

    def come(self, number: int) -> None:
        new = range(self.used, min(self.used + number, SYMBOLS - 1))
        self.used = new.stop
        self.levels |= {chain: self.random.choice((0, 0, 0, 1, 2)) for chain in new}
        self.send([(chain, self.levels[chain], chain) for chain in new])

    def move_up(self, number: int) -> None:
        known = [chain for chain, level in self.levels.items() if level < 2]
        moved = self.random.sample(known, min(number, len(known)))
        self.levels |= {chain: self.levels[chain] + 1 for chain in moved}
        self.send([(chain, self.levels[chain], chain) for chain in moved])

    def revoke(self, number: int) -> None:
        liars = self.random.sample([*self.levels], min(number, len(self.levels)))
        self.send([(chain, self.levels[chain], (chain + 1) % SYMBOLS) for chain in liars])

    def forget(self, number: int) -> None:
        """As ``sotto forget`` does."""
        forgotten = self.random.sample([*self.levels], min(number, len(self.levels)))
        self.levels = {c: level for c, level in self.levels.items() if c not in forgotten}
        gone = np.isin(self.state.pseudonyms["low"], forgotten)
        entries = self.state.entries
        counted = np.flatnonzero(gone[entries["pseudonym"]] & (entries["counted"] > 0))
        self.add(retracted(self.state, counted))
        self.state = self.state.without(gone)

    def publish(self) -> None:
        self.revision += 1
        window = [
            (
                self.key._replace(cell=cell),
                WindowCounts(self.revision, matrix.copy(), self.complete),
            )
            for cell, matrix in enumerate(self.cells)
        ]
        before = self.published
        given = {**self.earlier, **({} if before is NOTHING else {self.key: before})}
        self.published = published_again(window, self.registry, given, self.revision)[self.key]
        if self.published.counts and self.published.counts is not before.counts:
            table = np.sum([*self.published.counts.values()], axis=0)[:, :SYMBOLS]
            self.tables.append(table)

    def live(self) -> None:
        """Let something happen, some ten times."""
        several: list[Callable[[int], None]] = [self.come, self.come, self.move_up, self.move_up]
        done = self.random.randrange(4, 12)
        for round in range(12):
            for act in self.random.sample(several, self.random.randrange(1, 4)):
                act(self.random.choice((1, 2, 3, 8, 30)))
            if self.random.random() < 0.3:
                self.random.choice((self.revoke, self.forget))(self.random.choice((1, 2, 5)))
            self.complete = round >= done
            self.publish()


def gives_away(of: CompiledPlan, seed: int) -> bool:
    """Whether any combination of all publications depends on fewer reports than it may."""
    job = Telemetry(of, seed)
    job.live()
    assert job.tables
    for level in range(3):
        tables = np.array([table[level] for table in job.tables])
        tables = tables[tables.any(axis=1)]
        if tables.size:
            assert set(np.unique(tables)) <= {0, 1}
            forms, weights = np.unique(tables, axis=1, return_counts=True)
            weights[~forms.any(axis=0)] = LEAST
            if depends_on_few(forms.tolist(), weights.tolist(), LEAST):
                return True
    return False


def be_eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publish whenever the numbers allow it, however little is gained."""
    errors = itertools.count()
    monkeypatch.setattr(published, "EARLY_GROWTH", 0.01)
    monkeypatch.setattr(published, "LATE_GROWTH", 0.01)
    monkeypatch.setattr(published, "_error", lambda metric, tables: next(errors))


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("segments", [[], SEGMENTS], ids=["plain", "segments"])
def test_no_combination_of_publications_depends_on_few_reports(segments, eager, monkeypatch):
    """By brute force, over random histories of late, moved, revoked and forgotten reports."""
    if eager:
        be_eager(monkeypatch)
    of = asking(LEAST, COLOUR, **({"segments": segments} if segments else {}))
    assert [seed for seed in range(6) if gives_away(of, seed)] == []


def test_the_brute_force_finds_a_rule_that_looks_at_one_publication_alone(monkeypatch):
    monkeypatch.setattr(
        published, "fewest", lambda shared, apart, strata: [*shared, *apart][-1].sum()
    )
    be_eager(monkeypatch)
    assert any(gives_away(asking(LEAST), seed) for seed in range(6))


def test_no_combination_of_strata_depends_on_fewer_reports_than_the_bound():
    """By brute force: reports of some strata that come and go, publications that join them."""
    draw, tight = np.random.default_rng(1), 0
    for _ in range(150):
        strata, joined, apart = 2, int(draw.integers(0, 3)), int(draw.integers(0, 3))
        if not joined + apart:
            continue
        first = draw.integers(0, joined + apart, 4)
        last = np.array([draw.integers(f, joined + apart) for f in first])
        of, weights = draw.integers(0, strata, 4), draw.integers(1, 6, 4)
        forms: list[list[int]] = []
        numbers = []
        for at in range(joined + apart):
            inside = (first <= at) & (at <= last)
            numbers.append(np.bincount(of[inside], weights[inside], strata).astype(np.int64))
            if at < joined:
                forms.append(inside.astype(int).tolist())
            else:
                forms += [(inside & (of == each)).astype(int).tolist() for each in range(strata)]
        least = fewest(numbers[:joined], numbers[joined:], strata)
        seen = [int(n) for n, column in zip(weights, zip(*forms, strict=True), strict=True)]
        assert not depends_on_few([form for form in forms if any(form)], seen, least)
        tight += least > 0
    assert tight > 20


def isolated(name: str) -> tuple[int, int]:
    """Return how many windows were published again, and of how many that gives few reports away.

    Each report has a coin, and is there for some time.
    """
    of = separable_plan("", 3)
    metric, figures, draw = of.metric(name), figures_of(of, name), np.random.default_rng(1)
    coins, again, unsafe = metric.mechanism.strata, 0, 0
    for _ in range(12):
        number = coins * int(draw.choice((8, 20, 40)))
        first, stay = draw.integers(0, 3, number), draw.choice((2, 9), number)
        kept, of_coin = draw.random(number) < 0.9, np.arange(number) % coins
        groups, weights = np.unique(
            np.array([of_coin, first, first + stay])[:, kept], axis=1, return_counts=True
        )
        state, forms = NOTHING, list[object]()
        for at in range(5):
            inside = (groups[1] <= at) & (at < groups[2])
            table = np.zeros((2, coins, metric.mechanism.chain.cells), dtype=np.int64)
            table[1, :, -1] = np.bincount(groups[0][inside], weights[inside], coins)
            window = {0: WindowCounts(at + 1, table.reshape(2, -1), at > 2)}
            before, state = state, renewed(state, of, metric, window, 3, at + 1)
            if state.counts and state.counts is not before.counts:
                assert (sum(state.counts.values()) == table.reshape(2, -1)).all()
                weighed = np.array(figures)[:, groups[0]] * inside[None, :, None]
                forms += weighed.tolist()
                again += before.counts is not NOTHING.counts
        unsafe += bool(forms) and fewest_touched(forms, weights.tolist(), 3)
    return again, unsafe


@pytest.mark.parametrize("name", ["few", "host"])
def test_no_combination_of_publications_isolates_a_cohort_or_a_line_of_few(name, monkeypatch):
    be_eager(monkeypatch)
    again, unsafe = isolated(name)
    assert (again > 5, unsafe) == (True, 0)


@pytest.mark.parametrize("name", ["few", "host"])
def test_the_brute_force_finds_groups_that_are_only_looked_at_together(name, monkeypatch):
    be_eager(monkeypatch)
    monkeypatch.setattr(published, "fewest", lambda shared, apart, strata: apart[-1].min())
    assert isolated(name)[1] > 0


def window_of(by_level: Sequence[int], complete: bool) -> dict[int, WindowCounts]:
    matrix = np.zeros((3, SYMBOLS + 6), dtype=np.int64)
    matrix[:, 0] = by_level
    return {0: WindowCounts(1, matrix, complete)}


def history(
    *steps: tuple[Sequence[int], bool], of: CompiledPlan | None = None
) -> list[PublishedWindow]:
    of = of or asking(20)
    found = [NOTHING]
    for by_level, complete in steps:
        window = window_of(by_level, complete)
        found.append(renewed(found[-1], of, of.metrics[0], window, of.minimum_reports, 1))
    return found[1:]


def reports(window: PublishedWindow) -> list[int]:
    return [int(n) for n in sum(window.counts.values())[:, 0]] if window.counts else [0, 0, 0]


def test_when_a_window_is_published_again():
    open_, complete = False, True
    found = history(
        ([19, 0, 0], open_),
        ([20, 0, 0], open_),
        ([59, 0, 0], open_),
        ([30, 50, 0], open_),
        ([10, 45, 300], complete),
        ([10, 45, 319], complete),
        ([10, 45, 360], complete),
        ([10, 45, 345], complete),
        ([5, 10, 270], complete),
        ([5, 10, 240], complete),
    )
    assert [reports(each) for each in found] == [
        [0, 0, 0],
        [20, 0, 0],
        [20, 0, 0],
        [0, 50, 0],  # 30 less 20 are too few.
        [0, 0, 300],  # 50 less 45 are too few.
        [0, 0, 300],
        [0, 0, 360],
        [0, 0, 360],
        [0, 0, 270],
        [0, 0, 240],
    ]
    assert [each.complete for each in found] == [False] * 4 + [True] * 6


def test_a_window_is_withheld_where_no_number_may_follow():
    """After 300 and 360 reports, 290 would tell ten apart."""
    steps = [([0, 0, 300], True), ([0, 0, 360], True), ([0, 0, 290], True)]
    assert [reports(each)[2] for each in history(*steps)] == [300, 360, 0]


def test_a_minimum_of_revoked_pseudonyms_takes_no_figures_away():
    """After 20 and 10,000 reports, 9,980 may not follow; a tenth less is another window."""
    early, whole = ([0, 0, 20], False), ([0, 0, 10_000], True)
    for n, left in ((9_980, 10_000), (9_900, 9_900), (9_000, 9_000)):
        assert reports(history(early, whole, ([0, 0, n], True))[-1])[2] == left
    last = history(early, whole, ([0, 0, 9_980], True), ([0, 0, 9_955], True))[-1]
    assert reports(last)[2] == 9_955
    of = asking(20, segments=SEGMENTS)
    for n, segments in ((9_900, True), (9_000, False)):
        last = history(whole, ([0, 0, n], True), of=of)[-1]
        assert (last.segments, reports(last)[2]) == (segments, 10_000 if segments else n)
    # A total of the one level that lost reports would have an error eight times as large.
    steps = [([0, n, 9_000], True) for n in (1_000, 980, 0)]
    assert [reports(each)[1:] for each in history(*steps)] == [[1_000, 9_000]] * 2 + [[0, 0]]


def test_segments_are_first_shown_of_a_table_that_has_not_lost_the_minimum():
    of, early = asking(20, segments=SEGMENTS), [([0, 0, n], False) for n in (20, 10_000)]
    for n, shown in ((9_981, True), (9_980, False), (9_900, True)):
        last = history(*early, ([0, 0, n], True), of=of)[-1]
        assert (last.complete, last.segments) == (True, shown)


def test_a_complete_window_that_few_have_come_to_since_keeps_its_figures():
    before, after = history(([0, 0, 100], False), ([0, 0, 110], True))
    assert reports(before) == reports(after) == [0, 0, 100]
    assert (before.complete, after.complete) == (False, True)


def test_too_few_that_go_change_nothing_and_a_window_that_enough_have_left_is_made_anew():
    steps = [([0, 0, n], True) for n in (100, 81, 80, 61, 10)]
    assert [reports(each)[2] for each in history(*steps)] == [100, 100, 80, 80, 0]


def test_another_minimum_holds_for_what_is_published():
    low, high = asking(20), asking(100)
    (before,) = history(([0, 0, 60], True), of=low)
    after = renewed(before, high, high.metrics[0], window_of([0, 0, 60], True), 100, 2)
    assert (reports(after), after.revision) == ([0, 0, 0], 2)
    again = renewed(after, low, low.metrics[0], window_of([0, 0, 60], True), 20, 3)
    assert reports(again) == [0, 0, 0]


def test_segments_are_published_once_and_strata_when_a_window_is_complete():
    of = asking(20, number("speed", THRESHOLD, 0.5), segments=SEGMENTS)
    mechanism, registry = of.metrics[0].mechanism, Registry([of])
    key = WindowKey(of.fingerprint, 0, START)
    draw = np.random.default_rng(1)

    def shown(
        before: dict[WindowKey, PublishedWindow], n: int, complete: bool
    ) -> tuple[dict[WindowKey, PublishedWindow], set[object], int]:
        cells = []
        for cell in range(2):
            ids = draw.integers(0, 2**63, (n // 2, 2), dtype=np.uint64)
            payloads = np.zeros((n // 2, 1), dtype=np.uint8)
            groups = np.zeros(n // 2, dtype=np.int64)
            counts = mechanism.accumulate(payloads, ids, ids, groups, 1)
            cells.append((key._replace(cell=cell), WindowCounts(1, counts, complete)))
        now = published_again(cells, registry, before, 1)
        rows, _ = rows_of_windows(cells, registry, {}, now)
        return now, {row["segment"] for row in rows}, now[key].strata

    early = shown({}, 400, False)
    assert early[1:] == ({""}, 1)
    whole = shown(early[0], 4000, True)
    assert whole[1] == {"", "os=a", "os=other"}
    assert whole[2] > 1
    late = shown(whole[0], 8000, True)
    assert late[0][key] is whole[0][key]
    for n in (3000, 2990, 30, 4000):
        whole = shown(whole[0], n, True)
        assert whole[1] == {""}


@pytest.mark.parametrize("name", KINDS)
def test_an_open_window_of_every_kind_but_vectors_has_figures(name):
    of = every_plan(20)
    metric = of.metric(name)
    window = WindowCounts(1, counts_of(metric, 120, seed=1), complete=False)
    key, strings = WindowKey(of.fingerprint, metric.index, 0), {"rappor": ("home", "away")}
    (row, *_), found = rows_of_windows([(key, window)], Registry([of]), {of.fingerprint: strings})
    assert not row["complete"]
    until = "until more reports have come or gone, or the window is complete"
    assert row["withheld"] == (until if metric.type == "vector" else None)
    assert (row["withheld"] is None) == any(each["value"] is not None for each in found)


def test_what_is_published_is_read_as_it_was_written():
    *_, window = history(([0, 25, 30], False), ([0, 50, 300], True))
    key = WindowKey(bytes(32), 0, START)
    (found,) = published.unpack(published.pack({key: window})).items()
    assert found[0] == key
    assert published.pack(dict([found])) == published.pack({key: window})
