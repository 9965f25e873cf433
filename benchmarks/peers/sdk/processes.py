"""Runs a contender in an interpreter of its own, and reads what that measures of itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.sdk.contenders import Contender

ROOT = Path(__file__).parents[3]
#: What every script begins with; it loads nothing but what is built in.
_PRELUDE = """\
import sys, time
sys.path[0] = {root!r}
HOST, STATE = ("127.0.0.1", {port}), {state!r}
def go(host):
    if host[1]:
        import socket
        socket.create_connection(host).recv(1)
"""
_TIMED = """
import array
def measure(number):
    clock, taken = time.thread_time_ns, array.array("q", bytes(8 * number))
    for turn in range(number):
        before = clock()
        {event}
        taken[turn] = clock() - before
    return sorted(taken)
measure({number} // 4)
clock = time.thread_time_ns
reading = min(-(clock() - clock()) for turn in range(1000))
taken = [each - reading for each in measure({number})]
print(taken[len(taken) // 2] / 1000, sum(taken) / len(taken) / 1000)
"""
_MEMORY = """
status = open("/proc/self/status").read()
print(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
"""
#: What is done at exit is measured by itself.
_LEAVE = "\nimport os\nsys.stdout.flush()\nos._exit(0)\n"


class Rate(NamedTuple):
    """Microseconds of CPU an event, in the thread that tells of it."""

    median: float
    mean: float


def run(script: str, port: int = 0, limit: float = 120.0) -> str:
    """Run a script to its end; return what it printed.

    Raises
    ------
    RuntimeError
        It failed.
    """
    return _run(script, port, limit)[0]


def _run(script: str, port: int, limit: float) -> tuple[str, float | None]:
    """Return what a script printed, and when it ended, None if that had to be hastened."""
    with tempfile.TemporaryDirectory() as folder:
        prelude = _PRELUDE.format(
            root=str(ROOT), port=port, state=os.path.join(folder, "device.db")
        )
        kept = {"HOME": folder, "PATH": os.environ.get("PATH", ""), "PYTHONHASHSEED": "0"}
        # Bytecode, as of packages that were installed.
        kept["PYTHONPYCACHEPREFIX"] = str(ROOT / "build" / "bench-bytecode")
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + script],
            env=kept,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        ended: float | None = None
        try:
            out, said = process.communicate(timeout=limit)
            ended = time.monotonic()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, said = process.communicate()
    if ended is not None and process.returncode:
        raise RuntimeError(said)
    return out, ended


def load_ms(load: str, rounds: int) -> float:
    """Return the least CPU milliseconds that loading takes, where nothing is loaded before."""
    script = f"before = time.process_time()\n{load}\nprint(time.process_time() - before)"
    run(script)
    return 1000 * min(float(run(script)) for _ in range(rounds))


def first_ms(contender: Contender, port: int, rounds: int) -> tuple[float, float]:
    """Return the least milliseconds, by the wall and of CPU, from a process's start to an event."""
    script = f"{contender.load}\n{contender.start}\n{contender.event}\n"
    script += f"print(time.monotonic(), time.process_time()){_LEAVE}"
    taken = []
    for _ in range(rounds):
        before = time.monotonic()
        wall, cpu = map(float, run(script, port).split())
        taken.append((wall - before, cpu))
    return 1000 * min(wall for wall, _ in taken), 1000 * min(cpu for _, cpu in taken)


def rate(contender: Contender, port: int, number: int, rounds: int) -> Rate:
    """Return what an event takes, of the best round by median."""
    timed = _TIMED.format(event=contender.event, number=number)
    script = f"{contender.load}\n{contender.start}\n{timed}{_LEAVE}"
    rates = [Rate(*map(float, run(script, port).split())) for _ in range(rounds)]
    return min(rates)


def memory_mb(contender: Contender | None, port: int) -> float:
    """Return the resident memory of a process after 1,000 events, None: of one that has no SDK."""
    work = "" if contender is None else f"{contender.load}\n{contender.start}\n"
    if contender is not None:
        work += f"for turn in range(1000):\n    {contender.event}\n"
    return float(run(work + _MEMORY + _LEAVE, port))


def exit_seconds(contender: Contender, port: int, limit: float) -> float | None:
    """Return the seconds from the last line of an app to its end, None if beyond the limit."""
    script = f"{contender.load}\n{contender.start}\n"
    script += f"for turn in range(10):\n    {contender.event}\n{contender.age}\n"
    script += "time.sleep(0.2)\nprint(time.monotonic(), flush=True)"
    out, ended = _run(script, port, limit)
    return None if ended is None else ended - float(out)
