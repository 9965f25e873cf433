"""A program that runs in the background and outlives whoever started it.

It is known by a file with its process id, and by a path in its command line, since an id may be
another process's by now.
"""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from deploy.errors import DeployError

#: How long a clean stop may take before the process is made to end, and ending then, in seconds.
STOP_SECONDS = 30
#: In the environment: how long any start may take, in seconds.
START_VARIABLE = "SOTTO_START_SECONDS"
#: How often somebody who waits for a start is shown that it goes on, in seconds.
_SHOWN_EVERY = 10


class Process:
    """One program, its log and its id in a folder; ``mark`` is in its command line alone."""

    def __init__(self, folder: Path, name: str, mark: str) -> None:
        self.name = name
        self.log_file = folder / f"{name}.log"
        self._mark = mark
        self._pid_file = folder / f"{name}.pid"
        self._child: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """Its process id; None if it does not live."""
        if self._child is not None:
            # Its command line may not be there yet; that it is ours says enough.
            if self._child.poll() is None:
                return self._child.pid
            self._child = None
        try:
            pid = int(self._pid_file.read_text("ascii"))
        except (FileNotFoundError, ValueError):
            return None
        return pid if os.fsencode(self._mark) in _command_line(pid) else None

    @property
    def children(self) -> list[int]:
        pid = self.pid
        if pid is None:
            return []
        said = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,stat="], capture_output=True, text=True, check=True
        ).stdout
        found = (line.split() for line in said.splitlines())
        return sorted(int(one) for one, of, state in found if int(of) == pid and state[0] != "Z")

    def start(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Start it; what it says is added to its log, ``environment`` to that of this process."""
        with open(self.log_file, "ab") as log:
            self._child = subprocess.Popen(
                command,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        # For a moment amid its start a program has no command line to be known by.
        while self._child.poll() is None and not _command_line(self._child.pid):
            time.sleep(0.001)
        self._pid_file.write_text(str(self._child.pid), encoding="ascii")

    def stop(self) -> bool:
        """Let it end by itself; after ``STOP_SECONDS`` make it. False if it did not run."""
        if not self.signal(signal.SIGTERM):
            self._pid_file.unlink(missing_ok=True)
            return False
        if not self._gone_within(STOP_SECONDS):
            self.kill()
        self._pid_file.unlink(missing_ok=True)
        return True

    def kill(self) -> None:
        """End it at once, as a crash would; DeployError if it does not end."""
        if self.signal(signal.SIGKILL) and not self._gone_within(STOP_SECONDS):
            raise DeployError(f"{self.name} does not end; see {self.log_file}")
        self._pid_file.unlink(missing_ok=True)

    def signal(self, number: signal.Signals) -> bool:
        """Send it a signal; False if it does not live."""
        pid = self.pid
        if pid is None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
        return True

    def last_error(self) -> str:
        """Return the last line of its log that has an error, or else its last line."""
        lines = self.log_file.read_text("utf-8", errors="replace").splitlines()
        shown = [line for line in lines if "ERROR" in line or "Exception" in line] or lines
        return f"{shown[-1] if shown else 'its log is empty'} (see {self.log_file})"

    def _gone_within(self, seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while self.pid is not None:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def wait_until_ready(
    processes: Sequence[Process], ready: Callable[[], bool], seconds: float
) -> None:
    """Return once programs are ready; DeployError if one has ended, or they are not in time.

    A line on stderr every ten seconds shows that the wait goes on. ``seconds`` is for a quiet
    machine: see :func:`start_seconds`.
    """
    began = time.monotonic()
    shown = 0
    names = ", ".join(process.name for process in processes)
    while not ready():
        for process in processes:
            if process.pid is None:
                raise DeployError(f"the {process.name} ended: {process.last_error()}")
        waited, limit = time.monotonic() - began, start_seconds(seconds)
        if waited > limit:
            last = processes[-1]
            raise DeployError(
                f"the {last.name} is not ready in {limit:.0f} s, which {START_VARIABLE} can raise: "
                f"{last.last_error()}"
            )
        if waited // _SHOWN_EVERY > shown:
            shown = int(waited // _SHOWN_EVERY)
            print(f"waiting for {names}: {waited:.0f} of {limit:.0f} s", file=sys.stderr)
        time.sleep(0.05)


def start_seconds(quiet: float) -> float:
    """Return how long a start may take now: ``quiet`` seconds, more while the cores are shared.

    As many times as long as programs wait for each core, by the load of the last minute; or what
    ``SOTTO_START_SECONDS`` says. DeployError if that is no positive number.
    """
    said = os.environ.get(START_VARIABLE)
    if said is None:
        return quiet * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise DeployError(f"{START_VARIABLE} is a positive number of seconds; got {said!r}")
    return seconds


def _command_line(pid: int) -> bytes:
    """Return what a process was started with, words separated by spaces; empty if it has ended."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
        except (FileNotFoundError, ProcessLookupError):
            return b""
    command = ["ps", "-ww", "-o", "stat=,command=", "-p", str(pid)]
    found = subprocess.run(command, capture_output=True, check=False).stdout
    return b"" if found.startswith(b"Z") else found
