"""Figures of a file are what they are said to be; ``make lint`` compares them with limits."""

from __future__ import annotations

from pathlib import Path

import house
import pytest

TEXT = '''\
"""What a module holds. Names of things."""

# Of two, the first.
# It stays.
X = (
    1,  # noqa: E501
)


class Thing:
    """Where it stands: here.

    >>> Thing()
    """

    def method(self) -> str:
        """Return it."""
        return """two
        lines"""
'''


def test_figures_of_a_file() -> None:
    file = house.measure_file(TEXT)
    # The assignment's three lines, the heads of class and method, and the two of the return.
    assert file.code == 7
    assert file.classes == ["Thing"]
    assert file.sentences == [
        "Of two, the first. It stays.",
        "What a module holds.",
        "Names of things.",
        "Where it stands:",
        "here.",
        "Return it.",
    ]


def test_inverted_sentences_and_repeated_names() -> None:
    tree = house.House(sentences=["a.py: Of it all.", "a.py: All: Of it.", "b.py: Often so."])
    tree.classes = {"Thing": ["a.py", "b.py"], "Other": ["a.py"]}
    assert tree.inverted == ["a.py: Of it all."]
    assert tree.twice == {"Thing": ["a.py", "b.py"]}


def test_limits_are_lowered_and_never_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(house, "LIMITS", tmp_path / "house.txt")
    house.write({"packages": 910, "tests": 310, "twice": 3}, {"packages": 2000, "tests": 200})
    assert house.limits() == {"packages": 1000, "tests": 200, "twice": 3}
