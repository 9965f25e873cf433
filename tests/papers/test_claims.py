"""The claims of papers: what is true of them, and that an attack shows it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from mechanisms.audit.cases import Case
from mechanisms.audit.claims import FALSE_ALARM
from mechanisms.testing import SeededSource
from papers.claims import published

SEED = 20_250_612
PAGE = Path(__file__).parents[2] / "papers" / "README.md"
#: By the beginning of the name: claimed, true, and what 20,000 trials show at least.
KNOWN = {
    "f-RR, 10 bits, r = 1": (1, 3.93, 2),
    "f-RR, 10 bits, r = 1000": (1, 4311, 4),
    "ERR, p = 1/2, scores (2, 0)": (0.1, 0.732, 0.6),
    "ERR, p = 1/2, a staircase of 10": (1, 3.40, 2),
    "ERR, p = 1/2, a staircase of 100": (1, 46.1, 4),
    "Improved Christofides": (0.389, math.inf, 5),
    "relaxation 1, 1.5, 2": (2, 2.93, 0),
    "relaxation 1, 2": (2, 4, 3.7),
    "BiLOLOHA, 2 and 1": (4, 36.34, 5),
    "randomized response 0.5, 1, 2": (2, 3.5, 3.2),
    "exponential mechanism, 20 points, epsilon / (2 delta)": (1, 0.5, 0.3),
    "exponential mechanism, 20 points, delta of 1": (1, 9.5, 5),
    "Laplace noise": (1, math.inf, 5),
    "exponential mechanism, scores": (1, 1, 0.6),
    "permute-and-flip, scores": (1, 1, 0.6),
}


def known(case: Case) -> tuple[float, float, float]:
    name = max((name for name in KNOWN if case.name.startswith(name)), key=len)
    return KNOWN[name]


@pytest.mark.parametrize("case", published(), ids=lambda case: case.name)
def test_a_published_claim(case: Case) -> None:
    claimed, true, shown = known(case)
    assert case.claimed == pytest.approx(claimed, rel=1e-3)
    assert case.true == pytest.approx(true, rel=2e-3)
    assert case.holds == (true <= claimed)
    found = case.attack(SeededSource(SEED), 20_000, 0.95)
    assert found.epsilon >= shown
    assert not found.exceeds(case.true, FALSE_ALARM)
    if not case.holds and shown:
        assert found.exceeds(case.claimed, FALSE_ALARM)


def test_all_that_is_known_is_there() -> None:
    assert len(published()) == len(KNOWN)


def test_the_page_has_every_claim_and_every_paper() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    for case in published():
        true = "infinite" if math.isinf(case.true) else f"{case.true:.4g}"
        assert f"| {case.name} | {case.source} | {case.claimed:.4g} | {true} |" in lines
    papers = {path.stem for path in PAGE.parent.iterdir() if path.stem[0] not in "_R."}
    named = re.findall(r"`papers/(\w+)", "\n".join(lines))
    assert papers - {"claims"} == {*named}


def test_a_number_rounded_anew_is_shown_with_more_trials() -> None:
    [case] = [case for case in published() if case.name.startswith("relaxation 1, 1.5")]
    assert case.attack(SeededSource(SEED), 200_000, 0.95).exceeds(2.0, FALSE_ALARM)
