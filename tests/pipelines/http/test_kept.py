"""Answers that are kept: how many, for how long, and who waits."""

from __future__ import annotations

import pytest

from pipelines.http.kept import Answer, BusyError, KeptAnswers


def test_answers_are_kept_up_to_some_bytes() -> None:
    kept, made = KeptAnswers(100), list[str]()

    def get(revision: str, asked: str) -> bytes:
        def make() -> Answer:
            made.append(asked)
            return Answer(asked.encode() * 40)

        return kept.get(revision, asked, make).body

    for asked in "abacab":
        assert get("1", asked) == asked.encode() * 40
    # The one that was asked for least lately makes room.
    assert "".join(made) == "abcb"
    get("2", "a")
    get("2", "a")
    assert "".join(made) == "abcba"


def test_no_more_answers_are_waited_for_than_can_soon_be_made(monkeypatch) -> None:
    monkeypatch.setattr("pipelines.http.kept._WAITING", 1)
    kept = KeptAnswers(1000)
    assert kept.get("1", "kept", lambda: Answer(b"a")) == Answer(b"a")

    def crowded() -> Answer:
        with pytest.raises(BusyError):
            kept.get("1", "another", lambda: Answer(b"c"))
        assert kept.get("1", "kept", lambda: Answer(b"x")) == Answer(b"a")
        return Answer(b"b")

    assert kept.get("1", "one", crowded) == Answer(b"b")
    assert kept.get("1", "another", lambda: Answer(b"c")) == Answer(b"c")
