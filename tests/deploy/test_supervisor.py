"""Programs that run together: who ends with whom, and what is started again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from serving import ROOT, wait_until

from deploy.supervisor import together

#: Adds its process id to a file, and waits.
WAITS = """
import os, sys, time
with open(sys.argv[1], "a") as file: file.write(f"{os.getpid()}\\n")
time.sleep(600)
"""
SUPERVISOR = """
import sys
from deploy import supervisor
supervisor.PAUSES = (0.1, 0.2)
programs = {name: [sys.executable, "-c", sys.argv[1], name] for name in ("one", "another")}
sys.exit(supervisor.together(programs, restart=True))
"""


def ids(folder: Path, name: str) -> list[int]:
    """Return the process ids of a program, one a start."""
    try:
        return [int(line) for line in (folder / name).read_text().split()]
    except FileNotFoundError:
        return []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children(pid: int) -> set[int]:
    said = subprocess.run(
        ["ps", "-o", "pid=,stat=", "--ppid", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return {int(line.split()[0]) for line in said.splitlines() if line.split()[1][0] != "Z"}


@pytest.fixture
def supervisor(tmp_path):
    """A supervisor of two programs, both of them started."""
    with open(tmp_path / "errors", "w") as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SUPERVISOR, WAITS],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=errors,
        )
    try:
        wait_until(lambda: ids(tmp_path, "one") and ids(tmp_path, "another"))
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.mark.real_randomness
def test_a_program_that_dies_is_started_again_and_the_others_go_on(tmp_path, supervisor):
    for starts in (2, 3):
        os.kill(ids(tmp_path, "one")[-1], signal.SIGKILL)
        wait_until(lambda starts=starts: len(ids(tmp_path, "one")) == starts)
    assert alive(ids(tmp_path, "another")[0])
    assert len(ids(tmp_path, "another")) == 1
    said = (tmp_path / "errors").read_text()
    assert said.count("one has ended with status -9: it is started again in 0 s\n") == 2
    supervisor.send_signal(signal.SIGTERM)
    assert supervisor.wait(600) == 0
    assert not alive(ids(tmp_path, "one")[-1])
    assert not alive(ids(tmp_path, "another")[0])


@pytest.mark.real_randomness
@pytest.mark.parametrize("replaced", [False, True], ids=["first guard", "another guard"])
def test_no_program_outlives_a_supervisor_that_is_killed(tmp_path, supervisor, replaced):
    started = {ids(tmp_path, name)[-1] for name in ("one", "another")}
    if replaced:
        (guard,) = children(supervisor.pid) - started
        os.kill(guard, signal.SIGKILL)
        wait_until(lambda: len(children(supervisor.pid) - {guard}) == 3)
    family = children(supervisor.pid)
    assert started.issubset(family)
    supervisor.kill()
    wait_until(lambda: not any(map(alive, family)))


@pytest.fixture
def kept_signals():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.real_randomness
def test_without_restarts_programs_end_together(tmp_path, capsys, kept_signals):
    """The status is that of the program that ended by itself."""
    ends = """
import sys, time
while True:
    time.sleep(0.05)
    try: text = open(sys.argv[1]).read()
    except FileNotFoundError: continue
    if text: sys.exit(3)
"""
    file = tmp_path / "pid"
    programs = {
        name: [sys.executable, "-c", code, str(file)]
        for name, code in (("one", WAITS), ("another", ends))
    }
    assert together(programs) == 3
    assert "another has ended with status 3: the others end too" in capsys.readouterr().err
    assert not alive(*ids(tmp_path, "pid"))
