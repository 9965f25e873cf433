"""A run in a process of its own, to be killed."""

from __future__ import annotations

import os

from crashes import MAX_REPORTS
from step_plans import plans

#: The status of a process that stopped where it was told to.
STOPPED = 77
#: So few bytes that runs write both snapshots and logs.
SHORT = 2_000


def run(log: str, state: str, step: str | None = None, occurrence: int = 1) -> None:
    """Run, and stop dead at an occurrence of a commit's step, or of the ``write`` of a file."""
    from crashes import aggregate

    from pipelines.storage import files
    from pipelines.storage import states as storedstates

    storedstates.SHORT = SHORT

    seen = 0

    def stop_at(found: str) -> None:
        nonlocal seen
        seen += found == step
        if seen == occurrence and found == step:
            os._exit(STOPPED)

    if step == "write":
        real = os.write

        def half(descriptor: int, data: memoryview) -> int:
            nonlocal seen
            seen += 1
            if seen == occurrence:
                real(descriptor, data[: len(data) // 2])
                os._exit(STOPPED)
            return real(descriptor, data)

        files.os.write = half  # type: ignore[attr-defined]
    aggregate(log, state, plans(), max_reports=MAX_REPORTS, checkpoint=stop_at)
