"""What /openapi.json says is what the collector does, as schemathesis finds it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from live_collector import LiveCollector

pytestmark = pytest.mark.slow


def test_the_collector_keeps_to_its_description(tmp_path):
    program = Path(sys.executable).parent / "schemathesis"
    if not program.exists():
        pytest.skip("schemathesis is not installed")
    with LiveCollector(tmp_path) as collector:
        done = subprocess.run(
            [
                *(str(program), "--no-color", "run", f"{collector.url}/openapi.json"),
                *("--url", collector.url, "--seed", "14", "--generation-deterministic"),
                *("--max-examples", "50"),
                *("--phases", "examples,coverage,fuzzing", "--checks", "all"),
                # No schema says which bytes are messages.
                *("--exclude-checks", "positive_data_acceptance"),
            ],
            cwd=tmp_path,
            env={**os.environ, "PYTHONWARNINGS": "default"},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in collector.output(), collector.output()
        # That it has tried all that there is.
        described = json.loads(
            collector.ask(b"GET /openapi.json HTTP/1.1\r\nConnection: close\r\n\r\n").partition(
                b"\r\n\r\n"
            )[2]
        )
        assert f"{len(described['paths'])} selected" in done.stdout, done.stdout
