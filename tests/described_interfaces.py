"""Does an HTTP interface do what its /openapi.json says, as schemathesis finds it?"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_PROGRAM = Path(sys.executable).parent / "schemathesis"


def check_described(url: str, folder: Path, *, seed: int, examples: int, selected: int) -> None:
    """Try all operations, of which there are so many, and assert that each keeps to what is said.

    No schema says which bytes are messages, or which cursors there are: what is accepted may be
    less than is described.
    """
    done = subprocess.run(
        [
            *(str(_PROGRAM), "--no-color", "run", f"{url}/openapi.json", "--url", url),
            *("--seed", str(seed), "--generation-deterministic", "--max-examples", str(examples)),
            *("--phases", "examples,coverage,fuzzing", "--checks", "all"),
            *("--exclude-checks", "positive_data_acceptance"),
        ],
        cwd=folder,
        env={**os.environ, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{selected} selected" in done.stdout, done.stdout
