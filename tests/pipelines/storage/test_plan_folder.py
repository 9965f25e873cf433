"""A folder of plan files: what cannot be used is left out, and is told once."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_texts import plan_head

from clientsdk.testing import small_plan
from mechanisms.frozen import replace
from pipelines.sources.log import EmbeddedLog
from pipelines.storage.plan_folder import PlanFolder
from pipelines.storage.plans import StoredPlans
from sotto.errors import BrokerError, ParameterError
from sotto.plan.compiled import CompiledPlan, canonical

FIRST = small_plan()
SECOND = replace(FIRST, version=FIRST.version + 1)


def with_grace(plan, grace):
    """Return a plan as one that takes reports for longer, or less long."""
    return CompiledPlan.from_json(canonical({**plan.document(), "grace": grace}))


CONTRADICTORY = with_grace(FIRST, FIRST.grace // 2)
OTHERS = replace(SECOND, collector="another.example")
LONGER = with_grace(SECOND, 2 * FIRST.grace)


class OneHorizon(EmbeddedLog):
    """A source that plans of longer horizons than the first one's cannot be used with."""

    reachable = True

    def open(self, registry):
        if not self.reachable:
            raise BrokerError("nobody answers")
        if registry.horizon > FIRST.horizon:
            raise BrokerError("retention is too short")


@pytest.fixture
def source(tmp_path):
    return OneHorizon(tmp_path / "log")


@pytest.fixture
def warnings():
    return []


@pytest.fixture
def look(tmp_path, source, warnings):
    """Looks at the folder ``plans`` beside a state directory that has the first plan."""
    (tmp_path / "plans").mkdir()
    stored = StoredPlans(tmp_path / "stored")
    (tmp_path / "stored").mkdir()
    stored.keep([FIRST], {})
    folder = PlanFolder(tmp_path / "plans", stored, source.open, warnings.append)
    return lambda: folder.added_to([], {})[0]


def put(tmp_path, name, content):
    path = tmp_path / "plans" / name
    path.write_bytes(content if isinstance(content, bytes) else content.to_json())
    return path


def test_files_are_found_when_they_are_put_there(tmp_path, look, warnings):
    assert look() == []
    put(tmp_path, "second.json", SECOND)
    put(tmp_path, "notes.txt", b"no plan")
    put(tmp_path, ".half.json", b"{")
    assert look() == look() == [SECOND]
    assert warnings == []


#: Files that cannot be used: their names, contents, and why.
UNUSABLE = {
    "cut": ("a.json", b"{", "is not a compiled plan"),
    "bytes": ("a.json", b"\xff\xfe", "is not a compiled plan"),
    "contradiction": ("a.json", CONTRADICTORY, "has two fingerprints"),
    "collector": ("a.json", OTHERS, "collector 'another.example' must be"),
    "horizon": ("a.json", LONGER, "retention is too short"),
    "no text": ("a.yaml", b"\xff\xfe\x00", "is not text in UTF-8"),
    "no YAML": ("a.yaml", b"metrics: [", "cannot be read as YAML"),
}


@pytest.mark.parametrize("name", UNUSABLE)
def test_what_cannot_be_used_is_told_once_and_stops_nothing(tmp_path, look, warnings, name):
    file, content, why = UNUSABLE[name]
    put(tmp_path, file, content)
    put(tmp_path, "b.json", SECOND)
    assert look() == look() == [SECOND]
    (warning,) = warnings
    assert warning.startswith(f"{tmp_path / 'plans' / file} is left out: ")
    assert why in warning


def test_every_file_that_cannot_be_used_is_told(tmp_path, look, warnings):
    put(tmp_path, "a.json", b"{")
    put(tmp_path, "b.yaml", b"metrics: [")
    assert look() == look() == []
    named = [Path(warning.partition(" is left out")[0]).name for warning in warnings]
    assert named == ["a.json", "b.yaml"]


def test_candidates_are_those_that_their_file_has_now(tmp_path, source, warnings):
    (tmp_path / "plans").mkdir()
    folder = PlanFolder(
        tmp_path / "plans", StoredPlans(tmp_path / "s"), source.open, warnings.append
    )
    string = "type: string, candidates: airports.txt, bits: 64, window: 28d, ladder: [{epsilon: 2}]"
    put(tmp_path, "a.yaml", (plan_head() + f"  dest: {{{string}}}").encode())
    for strings in ("JFK", "LAX"), ("JFK", "LAX", "SFO"):
        put(tmp_path, "airports.txt", "\n".join(strings).encode())
        plans, candidates = folder.added_to([], {})
        assert candidates == {plans[0].fingerprint: {"dest": strings}}
    assert warnings == []


def test_a_file_that_is_mended_is_used_and_told_again_when_it_is_spoilt(tmp_path, look, warnings):
    for content, found in ((b"{", []), (SECOND, [SECOND]), (b"{", [])):
        put(tmp_path, "a.json", content)
        assert look() == look() == found
    assert len(warnings) == 2


def test_of_two_files_that_contradict_each_other_the_first_is_used(tmp_path, look, warnings):
    put(tmp_path, "a.json", SECOND)
    put(tmp_path, "b.json", replace(CONTRADICTORY, version=SECOND.version))
    assert look() == [SECOND]
    assert "b.json is left out" in warnings[0]


def test_a_source_out_of_reach_is_no_fault_of_a_plan(tmp_path, look, source, warnings):
    put(tmp_path, "a.json", SECOND)
    object.__setattr__(source, "reachable", False)
    with pytest.raises(BrokerError, match="nobody answers"):
        look()
    object.__setattr__(source, "reachable", True)
    assert look() == [SECOND]
    assert warnings == []


def test_a_folder_may_vanish_but_must_be_there_first(tmp_path, look, source, warnings):
    (tmp_path / "plans").rmdir()
    assert look() == look() == []
    assert len(warnings) == 1
    with pytest.raises(ParameterError, match="no such folder"):
        PlanFolder(tmp_path / "plans", StoredPlans(tmp_path / "s"), source.open, warnings.append)
