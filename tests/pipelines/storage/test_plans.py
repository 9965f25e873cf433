"""The plans and candidates that a state directory keeps, and what becomes of damage."""

from __future__ import annotations

import pytest
from step_plans import category, plan

from mechanisms.frozen import replace
from pipelines.storage.plans import StoredPlans
from sotto.errors import AggregationError

FIRST = plan(3, 4, category("colour", 3, 0.5, 1))
SECOND = plan(4, 4, category("colour", 3, 0.5, 1))
STRINGS = {FIRST.fingerprint: {"path": ("home", "away")}}


def test_what_is_kept_is_found(tmp_path):
    plans = StoredPlans(tmp_path)
    plans.keep([FIRST, SECOND], STRINGS)
    assert set(plans.load_all()) == {FIRST, SECOND}
    registry, candidates = plans.with_given([], {})
    assert set(registry.plans) == {FIRST, SECOND}
    assert plans.with_given([], {})[0] is registry
    assert candidates[FIRST.fingerprint] == {"path": ("home", "away")}
    assert candidates[SECOND.fingerprint] == {}


def test_what_is_given_takes_the_place_of_what_is_kept(tmp_path):
    plans = StoredPlans(tmp_path)
    plans.keep([FIRST, SECOND], STRINGS)
    later = replace(FIRST, owner="other@tests.example", minimum_reports=50)
    registry, candidates = plans.with_given([later], {})
    assert registry.by_fingerprint[FIRST.fingerprint] == later
    assert candidates[FIRST.fingerprint] == {"path": ("home", "away")}
    _, candidates = plans.with_given([later], {FIRST.fingerprint: {"path": ("abroad",)}})
    assert candidates[FIRST.fingerprint] == {"path": ("abroad",)}
    plans.keep(registry.plans, candidates)
    assert plans.load(FIRST.fingerprint_hex) == later
    assert plans.candidates(FIRST.fingerprint_hex) == {"path": ("abroad",)}


@pytest.mark.parametrize("ending", ["json", "candidates"])
def test_any_changed_byte_is_refused_by_name(tmp_path, ending):
    plans = StoredPlans(tmp_path)
    plans.keep([FIRST], STRINGS)
    path = tmp_path / f"{FIRST.fingerprint_hex}.{ending}"
    sound = path.read_bytes()
    for at in range(len(sound)):
        path.write_bytes(sound[:at] + bytes([sound[at] ^ 1]) + sound[at + 1 :])
        with pytest.raises(AggregationError, match=path.name):
            plans.with_given([], {})
    for content in (b"", b"[]", b"{}", sound[:-1], sound * 2):
        path.write_bytes(content)
        with pytest.raises(AggregationError, match=f"{path.name}.*restore it, or remove it"):
            plans.with_given([FIRST], {})
    path.write_bytes(sound)
    assert plans.with_given([], {})[0].plans == (FIRST,)


def test_a_plan_under_the_name_of_another_is_refused(tmp_path):
    plans = StoredPlans(tmp_path)
    plans.keep([FIRST, SECOND], {})
    plans.path(FIRST.fingerprint_hex).replace(plans.path(SECOND.fingerprint_hex))
    with pytest.raises(
        AggregationError, match=f"{SECOND.fingerprint_hex}.json holds the plan of another"
    ):
        plans.load_all()
