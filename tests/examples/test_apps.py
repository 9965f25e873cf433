"""The small apps, as processes: each records, ends when it should, and what it recorded is sent."""

from __future__ import annotations

import importlib
import os
import pty
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from log_records import records_of
from waiting import wait_until

from clientsdk import MemoryPublisher, Settings
from clientsdk.client import Client
from deploy.ports import free_ports
from examples.apps import usage
from examples.apps.installation import VARIABLE
from sotto.plan.compile import load_plan
from sotto.plan.generate import module_text
from sotto.wire.format import decode_message

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
#: Seconds to wait for what is to happen, on a machine that has other things to do.
PATIENCE = 600.0


def environment(home):
    own = {"APPS_HOME": str(home), "IPYTHONDIR": str(home), "PYTHONPATH": str(ROOT)}
    return {**os.environ, **own}


def run(home, module, *arguments):
    """Run an app to its end; it is to say nothing on its standard error."""
    return run_python(home, "-m", f"examples.apps.{module}", *arguments)


def run_python(home, *arguments):
    command = [sys.executable, "-W", "error", *arguments]
    result = subprocess.run(
        command, env=environment(home), cwd=home, capture_output=True, text=True, timeout=PATIENCE
    )
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def device(home):
    """A client that only looks."""
    settings = Settings(background=False)
    return Client(
        usage.PLAN, state=home / "device.db", publisher=MemoryPublisher(), settings=settings
    )


def recorded(home):
    """How many values of each metric were accepted, by what the ledger says."""
    with closing(device(home)) as client:
        counts = {}
        for period in client.ledger().periods:
            for name, number in period.recordings.items():
                counts[name] = counts.get(name, 0) + number
        return counts


def sent(home):
    """Every report in the log, by its key.

    A process that is ended in the middle of sending leaves the same bytes to the next one: one
    that is there twice says the same, and counts once.
    """
    reports = {}
    for record in records_of(home / "log"):
        for part in decode_message(record.body).groups:
            for row in part.rows:
                key = (row.pseudonym, part.metric, row.chain, row.level)
                assert reports.setdefault(key, row) == row
    return reports


def agree(home):
    with closing(device(home)) as client:
        client.give_consent()


def send_the_rest(home, number):
    """Flush what the apps have left, until so many reports are in the log."""

    def done():
        run(home, "job", "--pieces", "0")
        return len(sent(home)) == number

    wait_until(done)


def test_the_module_is_made_from_the_plan():
    plan = load_plan(ROOT / "examples" / "apps" / "plan.yaml").compile()
    assert Path(usage.__file__).read_text() == module_text(plan)


@pytest.mark.real_randomness
def test_what_one_run_of_a_command_recorded_the_next_ones_send(tmp_path):
    assert run(tmp_path, "tool", "show") == "show: done\n"
    assert recorded(tmp_path) == {}
    run(tmp_path, "tool", "telemetry", "on")
    for _ in range(2):
        run(tmp_path, "tool", "convert")
    assert recorded(tmp_path) == {"usage/command": 2}

    def more():
        run(tmp_path, "tool", "show")
        return len(sent(tmp_path)) >= 2

    wait_until(more)
    run(tmp_path, "tool", "telemetry", "off")
    with closing(device(tmp_path)) as client:
        assert client.ledger().pending == ()


@pytest.mark.real_randomness
def test_a_tool_asks_at_a_terminal_once(tmp_path):
    def at_a_terminal(answer):
        ours, its = pty.openpty()
        command = [sys.executable, "-W", "error", "-m", "examples.apps.tool", "convert"]
        terminal = {"stdin": its, "stderr": its, "stdout": subprocess.DEVNULL}
        with subprocess.Popen(command, env=environment(tmp_path), cwd=tmp_path, **terminal) as tool:
            os.close(its)
            os.write(ours, answer)
            assert tool.wait(PATIENCE) == 0
        try:
            return os.read(ours, 1 << 16).decode()
        except OSError:
            # Nothing was written, and nobody is left to write.
            return ""
        finally:
            os.close(ours)

    assert "Do you agree? [y/N]" in at_a_terminal(b"y\n")
    assert recorded(tmp_path) == {"usage/command": 1}
    assert "agree" not in at_a_terminal(b"")
    assert recorded(tmp_path) == {"usage/command": 2}


@pytest.mark.parametrize("module", ["tool", "tool_click", "tool_typer"])
def test_every_tool_has_the_command(tmp_path, module, monkeypatch, capsys):
    pytest.importorskip(module.partition("_")[2] or "argparse")
    main = importlib.import_module(f"examples.apps.{module}").main
    monkeypatch.setenv(VARIABLE, str(tmp_path))

    def tool(*arguments):
        monkeypatch.setattr(sys, "argv", ["tool", *arguments])
        with suppress(SystemExit):
            main()
        return capsys.readouterr().out

    assert tool("telemetry").startswith("Telemetry is off: you have not been asked.")
    assert tool("telemetry", "on").startswith("Telemetry is on")
    assert tool("convert") == "convert: done\n"
    assert "randomized answer" in tool("telemetry", "show")
    assert tool("telemetry", "off") == "Telemetry is off: it has no consent.\n"
    assert recorded(tmp_path) == {"usage/command": 1}
    assert tool("telemetry", "sure") == ""


@contextmanager
def serving(home, *command):
    """Serve until the end of the block; then every worker has to end well, and quietly."""
    process = subprocess.Popen(
        [sys.executable, "-W", "error", *command],
        env=environment(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=PATIENCE)
        assert (process.returncode, said) == (0, "")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def ask(address, route):
    with urllib.request.urlopen(address + route, timeout=PATIENCE) as answer:
        return answer.read()


def answered(address):
    """Whether the service answers yet."""
    try:
        return ask(address, "/openapi.json")
    except OSError:
        return None


def use(address):
    """Ask until all four workers have answered."""
    wait_until(lambda: answered(address) is not None)
    end = time.monotonic() + PATIENCE
    workers, asked = set(), 0
    # One worker may begin long before another.
    while len(workers) < 4 or asked < 12:
        workers.add(ask(address, ("/resize", "/convert")[asked % 2]))
        asked += 1
        assert time.monotonic() < end, f"only {len(workers)} of four workers answer"


SERVERS = {
    "gunicorn, preloaded": (
        "gunicorn --preload --workers 4 --worker-class asgi --bind 127.0.0.1:{port}"
        " --no-control-socket --log-level critical examples.apps.web:create_app()"
    ),
    "uvicorn, a client in each": (
        "uvicorn --factory examples.apps.web:create_app --workers 4 --port {port}"
        " --log-level critical"
    ),
}


@pytest.mark.real_randomness
@pytest.mark.parametrize("server", SERVERS)
def test_workers_share_one_ledger_and_what_they_recorded_is_sent(tmp_path, server):
    (port,) = free_ports(1)
    run(tmp_path, "tool", "telemetry", "on")
    # Supervisors leave their own sockets to the end of the process.
    quiet = "-W", "ignore::ResourceWarning"
    with serving(tmp_path, *quiet, "-m", *SERVERS[server].format(port=port).split()):
        use(f"http://127.0.0.1:{port}")
        # No visitor can consent for the installation.
        assert b'"post"' not in ask(f"http://127.0.0.1:{port}", "/openapi.json")
    counts = recorded(tmp_path)
    # every draw: two a period, whoever takes them; the test may run over the end of one.
    assert 2 <= counts["usage/route"] <= 4
    send_the_rest(tmp_path, counts["usage/route"])


@pytest.mark.real_randomness
@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_a_job_loses_nothing_of_what_its_processes_recorded(tmp_path, start):
    agree(tmp_path)
    assert run(tmp_path, "job", "--start", start).startswith("40 pieces: ")
    counts = recorded(tmp_path)
    # every draw: two a period, as above.
    assert 2 <= counts["usage/job_seconds"] <= 4
    send_the_rest(tmp_path, counts["usage/job_seconds"])


NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
for turn in range(3):
    shell.run_cell('''
from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics
client = make_client(home())
''').raise_error()
    shell.run_cell("print(Metrics(client).command.record('show'))").raise_error()
"""


@pytest.mark.real_randomness
def test_a_cell_of_a_notebook_that_makes_the_client_may_be_run_again(tmp_path):
    run(tmp_path, "tool", "telemetry", "on")
    said = run_python(tmp_path, "-c", NOTEBOOK).split()
    # every draw: two a period, as above.
    assert 2 <= said.count("accepted") == recorded(tmp_path)["usage/command"] <= 3
    assert set(said) <= {"accepted", "period_full"}
    send_the_rest(tmp_path, said.count("accepted"))
