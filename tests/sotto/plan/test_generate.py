"""``sotto plan generate``: a typed module, checked by mypy and ruff, and what it records."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from clientsdk import Outcome
from clientsdk.testing import SeededClient, small_plan
from sotto.errors import PlanError, ValueTypeError
from sotto.plan.compile import parse_plan
from sotto.plan.generate import identifier, module_text
from sotto_cli import main

ROOT = Path(__file__).parents[3]

PLAN = r"""
collector: editor.example
plan: comfort
version: 1
owner: "Télémétrie \"x\" <telemetry@editor.example> 'y'"
expires: 2036-12-31
period: 7d
ceilings: {period: 60, lifetime: 900}
resolution: 1h
metrics:
  theme: &theme
    type: category
    domain: [light, dark]
    outside: other
    missing: true
    window: 28d
    ladder: &ladder [{epsilon: 0.5}, {epsilon: 1, after: 1d}]
  startup-ms: &number
    {description: "How long \"it\" takes \\ to start", purpose: To find slow starts,
     type: number, range: [0, 5000], unit: ms, outside: clip, window: 7d, ladder: *ladder}
  class: {type: boolean, missing: true, window: 7d, ladder: *ladder}
  odd:
    type: category
    domain: ['a "b"', "it's", "é\\n", "x\ny"]
    outside: "it's"
    window: 7d
    ladder: *ladder
  mood: {type: ordinal, values: [bad, ok, good], window: 28d, ladder: *ladder}
  latency:
    {type: ordinal, range: [0, 9], points: 4, outside: clip, window: 28d, ladder: *ladder}
  speeding: {type: survey, question: "Too \"fast\" \\ today?", window: 28d, ladder: *ladder}
  place:
    {type: vector, range: [-1, 1], dimensions: 4, outside: clip, window: 28d, ladder: *ladder}
  app:
    {type: top_item, domain: [map, list], outside: other, clip: 9, window: 28d, ladder: *ladder}
  model: {<<: *theme, repeat: {constant: true}, ladder: [{epsilon: 1}, {epsilon: 4}]}
  a_very_long_name_of_a_metric_that_goes_on_and_on:
    {<<: *number, missing: true, repeat: {every: 2}}
"""

#: Without what the SDK does not need, whose stubs would take ten seconds.
MYPY = [
    *(sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent"),
    *("--no-site-packages", "--ignore-missing-imports"),
]
APP = """
from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from metrics import PLAN, Metrics

client = Client(PLAN, state=NO_LIFETIME_BOUND, publisher=MemoryPublisher())
metrics = Metrics(client)
"""
RIGHT = [
    'theme.record("dark")',
    'theme.record("other")',
    "theme.record(None)",
    "startup_ms.record(412)",
    "startup_ms.record(4.5)",
    "class_.record(True)",
    "class_.record(None)",
    'mood.record("ok")',
    "latency.record(3)",
    "speeding.record(False)",
    "place.record([0.5, 1, 0, -1])",
    'app.record("map")',
    'model.record("light")',
]
WRONG = [
    'theme.record("drak")',
    "theme.record(3)",
    'startup_ms.record("412")',
    "startup_ms.record(None)",
    'class_.record("yes")',
    'mood.record("great")',
    "mood.record(None)",
    "speeding.record(None)",
    "place.record(0.5)",
    'app.record("help")',
    'colour.record("red")',
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "plan.yaml").write_text(PLAN, "utf-8")
    source = ["--sdk", "clientsdk", "-o", made(tmp_path)]
    assert main(["plan", "generate", str(tmp_path / "plan.yaml"), *source]) == 0
    return tmp_path


def made(folder: Path) -> str:
    return str(folder / "metrics.py")


def loaded(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("metrics_of_a_test", path)
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_same_plan_gives_the_same_bytes_compiled_or_not(folder, capfd):
    text = (folder / "metrics.py").read_text("utf-8")
    assert main(["plan", "compile", str(folder / "plan.yaml")]) == 0
    fingerprint = capfd.readouterr().out.split()[-1]
    assert main(["plan", "generate", "--sdk", "clientsdk", str(folder / "plan.json")]) == 0
    assert capfd.readouterr().out == text
    assert "plan comfort, version 1, of collector editor.example" in text
    assert f"Fingerprint: {fingerprint}\n" in text
    assert (folder / "plan.json").read_bytes() == loaded(made(folder)).PLAN


def test_an_app_that_ships_the_package_imports_that(folder, capfd):
    text = (folder / "metrics.py").read_text("utf-8")
    assert main(["plan", "generate", str(folder / "plan.yaml")]) == 0
    shipped = text.replace("from clientsdk", "from sottovoce")
    assert capfd.readouterr().out == shipped != text


def test_what_is_recorded_is_recorded_under_the_name_in_the_plan(folder):
    module = loaded(made(folder))
    client = SeededClient(module.PLAN, seed=1)
    metrics = module.Metrics(client)
    assert metrics.startup_ms.record(412) is Outcome.ACCEPTED
    assert client.record("startup-ms", 412) is Outcome.PERIOD_FULL
    assert metrics.class_.name == "class"
    assert "0 to 5000 ms" in type(metrics.startup_ms).__doc__
    for call in RIGHT:
        eval(f"metrics.{call}", {"metrics": metrics})  # noqa: S307


def test_a_value_of_a_wrong_type_is_in_no_frame_of_the_error(folder):
    metrics = (module := loaded(made(folder))).Metrics(SeededClient(module.PLAN, seed=1))
    with pytest.raises(ValueTypeError) as caught:
        metrics.startup_ms.record("a value")
    trace = caught.tb.tb_next
    while trace is not None:
        assert "a value" not in trace.tb_frame.f_locals.values()
        trace = trace.tb_next


def test_a_client_of_another_plan_is_refused(folder):
    module = loaded(made(folder))
    with pytest.raises(PlanError, match="plan 'colours', version 1"):
        module.Metrics(SeededClient(small_plan(), seed=1))


def test_names():
    assert identifier("match") == "match_"
    plan = PLAN.replace("startup-ms", "theme.x").replace("  class:", "  theme-x:")
    with pytest.raises(PlanError, match="theme_x"):
        module_text(parse_plan(plan).compile())
    with pytest.raises(PlanError, match="of 49 characters"):
        module_text(parse_plan(PLAN.replace("startup-ms", "s" * 49)).compile())


@pytest.mark.real_randomness
def test_ruff_leaves_it_as_it_is(folder):
    for command in (["format", "--diff"], ["check"]):
        done = subprocess.run(
            [sys.executable, "-m", "ruff", *command, "--config", ROOT / "pyproject.toml", "."],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.real_randomness
@pytest.mark.slow
def test_a_wrong_value_is_an_error_of_mypy(folder):
    lines = APP.splitlines() + [f"metrics.{call}" for call in RIGHT + WRONG]
    (folder / "app.py").write_text("\n".join(lines) + "\n", "utf-8")
    done = subprocess.run(
        [*MYPY, "app.py"],
        cwd=folder,
        env={"MYPYPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == set(
        range(len(lines) - len(WRONG) + 1, len(lines) + 1)
    ), done.stdout + done.stderr


def test_a_class_says_when_reports_are_sent(folder: Path) -> None:
    text = " ".join(Path(made(folder)).read_text("utf-8").split())
    assert "at epsilon 0.5 at once; 1.0 after 1 day. That costs at most" in text
    assert "in each 7 days with new randomness, at epsilon 1.0 at once. That costs" in text
    assert " 0d" not in text


def test_a_class_says_what_a_metric_is_and_what_for(folder: Path) -> None:
    said = loaded(made(folder)).StartupMsMetric.__doc__
    assert said.startswith('How long "it" takes \\ to start.\n\n    To find slow starts.\n\n')
