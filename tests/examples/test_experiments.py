"""The experiments of two papers print what theory says, and learn what is there."""

from __future__ import annotations

import re

import pytest
from statistical import check_normal

from examples import gradual, learning

SEED, REPEATS = 7, 50


def test_shares_and_guesses_fit_their_theory(capsys: pytest.CaptureFixture[str]) -> None:
    gradual.main(["--repeats", str(REPEATS), "--seed", str(SEED)])
    printed = capsys.readouterr().out
    rows = [
        tuple(map(float, row))
        for row in re.findall(r"^ *" + r"([\d.]+) +" * 4 + r"([\d.]+)$", printed, re.M)
    ]
    assert len(rows) == 20
    for _, true, mean, deviation, due in rows:
        check_normal(mean, true, due / REPEATS**0.5, label=f"seed {SEED}")
        assert deviation == pytest.approx(due, rel=0.5)
    guesses = re.findall(r"(\w+) guesses wrong: ([\d.]+); the least possible: ([\d.]+)", printed)
    assert [name for name, *_ in guesses] == ["LO", "MLE", "HF", "WHF"] * 2
    for (name, wrong, least), n in zip(guesses, [1000] * 4 + [1500] * 4, strict=True):
        error = (float(least) * (1 - float(least)) / (n * REPEATS)) ** 0.5
        # Values of different kinds are weighted: their error is at most 1.5 times as large.
        if name in ("LO", "MLE"):
            check_normal(float(wrong), float(least), 1.5 * error, label=f"seed {SEED}")
        else:
            assert float(wrong) > float(least) + 3 * error


@pytest.mark.parametrize("name", [learning.PLAIN, learning.OURS, learning.PUBLISHED])
def test_much_epsilon_learns_well(name: str) -> None:
    assert learning.accuracy(name, 40.0, 2000, SEED) > 0.7, f"seed {SEED}"


def test_randomized_labels_are_undone() -> None:
    """At epsilon 1 seven labels of ten are wrong, and move every plain mean towards the others."""
    assert learning.accuracy(learning.PLAIN, 1.0, 40_000, SEED) > 0.7, f"seed {SEED}"


def test_learning_says_what_is_paid(capsys: pytest.CaptureFixture[str]) -> None:
    learning.main(["--clients", "300", "--seeds", "1"])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11
    paid = [line.split()[-2] for line in lines if "published" in line]
    assert paid == ["68.59", "112.1", "225.4", "484.3"]
    assert lines[1].split()[-2:-1] == ["inf"]
