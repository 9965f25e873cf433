"""What /openapi.json says of the HTTP interface is what it does, as schemathesis finds it."""

from __future__ import annotations

import http.client
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from stored_results import project

from deploy.ports import HOST, free_ports
from pipelines.sinks.views import VIEWS

pytestmark = pytest.mark.slow

SERVER = """
import sys, fastapi, uvicorn
from pipelines.results.api import create_router
from pipelines.results.reader import ResultsReader
app = fastapi.FastAPI()
app.include_router(create_router(ResultsReader(sys.argv[1])))
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("GET", "/openapi.json")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def test_the_interface_keeps_to_its_description(tmp_path: Path) -> None:
    program = Path(sys.executable).parent / "schemathesis"
    if not program.exists():
        pytest.skip("schemathesis is not installed")
    project(f"sqlite:///{tmp_path / 'results.db'}")
    (port,) = free_ports(1)
    url = f"http://{HOST}:{port}"
    root = str(Path(__file__).parents[3])
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, f"sqlite:///{tmp_path / 'results.db'}", str(port)],
        env={**os.environ, "PYTHONPATH": root},
    )
    try:
        deadline = time.monotonic() + 600
        while not answers(port):
            assert server.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        done = subprocess.run(
            [
                *(str(program), "--no-color", "run", f"{url}/openapi.json", "--url", url),
                *("--seed", "15", "--generation-deterministic", "--max-examples", "10"),
                *("--phases", "examples,coverage,fuzzing", "--checks", "all"),
                # No schema says which cursors there are.
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
        # That it has tried all that there is: views, plans and health.
        assert f"{len(VIEWS) + 2} selected" in done.stdout, done.stdout
    finally:
        server.terminate()
        server.wait(600)
