"""The runner of vectors: the committed file passes, and no kind of fault gets by."""

from __future__ import annotations

import copy
import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vectors import TESTS, VECTORS, difference, failure, load_adapters, main

LOOSE = {"rel": 1e-9, "abs": 1e-12}
FILE = TESTS / "data" / "vectors.json"


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.vectors", str(path)],
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )


@pytest.mark.real_randomness
def test_all_committed_vectors_pass() -> None:
    result = run(FILE)
    n = len(VECTORS["vectors"])
    assert result.stdout == f"{n} of {n} vectors pass, 0 fail\n"
    assert (result.returncode, result.stderr) == (0, "")


def test_every_function_has_an_adapter() -> None:
    assert {entry["function"] for entry in VECTORS["vectors"]} <= set(load_adapters())


def test_planted_faults_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tenth of a tolerance passes, two do not; so do not an unknown name and a lost input."""
    by_function = {entry["function"]: entry for entry in VECTORS["vectors"]}
    close, far, unknown, short = (copy.deepcopy(by_function["eps_ns"]) for _ in range(4))
    close["expected"] *= 1 + 1e-13
    far["expected"] *= 1 + 2e-12
    unknown["function"] = "eps_ns_of_another_name"
    del short["inputs"]["K"]
    shape = copy.deepcopy(by_function["freq_grr"])
    shape["expected"].append(0.0)
    path = tmp_path / "faulty.json"
    path.write_text(json.dumps({"vectors": [close, far, unknown, short, shape, {}]}), "utf-8")
    assert main([str(path)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "1 of 6 vectors pass, 5 fail"
    found = [line for line in lines if line.startswith("FAIL")]
    for line, words in zip(
        found,
        ("(eps_ns): result is", "no adapter", "raised KeyError", "length 6, not 5", "malformed"),
        strict=True,
    ):
        assert words in line
    for start in ("  got ", "  expected "):
        assert sum(line.startswith(start) for line in lines) == 2


@pytest.mark.real_randomness
@pytest.mark.parametrize("text", [None, "", "[]", '{"vectors": []}'])
def test_what_holds_no_vectors_does_not_pass(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "nothing.json"
    if text is not None:
        path.write_text(text, "utf-8")
    assert run(path).returncode != 0


SAME: list[tuple[Any, Any, Any]] = [
    (0.5, 0.5, "exact"),
    (np.int64(3), 3, "exact"),
    (Fraction(1, 2), 0.5, LOOSE),
    (1 + 1e-10, 1, LOOSE),
    (0.0, 1e-13, LOOSE),
    ("inf", "inf", LOOSE),
    (math.inf, "inf", "exact"),
    (-math.inf, "-inf", LOOSE),
    (math.inf, math.inf, LOOSE),
    ("GRR", "GRR", "exact"),
    (True, True, LOOSE),
    (None, None, LOOSE),
    (np.array([[1.0, 2.0]]), [[1, 2]], LOOSE),
    ((1, [2, {"a": False}]), [1, [2, {"a": False}]], "exact"),
    ({"a": [1.0], "b": "inf"}, {"a": [1], "b": "inf"}, LOOSE),
    (10**400, 10**400, LOOSE),
]
DIFFERENT: list[tuple[Any, Any, Any]] = [
    (0.5, math.nextafter(0.5, 1), "exact"),
    (3.0, 3, "exact"),
    (1 + 2e-9, 1, LOOSE),
    (math.nan, 1.0, {"rel": 1, "abs": 1e300}),
    (math.nan, math.inf, LOOSE),
    (math.inf, 1e308, {"rel": 1, "abs": 1e308}),
    (1e308, "inf", LOOSE),
    (-math.inf, "inf", LOOSE),
    (True, 1, LOOSE),
    (False, 0.0, "exact"),
    (1, True, LOOSE),
    (0, False, "exact"),
    (np.array([True]), [1], LOOSE),
    ("1", 1, LOOSE),
    (1, "1", LOOSE),
    (None, 0, LOOSE),
    (0, None, LOOSE),
    ([1.0], 1.0, LOOSE),
    (1.0, [1.0], LOOSE),
    ([1, 2], [1], LOOSE),
    ([1], [1, 2], LOOSE),
    ([], {}, LOOSE),
    ("ab", ["a", "b"], "exact"),
    ({"a": 1}, {"a": 1, "b": 2}, LOOSE),
    ({"a": 1, "b": 2}, {"a": 1}, LOOSE),
    ({"a": {"b": [1, math.nan]}}, {"a": {"b": [1, 2]}}, LOOSE),
    (1j, 1, LOOSE),
]


@pytest.mark.parametrize(("got", "expected", "tolerance"), SAME)
def test_what_is_the_same(got: Any, expected: Any, tolerance: Any) -> None:
    assert difference(got, expected, tolerance) is None


@pytest.mark.parametrize(("got", "expected", "tolerance"), DIFFERENT)
def test_what_is_not(got: Any, expected: Any, tolerance: Any) -> None:
    assert difference(got, expected, tolerance) is not None


@pytest.mark.parametrize("tolerance", [{"rel": -1e-9}, {"abs": math.nan}, "roughly", None, 1e-9])
def test_a_tolerance_that_is_none_fails(tolerance: Any) -> None:
    entry = {"name": "n", "function": "f", "inputs": {}, "expected": 1.0, "tolerance": tolerance}
    assert "raised" in str(failure(entry, {"f": lambda inputs: 1.0}))


def test_the_place_of_a_difference_is_named() -> None:
    wrong = difference({"a": [1, 2]}, {"a": [1, 3]}, LOOSE)
    assert wrong == "result['a'][1] is 2, expected 3"


def test_no_function_has_two_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_adapters()
    taken = sys.modules["tests.adapters.existing"]
    for name in ("existing", "existing_again"):
        (tmp_path / f"{name}.py").touch()
    monkeypatch.setitem(sys.modules, "tests.adapters.existing_again", taken)
    with pytest.raises(ValueError, match=r"existing_again.py repeats debias_mixed"):
        load_adapters(tmp_path)
