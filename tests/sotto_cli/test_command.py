"""The command: what it prints, and that its errors are a line and a status."""

import os
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from unittest.mock import ANY, Mock

import pytest
from agreed_plans import PLAN_YAML

import clientsdk
import sotto_cli
from docs.writers import commands
from sotto.errors import ParameterError
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan
from sotto.plan.durations import parse_time

ROOT = Path(__file__).parents[2]
#: It is of 640 and a week of it costs 9.5.
SHORT = (
    "sotto: warning: the lifetime's ceiling of 640.0 lasts 1.28 years, less than 2; "
    "a device is silent from then on (panel: 1/8 makes it last)\n"
)


@pytest.fixture(autouse=True)
def _today(monkeypatch):
    """A day of 2026, also for modules that are imported meanwhile, but not after the test."""
    today = parse_time("2026-11-22") * 1_000_000
    monkeypatch.setattr("sotto.clocks.time", Mock(wraps=time, time_ns=lambda: today))


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN_YAML)
    return path


def run(capsys, *arguments):
    status = sotto_cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def test_check_says_what_a_plan_costs(capsys, plan_file):
    status, out, err = run(capsys, "plan", "check", plan_file)
    assert (status, err) == (0, SHORT)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert "plan departures, version 3, of collector fleet.example" in lines
    assert f"fingerprint {parse_plan(PLAN_YAML).compile().fingerprint.hex()}" in lines
    assert "carrier category grr (6 symbols) 1 B 28d" in lines
    assert "dest string rappor (128 bits, 16 cohorts, 2 hashes) 16 B 364d" in lines
    assert "dep_delay 1 7d 0.5 0.5 4.08x" in lines
    assert "3 7d 2.0 2.0 1.78x" in lines
    assert "distance 2.0 2 4.0 268.0" in lines
    assert "all 5 9.5 636.5" in lines
    assert "ceiling of a period (7d): 12.0, of which 9.5 can be spent" in lines
    assert "ceiling of a lifetime: 640.0, reached after 67 periods (469d)" in lines
    assert "expired" not in out


def test_check_says_whether_messages_are_signed(capsys, plan_file):
    assert "messages are not signed" in run(capsys, "plan", "check", plan_file)[1]
    plan_file.write_text(PLAN_YAML + "authentication: required\n")
    _, out, _ = run(capsys, "plan", "check", plan_file)
    assert "messages are signed" in out
    assert "not signed" not in out


def test_a_plan_that_has_ended_is_an_error_and_one_that_ends_soon_a_warning(capsys, plan_file):
    """The plan ends on 30 June 2027."""
    plan_file.write_text(PLAN_YAML.replace("2027-06-30", "2026-11-21"))
    status, out, err = run(capsys, "plan", "check", plan_file)
    assert (status, out.splitlines()[0]) == (
        2,
        "plan departures, version 3, of collector fleet.example",
    )
    assert "ended on 2026-11-21: devices record nothing later; ship it with a later" in err
    status, out, err = run(capsys, "plan", "compile", plan_file)
    assert (status, out) == (2, "")
    assert "ended on 2026-11-21" in err
    assert not plan_file.with_suffix(".json").exists()
    status, _, err = run(capsys, "collect", "--plan", plan_file, "--log", plan_file.parent / "log")
    assert status == 2
    assert "ended on 2026-11-21" in err
    for day, warned in (("2026-11-22", True), ("2027-02-19", True), ("2027-02-21", False)):
        plan_file.write_text(PLAN_YAML.replace("2027-06-30", day))
        status, _, err = run(capsys, "plan", "check", plan_file)
        assert (status, f"ends on {day}" in err) == (0, warned)
        status, _, err = run(capsys, "plan", "compile", plan_file)
        assert (status, f"ends on {day}" in err) == (0, warned)


def test_check_says_what_the_least_number_of_reports_means(capsys, plan_file):
    _, out, _ = run(capsys, "plan", "check", plan_file)
    assert "minimum_reports 20: an estimate of fewer reports is withheld." in out
    # Each device sends a report a week, two of a distance; windows are of 4, 52, 4 and 4 weeks.
    assert "reach it: carrier 5, dest 1, dep_delay 5, distance 3." in out
    plan_file.write_text("minimum_reports: 1\n" + PLAN_YAML)
    _, out, _ = run(capsys, "plan", "check", plan_file)
    assert "minimum_reports 1: nothing is withheld. A window of one report is published" in out
    once = PLAN_YAML.replace("28d", "7d").replace("364d", "7d").replace("every: 2", "once: first")
    plan_file.write_text(once)
    _, out, _ = run(capsys, "plan", "check", plan_file)
    assert "is withheld.\nA level of strings or local hashing counts once each cohort" in out
    assert "takes more reports than these: dest 320.\n\n" in out


def test_compile_writes_what_devices_read(capsys, plan_file):
    status, out, err = run(capsys, "plan", "compile", plan_file)
    data = plan_file.with_suffix(".json").read_bytes()
    plan = CompiledPlan.from_json(data)
    assert (status, out, err) == (0, plan.fingerprint.hex() + "\n", SHORT)
    assert sorted(path.name for path in plan_file.parent.iterdir()) == ["plan.json", "plan.yaml"]
    status, out, err = run(capsys, "plan", "compile", plan_file, "-o", plan_file.parent / "other")
    assert (plan_file.parent / "other").read_bytes() == data
    status, out, err = run(capsys, "plan", "check", plan_file.with_suffix(".json"))
    assert status == 0
    assert plan.fingerprint.hex() in out


@pytest.mark.real_randomness
def test_compile_writes_to_standard_output(plan_file):
    done = command("plan", "compile", plan_file, "-o", "-")
    plan = parse_plan(PLAN_YAML).compile()
    assert done.stdout == plan.to_json()
    assert done.stderr.decode() == plan.fingerprint.hex() + "\n" + SHORT


def test_the_fingerprint_of_a_plan_and_of_what_it_is_compiled_to(capsys, plan_file):
    plan = parse_plan(PLAN_YAML).compile()
    assert run(capsys, "plan", "fingerprint", plan_file) == (0, plan.fingerprint_hex + "\n", "")
    compiled = plan_file.with_suffix(".json")
    compiled.write_bytes(plan.to_json())
    assert run(capsys, "plan", "fingerprint", compiled)[1] == plan.fingerprint_hex + "\n"


@pytest.mark.parametrize("action", ["check", "compile"])
def test_a_plan_that_asks_for_much_is_warned_of_and_strict_makes_it_an_error(
    capsys, plan_file, action
):
    """Epsilon 40 a value, 25,000 values a day, and nothing said: so it was."""
    text = PLAN_YAML.replace("12, lifetime: 640", "350000, lifetime: 350000")
    text = text.replace("period: 7d", "period: 1d").replace("window: 28d", "window: 1d")
    text = text.replace("{every: 2}", "{every: 8000}")
    text = text.replace("ladder: *ladder", "ladder: [{epsilon: 40}]")
    plan_file.write_text(text)
    status, out, err = run(capsys, "plan", action, plan_file)
    assert (status, bool(out)) == (0, True)
    assert [line.split(": ")[1] for line in err.splitlines()] == ["warning"] * 4
    assert "metric 'dest': a value can cost 40.0, above 4" in err
    assert "metric 'distance': a value can cost " in err
    assert "a period (1d) can cost " in err
    assert " a day, above 8" in err
    assert "the lifetime's ceiling of 350000.0 lasts 0.00274 years" in err
    assert run(capsys, "plan", action, plan_file, "--strict")[0] == 1
    levels = ["--warn-value", 40, "--warn-day", 400000, "--warn-years", 0.001, "--strict"]
    status, _, err = run(capsys, "plan", action, plan_file, *levels)
    assert (status, len(err.splitlines())) == (1, 1)
    assert "and ends before the plan expires" in err


@pytest.mark.parametrize("action", ["check", "compile"])
def test_a_constant_metric_that_links_periods_is_warned_of_and_strict_makes_it_an_error(
    capsys, plan_file, action
):
    many = ", ".join(f"v{number}" for number in range(64))
    metric = (
        "  model: {type: category, outside: other, window: 28d, repeat: {constant: true},"
        " ladder: [{epsilon: 1}, {epsilon: 2}], domain: ["
    )
    head = PLAN_YAML[: PLAN_YAML.index("metrics:")] + "metrics:\n"
    plan_file.write_text(f"{head}{metric}{many}]}}\n")
    status, _, err = run(capsys, "plan", action, plan_file)
    assert status == 0
    assert re.fullmatch(
        r"sotto: warning: metric 'model': a report picks .* out of those of 1000 devices in"
        r" 2\d\.\d% of trials, so that its pseudonyms can be linked .*\n",
        err,
    )
    assert run(capsys, "plan", action, plan_file, "--strict")[0] == 1
    later = head.replace("version: 3", "version: 4")
    plan_file.write_text(f"{later}{metric}v1, v2, v3]}}\n")
    assert run(capsys, "plan", action, plan_file, "--strict") == (0, ANY, "")


@pytest.mark.parametrize("name", ["plan.yaml", "v2.yaml", "v2.yml", "plan.txt"])
def test_compile_does_not_overwrite_a_plan(capsys, plan_file, name):
    output = plan_file.with_name(name)
    output.write_text(PLAN_YAML)
    if name == "plan.txt":
        plan_file = output
    link = plan_file.with_name("link.json")
    link.symlink_to(output)
    for each in (output, link):
        status, _, err = run(capsys, "plan", "compile", plan_file, "-o", each)
        assert status == 2
        assert "has a plan's text, or its name" in err
        assert output.read_text() == PLAN_YAML


@pytest.mark.parametrize(
    "arguments", [["plan"], ["plan", "chek"], ["plan", "check"], ["plan", "check", "a", "b"]]
)
def test_wrong_arguments_are_a_usage_and_a_line(capsys, arguments):
    assert sotto_cli.main(arguments) == 2
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("usage: sotto")
    assert err[-1].startswith("sotto: error: ")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["plan", "--help"], ["plan", "compile", "--help"]]
)
def test_help_teaches(capsys, arguments, monkeypatch):
    monkeypatch.setattr(sotto_cli, "COMMANDS", ("plan",))
    with pytest.raises(SystemExit) as caught:
        sotto_cli.main(arguments)
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert "usage: sotto" in out
    if len(arguments) < 3:
        assert "examples:" in out


def test_the_page_of_commands_is_up_to_date(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    page = (ROOT / "docs/reference/commands.md").read_text("utf-8")
    assert page == commands.page(), "write it again with `make docs`"


def test_a_shell_completes_every_command(capsys):
    status, out, _ = run(capsys, "completion", "bash")
    assert status == 0
    for name in (*sotto_cli.COMMANDS, "disclose", "--time-column"):
        assert re.search(rf"[ (']{name}[ )']", out), name


@pytest.mark.real_randomness
def test_the_version_is_that_of_both_distributions():
    assert command("--version").stdout.decode() == f"sotto {clientsdk.__version__}\n"
    pages = [ROOT / "pyproject.toml", ROOT / "deploy/device/pyproject.toml"]
    named = [re.search(r'attr = "\w+(\.version\.__version__)"', each.read_text()) for each in pages]
    assert all(named)


@pytest.mark.real_randomness
def test_help_lists_every_command_without_importing_what_is_heavy():
    code = (
        "import sys, sotto_cli\n"
        "try: sotto_cli.main(['--help'])\n"
        "except SystemExit: print(sorted({'numpy', 'apache_beam', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
    for name in sotto_cli.COMMANDS:
        assert f"\n    {name}" in done.stdout


def with_command(monkeypatch, action):
    """Stand-in for a command whose run does what the test wants."""
    module = types.ModuleType("sotto_cli.probe", "A probe.")
    module.add_arguments = lambda parser: None
    module.run = action
    monkeypatch.setitem(sys.modules, "sotto_cli.probe", module)
    monkeypatch.setattr(sotto_cli, "COMMANDS", ("probe",))


def raising(error):
    def run(args):
        raise error

    return run


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, ""),
        (ParameterError("two\nlines"), 2, "sotto: error: two\nsotto: error: lines\n"),
        (PermissionError(13, "Permission denied", "x"), 2, "sotto: error: x: Permission denied\n"),
        (OSError("odd"), 2, "sotto: error: odd\n"),
        (
            ModuleNotFoundError("No module named 'yaml'", name="yaml"),
            2,
            "sotto: error: yaml is not installed; pip install 'sottovoce-tools[plan]' brings it\n",
        ),
        (
            ModuleNotFoundError("No module named 'numpy'", name="numpy"),
            2,
            "sotto: error: numpy is not installed; "
            "pip install 'sottovoce-tools[pipelines]' brings it\n",
        ),
    ],
)
def test_errors_are_lines_and_statuses(capsys, monkeypatch, error, status, said):
    with_command(monkeypatch, raising(error))
    assert run(capsys, "probe") == (status, "", said)


@pytest.mark.parametrize(
    "error", [ZeroDivisionError(), ModuleNotFoundError("x", name="sotto.oops")]
)
def test_our_own_mistakes_are_not_hidden(monkeypatch, error):
    with_command(monkeypatch, raising(error))
    with pytest.raises(type(error)):
        sotto_cli.main(["probe"])


def command(*arguments, stdout=subprocess.PIPE, closed=""):
    words = [sys.executable, "-m", "sotto", *map(str, arguments)]
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *words]
    return subprocess.run(words, stdout=stdout, stderr=subprocess.PIPE, timeout=600, check=False)


@pytest.mark.real_randomness
def test_a_reader_that_goes_away_is_no_error(plan_file):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = command("plan", "check", plan_file, stdout=closed)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.real_randomness
@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
@pytest.mark.parametrize(("suffix", "status"), [("", 0), ("\udcff", 2)])
def test_a_closed_output_changes_neither_status_nor_words(plan_file, closed, suffix, status):
    whole = command("plan", "check", f"{plan_file}{suffix}")
    done = command("plan", "check", f"{plan_file}{suffix}", closed=closed)
    assert done.returncode == whole.returncode == status
    assert done.stdout == (b"" if ">&-" in closed.split() else whole.stdout)
    assert done.stderr == (b"" if "2>&-" in closed else whole.stderr)


@pytest.mark.real_randomness
def test_a_closed_input_is_an_empty_one():
    done = command("forget", "--state", "state", "--file", "-", closed="<&-")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == b"sotto: error: --file has no pseudonym in it\n"


@pytest.mark.real_randomness
def test_no_file_takes_the_place_of_a_closed_stream_here_or_in_a_child():
    child = "os.execlp('sh', 'sh', '-c', 'true 3<&0 4>&1 5>&2')"
    code = f"import os, sotto_cli; sotto_cli.main(['plan']); {child}"
    words = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code]
    assert subprocess.run(words, timeout=600, check=False).returncode == 0


def test_a_pipe_is_no_output_and_is_not_read(plan_file, tmp_path, capsys):
    os.mkfifo(tmp_path / "pipe")
    status, _, err = run(capsys, "plan", "compile", plan_file, "-o", tmp_path / "pipe")
    assert (status, "must be a file" in err) == (2, True)


@pytest.mark.real_randomness
def test_an_interrupt_is_quiet(tmp_path):
    fifo = tmp_path / "plan.yaml"
    os.mkfifo(fifo)
    with subprocess.Popen(
        [sys.executable, "-m", "sotto", "plan", "check", fifo],
        stderr=subprocess.PIPE,
        # A test run in the background ignores interrupts, and its children would too.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as waiting:
        # Opening blocks until the command has opened its end. Closing ends its reading, should the
        # signal have come just before that began.
        with open(fifo, "wb"):
            waiting.send_signal(signal.SIGINT)
        assert waiting.wait(timeout=600) == 130
        assert waiting.stderr.read() == b""


@pytest.mark.real_randomness
def test_a_device_needs_the_standard_library_alone(tmp_path):
    code = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("numpy", "scipy", "yaml", "pydantic", "pyarrow", "apache_beam"):
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Nothing())
from sotto.plan.compiled import CompiledPlan
from sotto.log.reader import LogReader, partitions
from sotto.log.writer import LogWriter
from sotto.plan.registry import Registry
from sotto.wire.format import Row, encode_message
import sotto_cli
plan = CompiledPlan.from_json(sys.stdin.buffer.read())
with LogWriter(sys.argv[1], "a") as log:
    log.append(encode_message(plan.fingerprint, 0, [(0, [Row(0, bytes(16), bytes(16), 0, b"x")])]))
print(len(list(LogReader(partitions(sys.argv[1])[0]).records())), len(Registry([plan]).metrics))
sys.exit(sotto_cli.main(["plan", "check", "x.yaml"]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        input=parse_plan(PLAN_YAML).compile().to_json(),
        capture_output=True,
        check=False,
    )
    assert done.stdout == b"1 4\n"
    assert done.returncode == 2
    assert b"pip install 'sottovoce-tools[plan]'" in done.stderr
