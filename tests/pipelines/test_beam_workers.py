"""The pool of workers: on loopback, and no worker outlives it or its runner."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc

from deploy.ports import free_ports
from deploy.process import Process

pytestmark = pytest.mark.slow

MODULE = "pipelines.beam.workers"
PATIENCE = 120


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.fixture
def pool(tmp_path) -> Iterator[Process]:
    """A pool, its address in a file."""
    (port,) = free_ports(1)
    process = Process(tmp_path, "pool", f"{MODULE} --folder={tmp_path}")
    process.start(
        [sys.executable, "-m", MODULE, f"--folder={tmp_path}", f"--port={port}"],
        {"PYTHONPATH": os.getcwd()},
    )
    (tmp_path / "address").write_text(f"127.0.0.1:{port}", encoding="ascii")
    wait_until(lambda: "workers are started on" in process.log_file.read_text("utf-8"))
    yield process
    process.kill()


@pytest.fixture
def runner() -> Iterator[str]:
    """The address of a runner that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def asked(pool: Process, name: str, request: object) -> object:
    with grpc.insecure_channel((pool.log_file.parent / "address").read_text("ascii")) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        return getattr(stub, name)(request, timeout=PATIENCE)


def started(pool: Process, name: str, runner: str) -> int:
    """Return the process of a new worker."""
    before = set(pool.children)
    request = beam_fn_api_pb2.StartWorkerRequest(worker_id=name)
    request.provision_endpoint.url = runner
    assert asked(pool, "StartWorker", request).error == ""
    (worker,) = set(pool.children) - before
    return worker


def lives(pid: int) -> bool:
    said = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return said.strip() != "" and not said.startswith("Z")


def test_a_worker_ends_when_its_runner_asks_for_it(pool, runner):
    one, other = started(pool, "1", runner), started(pool, "2", runner)
    asked(pool, "StopWorker", beam_fn_api_pb2.StopWorkerRequest(worker_id="1"))
    assert pool.children == [other]
    assert not lives(one)


def test_workers_of_two_pipelines_that_have_one_name_do_not_end_each_other(pool, runner):
    both = [started(pool, "1-1", runner) for _ in range(2)]
    asked(pool, "StopWorker", beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
    assert pool.children == sorted(both)
    os.kill(both[0], signal.SIGKILL)
    wait_until(lambda: not lives(both[0]))
    asked(pool, "StopWorker", beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
    assert pool.children == []


def test_a_worker_ends_when_its_runner_is_not_there(pool):
    (port,) = free_ports(1)
    worker = started(pool, "1", f"127.0.0.1:{port}")
    wait_until(lambda: not lives(worker))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_pool(pool, runner, number):
    workers = [started(pool, name, runner) for name in ("1", "2")]
    assert all(map(lives, workers))
    pool.signal(number)
    wait_until(lambda: not any(map(lives, workers)))
    wait_until(lambda: pool.pid is None)


def test_it_listens_on_loopback_alone(pool):
    said = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in said.splitlines() if f"pid={pool.pid}," in line]
    assert "127.0.0.1" in line.split()[3]
