"""Programs that run in the foreground together, and end with the process that started them.

All of them are in one process group, with a *guard* that does nothing but wait for the end of a
pipe. The supervisor alone holds the other end, so the system closes it however the supervisor ends,
and the guard then ends the group. Unlike Linux's ``PR_SET_PDEATHSIG`` this holds on every system,
and for programs with capabilities, as Caddy has where it may open port 443.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

#: A program that has run for so many seconds is started again at once when it ends. Before each
#: other start there is a pause, which doubles from the first to the second of ``PAUSES``, seconds.
STEADY = 10.0
PAUSES = (1.0, 60.0)
_GUARD = "import os, signal, sys; sys.stdin.buffer.read(); os.killpg(0, signal.SIGKILL)"


class _Program:
    """A program: its process while it runs, and when to start it while it does not."""

    def __init__(self, command: Sequence[str]) -> None:
        self.command = command
        self.process: subprocess.Popen[bytes] | None = None
        self.due = self._began = 0.0
        self._pause = 0.0

    def start(self, group: int) -> None:
        self._began = time.monotonic()
        self.process = subprocess.Popen(self.command, process_group=group)

    def postpone(self) -> float:
        """Forget a process that has ended; return the seconds until the next start."""
        steady = time.monotonic() - self._began >= STEADY
        self._pause = 0.0 if steady else min(max(2 * self._pause, PAUSES[0]), PAUSES[1])
        self.process, self.due = None, time.monotonic() + self._pause
        return self._pause


def together(programs: Mapping[str, Sequence[str]], *, restart: bool = False) -> int:
    """Run programs, by name, until this process is told to end; then end them all.

    A program that ends by itself is started again with ``restart``, those that come first in
    ``programs`` before the others. Without it all programs end then.

    Returns the status of the program that ended; 0 if SIGINT (Ctrl-C), SIGTERM or SIGHUP came. A
    terminal's signals reach this process alone, so that each program is told once. Raises OSError
    if a program cannot be started.
    """
    parts = {name: _Program(command) for name, command in programs.items()}
    told: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: told.append(1))
    guard = _guard(0)
    group, status = guard.pid, 0
    while not told:
        running = [part.process for part in parts.values() if part.process is not None]
        if guard.poll() is not None:
            # A group without a process is gone.
            guard = _guard(group if running else 0)
            group = os.getpgid(guard.pid)
        for name, part in parts.items():
            if part.process is None and time.monotonic() >= part.due:
                part.start(group)
            code = None if part.process is None else part.process.poll()
            if code is None:
                continue
            pause, what = part.postpone(), "the others end too"
            if restart:
                what = f"it is started again in {pause:.0f} s" if pause else "it is started again"
            else:
                status = code
                told.append(1)
            print(f"{name} has ended with status {code}: {what}", file=sys.stderr, flush=True)
        time.sleep(0.1)
    _end([part.process for part in parts.values() if part.process is not None], told)
    # Whatever a program has left behind ends with the guard.
    guard.communicate()
    return status


def _end(processes: Sequence[subprocess.Popen[bytes]], told: Sequence[int]) -> None:
    """Wait until processes have ended; terminate them each time that this process is told to."""
    asked = 0
    while any(process.poll() is None for process in processes):
        if asked < len(told):
            asked = len(told)
            for process in processes:
                process.terminate()
        time.sleep(0.1)


def _guard(group: int) -> subprocess.Popen[bytes]:
    """Start a guard in a process group, a new one if 0."""
    command = [sys.executable, "-I", "-S", "-c", _GUARD]
    return subprocess.Popen(command, stdin=subprocess.PIPE, process_group=group)
