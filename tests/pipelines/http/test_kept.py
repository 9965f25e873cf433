"""Answers that are kept: how many, for how long, and who waits."""

from __future__ import annotations

import pytest

from pipelines.http.kept import Answer, BusyError, KeptAnswers


@pytest.mark.parametrize("length", [1, 40])
def test_answers_are_kept_up_to_some_bytes(length: int) -> None:
    kept, made = KeptAnswers(100), list[str]()

    def get(revision: str, asked: str) -> bytes:
        def make() -> Answer:
            made.append(asked)
            return Answer(asked.encode() * (41 - length))

        # An answer and what was asked for it have 43 bytes together.
        return kept.get(revision, asked * length, make).body

    for asked in "abacab":
        assert get("1", asked) == asked.encode() * (41 - length)
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
