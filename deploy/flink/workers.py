"""The Python workers that a task manager has started, whether it still lives or not.

One that was starting when its task manager was killed waits for it for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

_COMMANDS = (b"pyflink.fn_execution", b"pyflink-udf-runner")


def workers(configuration: Path) -> list[int]:
    """Return the processes of the workers of a session.

    Parameters
    ----------
    configuration : Path
        The session's folder of that name: workers have it from their task manager.
    """
    mark = b"FLINK_CONF_DIR=" + os.fsencode(configuration)
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            named = any(name in (process / "cmdline").read_bytes() for name in _COMMANDS)
            if named and mark in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:
            # It has ended, or is somebody else's.
            continue
    return sorted(found)


def end(configuration: Path) -> None:
    """End them all at once."""
    for pid in workers(configuration):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
