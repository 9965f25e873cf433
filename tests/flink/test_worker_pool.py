"""The pool answers a runner once its worker is connected, or is not going to be."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from apache_beam.portability.api import beam_fn_api_pb2, endpoints_pb2

from deploy.ports import HOST, free_ports
from pipelines.beam.workers import WorkerPool

#: How long a worker may take to start on a machine that has much else to do, in seconds.
PATIENCE = 120


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    made = WorkerPool(cache=1)
    yield made
    made.close()


def asked(port: int) -> beam_fn_api_pb2.StartWorkerRequest:
    endpoint = endpoints_pb2.ApiServiceDescriptor(url=f"{HOST}:{port}")
    return beam_fn_api_pb2.StartWorkerRequest(worker_id="one", control_endpoint=endpoint)


def test_a_worker_that_dies_on_the_way_is_an_error(pool: WorkerPool) -> None:
    (nobody,) = free_ports(1)
    with ThreadPoolExecutor(1) as threads:
        answer = threads.submit(pool.StartWorker, asked(nobody), None)
        deadline = time.monotonic() + PATIENCE
        while not pool._workers and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not answer.done()
        os.kill(pool._workers["one"].pid, signal.SIGKILL)
        assert "worker one ended before it was connected" in answer.result(PATIENCE).error


def test_a_worker_that_reaches_its_runner_is_told_of(pool: WorkerPool) -> None:
    runner = grpc.server(ThreadPoolExecutor(1))
    port = runner.add_insecure_port(f"{HOST}:0")
    runner.start()
    try:
        assert pool.StartWorker(asked(port), None).error == ""
    finally:
        runner.stop(None)
