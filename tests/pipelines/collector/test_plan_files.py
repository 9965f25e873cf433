"""Plans in files and in a folder: new ones are found, and none is forgotten.

``storage/test_plan_folder.py`` has what every folder of plans does with damaged files.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from device_plans import metric, plan

from pipelines.collector.plans import PlanFiles
from sotto.errors import ParameterError, PlanError
from sotto.plan.development import development_plan

PLAN = plan(metric("colour"))
NEXT = replace(PLAN, version=2)


def write(path, *plans):
    for each in plans:
        path.write_bytes(each.to_json())
    return path


def served(files: PlanFiles) -> list[tuple[int, int]]:
    plans = json.loads(files.known.body)["plans"]
    return sorted((each["version"], each["expires"]) for each in plans)


def test_a_folder_is_read_again(tmp_path):
    warned: list[str] = []
    write(tmp_path / "a.json", PLAN)
    files = PlanFiles([], tmp_path, warned.append)
    tag = files.known.etag
    files.reload()
    assert files.known.etag == tag
    write(tmp_path / "b.json", NEXT)
    (tmp_path / "notes.txt").write_text("no plan")
    write(tmp_path / "c.json", replace(PLAN, collector="other.example"))
    files.reload()
    assert files.known.fingerprints == {PLAN.fingerprint, NEXT.fingerprint}
    assert files.known.etag != tag
    # Devices still send what they recorded under it.
    (tmp_path / "a.json").unlink()
    files.reload()
    assert PLAN.fingerprint in files.known.fingerprints
    (said,) = warned
    assert "c.json is left out" in said


def test_a_later_document_takes_the_place_of_an_earlier_one(tmp_path):
    warned: list[str] = []
    path = write(tmp_path / "a.json", PLAN)
    files = PlanFiles([], tmp_path, warned.append)
    write(path, replace(PLAN, expires=PLAN.expires + 1000))
    files.reload()
    assert served(files) == [(1, PLAN.expires + 1000)]
    # In another file, while the first is there: neither may win.
    write(tmp_path / "b.json", PLAN)
    files.reload()
    files.reload()
    assert served(files) == [(1, PLAN.expires + 1000)]
    (each,) = warned
    assert "b.json is left out" in each
    assert "differ in expires" in each
    path.unlink()
    files.reload()
    assert served(files) == [(1, PLAN.expires)]


def test_a_copy_of_a_plan_may_get_a_later_date(tmp_path):
    warned: list[str] = []
    content = write(tmp_path / "a.json", PLAN).read_bytes()
    files = PlanFiles([], tmp_path, warned.append)
    (tmp_path / "b.json").write_bytes(content)
    files.reload()
    write(tmp_path / "b.json", replace(PLAN, expires=PLAN.expires + 1000))
    files.reload()
    files.reload()
    assert served(files) == [(1, PLAN.expires + 1000)]
    assert warned == []


def test_a_development_plan_beside_the_real_one_never_takes_its_place(tmp_path):
    """Its file comes first by name, and reports under the real plan would be refused."""
    warned: list[str] = []
    write(tmp_path / "plan.dev.json", development_plan(PLAN))
    write(tmp_path / "plan.json", PLAN)
    files = PlanFiles([], tmp_path, warned.append)
    files.reload()
    assert files.known.fingerprints == {PLAN.fingerprint}
    (said,) = warned
    assert "plan.dev.json is left out" in said
    # Alone it is served.
    (tmp_path / "plan.json").unlink()
    alone = PlanFiles([], tmp_path, warned.append)
    assert alone.known.fingerprints == {development_plan(PLAN).fingerprint}


def test_what_is_named_must_be_plans(tmp_path):
    with pytest.raises(ParameterError, match="no plan yet"):
        PlanFiles([], tmp_path, print)
    one, other = (
        write(tmp_path / "a.json", PLAN),
        write(tmp_path / "b.json", replace(PLAN, expires=PLAN.expires + 1000)),
    )
    with pytest.raises(PlanError, match="differ in expires"):
        PlanFiles([one, other], None, print)


def test_a_plan_that_has_ended_is_warned_of_and_does_not_do_alone(tmp_path):
    warned: list[str] = []
    ended = write(tmp_path / "a.json", replace(PLAN, expires=1_000))
    with pytest.raises(PlanError, match="all have ended"):
        PlanFiles([ended], None, warned.append)
    files = PlanFiles([ended, write(tmp_path / "b.json", NEXT)], None, warned.append)
    assert files.known.fingerprints == {PLAN.fingerprint, NEXT.fingerprint}
    assert [line.partition(":")[0] for line in warned] == [
        f"plan {PLAN.plan!r} version 1 ended on 1970-01-01"
    ] * 2
