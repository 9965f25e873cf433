"""The HTTP interface does what /openapi.json says of it, as schemathesis finds it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from described_interfaces import check_described
from invented_results import write_results
from serving import running, status, wait_until

from deploy.ports import HOST, free_ports
from pipelines.results.views import VIEWS

pytestmark = pytest.mark.slow

SERVER = """
import sys, fastapi, uvicorn
from pipelines.results.api import create_router
from pipelines.results.reader import ResultsReader
app = fastapi.FastAPI()
app.include_router(create_router(ResultsReader(sys.argv[1])))
uvicorn.run(app, port=int(sys.argv[2]), log_level="warning", access_log=False)
"""


@pytest.mark.real_randomness
def test_the_interface_keeps_to_its_description(tmp_path: Path) -> None:
    database = f"sqlite:///{tmp_path / 'results.db'}"
    write_results(tmp_path)
    (port,) = free_ports(1)
    command = [sys.executable, "-c", SERVER, database, str(port)]
    # It has no page for health, but it answers.
    with running(command, tmp_path / "server.log") as server:
        wait_until(lambda: server.poll() is not None or status(port) == 404)
        # Views, ranges and their comparison, experiments, retention, plans and health.
        selected = len(VIEWS) + 6
        check_described(f"http://{HOST}:{port}", tmp_path, seed=15, examples=10, selected=selected)
