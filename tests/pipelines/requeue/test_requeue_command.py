"""The command ``sotto requeue`` on a state directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from committed_states import committed, counted
from requeued import BOTH, aggregated

from pipelines.requeue.contents import waiting_lines
from sotto_cli import main

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return aggregated(tmp_path_factory.mktemp("requeue"))


def sotto(folder: Path, *more: str, plans: tuple[str, ...] = ("first", "late")) -> int:
    given = [text for name in plans for text in ("--plan", str(folder / f"{name}.json"))]
    return main(["requeue", *given, *more])


def test_what_waits_is_told_and_then_counted(folder, capsys):
    state = ("--state", str(folder / "state"))
    before = committed(folder / "state")
    assert sotto(folder, *state, "--dry-run") == 0
    first, head, cured, stranger = capsys.readouterr().out.splitlines()
    number = int(first.split()[0])
    assert first == f"{number} reports would be requeued"
    assert head.split() == ["reason", "plan", "waiting", "requeued"]
    assert cured.split() == ["unknown_plan", "step", "version", "1", str(number), "0"]
    assert stranger.split()[:3] == ["unknown_plan", "not", "given"]
    assert committed(folder / "state") == before
    assert sotto(folder, *state, "--dry-run", plans=("first",)) == 0
    assert capsys.readouterr().out.startswith("0 reports would be requeued\n")
    assert sotto(folder, *state, "--dry-run", plans=("late",)) == 0
    assert capsys.readouterr().out.startswith(f"{number} reports would be requeued\n")
    assert sotto(folder, *state, plans=("late",)) == 0
    assert f": {number} reports requeued, " in capsys.readouterr().out
    assert counted(folder / "state") == counted(folder / "known")
    assert sotto(folder, *state, "--dry-run", plans=()) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "0 reports would be requeued"
    assert lines[2].split()[-2:] == ["0", str(number)]
    assert sotto(folder, *state) == 0
    assert "nothing that these plans cure" in capsys.readouterr().out


def test_many_plans_that_nobody_gave_are_not_all_shown():
    waiting = {("unknown_plan", f"{number:064x}"): number + 1 for number in range(30)}
    lines = waiting_lines(waiting, {}, BOTH)
    assert lines[0] == "0 reports would be requeued"
    assert (len(lines), lines[-1]) == (23, "and 10 more plans that nobody gave")
