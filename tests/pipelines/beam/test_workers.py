"""The pool of workers: on loopback, answers once a worker is connected, and none outlives it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
    endpoints_pb2,
)
from waiting import wait_until

from deploy.ports import free_ports
from deploy.process import Process

pytestmark = pytest.mark.slow

MODULE = "pipelines.beam.workers"
PATIENCE = 600


@pytest.fixture
def pool(tmp_path):
    (port,) = free_ports(1)
    process = Process(tmp_path, "pool", f"{MODULE} --folder={tmp_path}")
    command = [sys.executable, "-m", MODULE, f"--folder={tmp_path}", f"--port={port}"]
    process.start(command, {"PYTHONPATH": os.getcwd()})
    (tmp_path / "address").write_text(f"127.0.0.1:{port}", encoding="ascii")
    wait_until(lambda: "workers are started on" in process.log_file.read_text("utf-8"))
    yield process
    process.kill()


class Runner(
    beam_provision_api_pb2_grpc.ProvisionServiceServicer,
    beam_fn_api_pb2_grpc.BeamFnControlServicer,
    beam_fn_api_pb2_grpc.BeamFnLoggingServicer,
):
    """A runner that says where it is, and never has any work."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._server = server = grpc.server(ThreadPoolExecutor(16))
        beam_provision_api_pb2_grpc.add_ProvisionServiceServicer_to_server(self, server)
        beam_fn_api_pb2_grpc.add_BeamFnControlServicer_to_server(self, server)
        beam_fn_api_pb2_grpc.add_BeamFnLoggingServicer_to_server(self, server)
        self.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()

    def GetProvisionInfo(self, request, context):  # noqa: N802
        place = endpoints_pb2.ApiServiceDescriptor(url=self.address)
        info = beam_provision_api_pb2.ProvisionInfo(control_endpoint=place, logging_endpoint=place)
        return beam_provision_api_pb2.GetProvisionInfoResponse(info=info)

    def Control(self, request_iterator, context):  # noqa: N802
        self._over.wait()
        yield from ()

    Logging = Control

    def end(self) -> None:
        self._over.set()
        self._server.stop(None).wait()


@pytest.fixture
def runners():
    made: list[Runner] = []

    def start() -> Runner:
        made.append(Runner())
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def runner(runners):
    return runners().address


@pytest.fixture
def silent():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def asked(pool: Process, name: str, request: object) -> object:
    with grpc.insecure_channel((pool.log_file.parent / "address").read_text("ascii")) as channel:
        stub = beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolStub(channel)
        return getattr(stub, name)(request, timeout=PATIENCE)


def start(pool: Process, name: str, runner: str) -> str:
    """Return what the pool answers once it has started a worker, or has not."""
    request = beam_fn_api_pb2.StartWorkerRequest(worker_id=name)
    request.provision_endpoint.url = runner
    return str(asked(pool, "StartWorker", request).error)


def started(pool: Process, name: str, runner: str) -> int:
    before = set(pool.children)
    assert start(pool, name, runner) == ""
    (worker,) = set(pool.children) - before
    return worker


def lives(pid: int) -> bool:
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return said.strip() != "" and not said.startswith("Z")


@pytest.mark.real_randomness
def test_a_worker_ends_when_its_runner_closes_the_connection(pool, runners):
    one, other = (runners() for _ in range(2))
    ending, staying = started(pool, "1-1", one.address), started(pool, "1-1", other.address)
    asked(pool, "StopWorker", beam_fn_api_pb2.StopWorkerRequest(worker_id="1-1"))
    one.end()
    wait_until(lambda: not lives(ending))
    assert pool.children == [staying]


@pytest.mark.real_randomness
def test_a_runner_is_told_that_its_worker_has_not_reached_it(pool):
    """It would wait for one that it was promised, and its job would run and read nothing."""
    (port,) = free_ports(1)
    assert "worker 1 ended before it was connected" in start(pool, "1", f"127.0.0.1:{port}")
    assert pool.children == []


@pytest.mark.real_randomness
def test_a_runner_is_told_that_its_worker_died_on_the_way(pool, silent):
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(start, pool, "1", silent)
        wait_until(lambda: pool.children)
        assert not answer.done()
        os.kill(pool.children[0], signal.SIGKILL)
        assert "worker 1 ended before it was connected" in answer.result(PATIENCE)


@pytest.mark.real_randomness
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_workers_end_with_their_pool(pool, runner, number):
    workers = [started(pool, name, runner) for name in ("1", "2")]
    assert all(map(lives, workers))
    pool.signal(number)
    wait_until(lambda: not any(map(lives, workers)))
    wait_until(lambda: pool.pid is None)
