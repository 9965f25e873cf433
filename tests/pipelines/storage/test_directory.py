"""The note about the last run: for those who watch, and nothing depends on it."""

from __future__ import annotations

from report_logs import honest, write
from step_plans import plans

from pipelines.bounded.run import aggregate
from pipelines.storage.directory import LastRun


def test_every_run_leaves_a_note(tmp_path):
    log, state = write(tmp_path / "log", honest(2, 1, 1)), tmp_path / "state"
    aggregate(log, state, plans())
    first = LastRun.of(state)
    assert first.generation == 1
    assert 0 < first.seconds < 3600
    assert first.looked >= first.finished > 1_700_000_000_000
    aggregate(log, state, plans())
    again = LastRun.of(state)
    assert (again.generation, again.finished, again.seconds) == (1, first.finished, first.seconds)
    assert again.looked >= first.looked


def test_a_damaged_note_stops_no_run(tmp_path):
    log, state = write(tmp_path / "log", honest(1, 1, 1)), tmp_path / "state"
    state.mkdir()
    for content in (b"", b"[]", b'{"format":1}', b'{"format":2}', b"\xff"):
        (state / LastRun.NAME).write_bytes(content)
        assert LastRun.of(state) is None
    aggregate(log, state, plans())
    note = LastRun.of(state)
    assert note.generation == 1


def test_a_note_that_cannot_be_left_is_none(tmp_path):
    (tmp_path / LastRun.NAME).mkdir()
    LastRun(1, 2).leave(tmp_path)
    assert (tmp_path / LastRun.NAME).is_dir()
