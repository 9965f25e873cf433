"""Withheld segments: nothing that depends on few reports can be computed from the others."""

from __future__ import annotations

import hashlib
import itertools
import random

import numpy as np
import pytest
from linear_forms import depends_on_few, rank

from pipelines.aggregation import breakdown
from pipelines.aggregation.breakdown import broken_down, held_back, slices, withheld
from sotto.plan.segments import Attribute, cells


def attributes_of(shape: list[int]) -> tuple[Attribute, ...]:
    return tuple(
        Attribute(f"a{at}", tuple(f"v{number}" for number in range(size)))
        for at, size in enumerate(shape)
    )


def split(attributes, reports, least, held=frozenset()):
    """Published and withheld slices, as vectors over the cells with reports."""
    live = np.flatnonzero(reports).tolist()
    names = withheld(attributes, reports, least, held)
    published, hidden = [], []
    for each in slices(attributes):
        if reports[[*each.cells]].any():
            vector = [int(cell in each.cells) for cell in live]
            (hidden if each.name in names else published).append(vector)
    return live, published, hidden


def keep(attributes, reports, least, before):
    """The slices held back in a window of which every report is of one level and group."""
    own = {each.name: int(reports[[*each.cells]].sum()) for each in slices(attributes)}
    enough = {name: number >= least for name, number in own.items() if number}
    return held_back(
        attributes, enough, lambda held: withheld(attributes, reports, least, held), before
    )


def check(attributes, reports, least, held=frozenset()) -> tuple[int, int]:
    live, published, hidden = split(attributes, reports, least, held)
    counts = reports[live]
    assert all(counts @ vector >= least for vector in published)
    whole = rank(published)
    for vector in hidden:
        assert rank([*published, vector]) > whole, "what is withheld follows from the rest"
    few = depends_on_few(published, counts.tolist(), least)
    assert not few, "a combination depends on few reports"
    return len(published), len(hidden)


def random_table(draw) -> tuple[tuple[Attribute, ...], np.ndarray, int]:
    dimensions = int(draw.integers(1, 4))
    largest = {1: 8, 2: 3, 3: 2}[dimensions]
    shape = [int(draw.integers(2, largest + 1)) for _ in range(dimensions)]
    size = int(np.prod(shape))
    reports = (draw.random(size) ** 4 * draw.choice([5, 30, 200])).astype(np.int64)
    reports *= draw.random(size) < 0.8
    return attributes_of(shape), reports, int(draw.choice([2, 5, 20]))


def test_nothing_withheld_follows_and_nothing_of_few_reports():
    draw, shown, hidden = np.random.default_rng(20), 0, 0
    for _ in range(250):
        published, kept = check(*random_table(draw))
        shown, hidden = shown + published, hidden + kept
    assert shown > 500 < hidden, "the tables are of both kinds"


def test_each_window_is_safe_whatever_earlier_ones_withheld():
    """By brute force, over windows of one table whose reports change at random."""
    draw, kept = np.random.default_rng(21), 0
    for _ in range(25):
        (attributes, reports, least), held = random_table(draw), {}
        for _ in range(6):
            fresh = withheld(attributes, reports, least)
            held = keep(attributes, reports, least, held)
            check(attributes, reports, least, frozenset(held))
            kept += not withheld(attributes, reports, least, frozenset(held)) <= fresh
            reports = draw.poisson(reports + draw.choice((0, 1, 3)))
    assert kept > 20, "slices were withheld that did not have to be"


def changes(of: list[frozenset[str]]) -> int:
    return sum(one != other for one, other in itertools.pairwise(of))


def test_a_union_hardly_ever_changes():
    """A value of 18 reports on average is below 20 in two of three windows."""
    (os,), draw = attributes_of([4]), np.random.default_rng(22)
    without, kept = [], []
    for _ in range(6):
        fresh, lasting, held = [], [], {}
        for _ in range(60):
            reports = draw.poisson([18, 90, 400, 80])
            held = keep((os,), reports, 20, held)
            fresh.append(frozenset(withheld((os,), reports, 20)))
            lasting.append(frozenset(withheld((os,), reports, 20, frozenset(held))))
        without.append(changes(fresh))
        kept.append(changes(lasting))
    assert np.mean(without) > 25
    assert np.mean(kept) < 1.5


def test_a_union_is_split_after_four_windows_in_which_every_part_had_enough():
    attributes, held, found = attributes_of([4]), {}, []
    for few, partner in [(18, 60), *[(25, 60)] * 3, (19, 300), *[(25, 60)] * 4, (19, 300)]:
        reports = np.array([few, partner, 400, 80])
        held = keep(attributes, reports, 20, held)
        found.append(sorted(withheld(attributes, reports, 20, frozenset(held))))
    union = ["a0=v0", "a0=v1"]
    # The partner stays though another one is smaller; once it is split, the smallest is taken.
    assert found == [union] * 8 + [[], ["a0=v0", "a0=v3"]]


def test_a_value_that_was_small_once_leaves_a_union_that_stays():
    attributes, held, found = attributes_of([4]), {}, []
    for of_second in (15, *[100] * 5):
        reports = np.array([10, of_second, 400, 80])
        held = keep(attributes, reports, 20, held)
        found.append(sorted(withheld(attributes, reports, 20, frozenset(held))))
    assert found[:4] == [["a0=v0", "a0=v1"]] * 4
    # The only partner that it has.
    assert found[5] == ["a0=v0", "a0=v1"]
    grown = keep(attributes, np.array([10, 100, 400, 12]), 20, held)
    assert sorted(grown) == ["a0=v0", "a0=v1", "a0=v3"]


def test_a_window_that_is_withheld_as_a_whole_changes_no_union():
    attributes = attributes_of([3])
    held = keep(attributes, np.array([18, 90, 400]), 20, {})
    assert keep(attributes, np.array([3, 9, 4]), 20, held) == held


def test_only_the_slices_of_few_reports_would_not_be_enough(monkeypatch):
    """The check itself: from the total and all other parts the withheld one follows."""
    monkeypatch.setattr(
        breakdown,
        "_line",
        lambda reports, least, anyway: {
            ((0, int(at)),) for at in np.flatnonzero((reports > 0) & (reports < least))
        },
    )
    with pytest.raises(AssertionError):
        check(attributes_of([3]), np.array([100, 40, 3]), 20)


@pytest.mark.parametrize(
    ("shape", "reports", "expected"),
    [
        ([3], [100, 40, 3], ["a0=v1", "a0=v2"]),
        ([3], [100, 15, 12], ["a0=v1", "a0=v2"]),
        ([3], [100, 40, 0], []),
        ([2], [9, 9], ["", "a0=v0", "a0=v1"]),
        # A rectangle of cells, and neither sums nor the total.
        ([2, 2], [100, 50, 60, 3], ["v0,v0", "v0,v1", "v1,v0", "v1,v1"]),
    ],
)
def test_what_is_withheld_beside_the_few(shape, reports, expected):
    found = withheld(attributes_of(shape), np.array(reports), 20)
    if len(shape) == 1:
        assert sorted(found) == expected
    else:
        assert sorted(name.replace("a0=", "").replace("a1=", "") for name in found) == sorted(
            expected
        )


def test_the_choice_among_equals_is_that_of_former_releases():
    """A release that withheld another of two equal slices would show both between the two.

    Their difference from what the former release showed could depend on few reports.
    """
    draw, digest = random.Random(5), hashlib.sha256()
    for _ in range(500):
        dimensions = draw.choice([1, 2, 3])
        attributes = attributes_of(
            draw.choices([2, 3] if dimensions == 3 else [2, 3, 5], k=dimensions)
        )
        sizes = draw.choices([0, 3, 12, 19, 20, 40, 40, 100], k=cells(attributes))
        digest.update(repr(sorted(withheld(attributes, np.array(sizes), 20))).encode())
    assert digest.hexdigest() == "402db40541fb46d43e0f26eb19580ac6f6160c9961c86cefd794af72d760fb1c"


def test_two_sums_whose_difference_is_of_few_reports_are_not_both_published():
    attributes, reports = attributes_of([2, 2]), np.array([900, 0, 3, 800])
    names = withheld(attributes, reports, 20)
    assert len(names & {"a0=v0", "a0=v1", "a1=v0", "a1=v1"}) == 2
    check(attributes, reports, 20)


def test_an_arm_is_crossed_with_one_segment_and_not_with_two():
    two = attributes_of([3, 3])
    assert len(slices(two)) == 1 + 6 + 9
    three = attributes_of([3, 3, 3])
    assert len(slices(three)) == 1 + 9 + 9
    assert {each.fixed[-1][0] for each in slices(three) if len(each.fixed) == 2} == {1}
    # Arms are withheld together where the smallest has few reports in all cells of the segments.
    reports = np.full((3, 3, 3), 50)
    assert withheld(three, reports.ravel(), 20) == set()
    reports[:, :, 1] = [[5, 1, 1], [1, 1, 1], [1, 1, 1]]
    assert withheld(three, reports.ravel(), 20) == {"a2=v0", "a2=v1", "a2=v2"}


def test_which_slices_have_estimates_does_not_depend_on_reports():
    attributes = attributes_of([3, 3])
    few = ["item"] * 10
    of = {kind: [*broken_down(attributes, kind, few)] for kind in ("category", "string", "vector")}
    assert [len(of[kind]) for kind in of] == [15, 6, 0]
    # Pairs are left out if a document would be too long, and then all.
    for items, arms, expected in (
        (["item"] * 900, 0, 15),
        (["item"] * 1100, 0, 6),
        (["item" * 300] * 900, 0, 0),
        (["item"] * 2100, 0, 6),
        (["item"] * 2400, 0, 0),
        (["item"] * 900, 3, 6),
    ):
        assert len([*broken_down(attributes, "category", items, arms)]) == expected
