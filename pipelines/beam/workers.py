"""A pool that starts Beam's Python workers where a runner asks for them: ``--environment_type
EXTERNAL --environment_config HOST:PORT``.

Each worker is a process of the Python that runs the pool. It ends with its runner, and with the
pool. The runner is answered once its worker is connected: Flink's waits without an end for a worker
that it was promised, so that a job whose worker had died on the way would run and read nothing.

Beam's own pool answers at once, gives workers no state cache, listens on every address, takes any
Python that is on the path, and leaves workers behind when it is killed.
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import beam_fn_api_pb2, beam_fn_api_pb2_grpc
from apache_beam.runners.worker.sdk_worker import SdkHarness

HOST = "127.0.0.1"
PORT = 50000
#: Megabytes of state that a worker remembers between bundles.
CACHE = 256
#: How long a worker may take to end by itself, in seconds.
_STOP_SECONDS = 10
#: Workers that may be starting at a time.
_STARTING = 64
#: What a worker writes once it has reached its runner.
_CONNECTED = b"."

_LOGGER = logging.getLogger(__name__)


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service by which a runner starts and stops workers.

    Parameters
    ----------
    cache : int, at least 0
        Megabytes of state that a worker remembers between bundles.
    """

    def __init__(self, cache: int) -> None:
        self._cache = cache
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()

    def StartWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a process for a worker; answer once it is connected."""
        command = [sys.executable, "-m", __spec__.name, f"--cache={self._cache}"]
        command += [f"--worker={request.worker_id}"]
        command += [f"--control={request.control_endpoint.url}"]
        reader, writer = os.pipe()
        command += [f"--connected={writer}"]
        with open(reader, "rb") as connected:
            try:
                # A worker reads its input until this pool is gone.
                worker = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[writer])
            except OSError as error:
                return beam_fn_api_pb2.StartWorkerResponse(error=str(error))
            finally:
                os.close(writer)
            self._keep(request.worker_id, worker)
            if not connected.read(len(_CONNECTED)):
                said = (
                    f"worker {request.worker_id} ended before it was connected: see the pool's log"
                )
                return beam_fn_api_pb2.StartWorkerResponse(error=said)
        return beam_fn_api_pb2.StartWorkerResponse()

    def _keep(self, name: str, worker: subprocess.Popen[bytes]) -> None:
        with self._lock:
            for ended in [
                each for each, known in self._workers.items() if known.poll() is not None
            ]:
                _end([self._workers.pop(ended)])
            self._workers[name] = worker
        _LOGGER.info("worker %s is process %d", name, worker.pid)

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """End the process of a worker."""
        with self._lock:
            worker = self._workers.pop(request.worker_id, None)
        if worker is not None:
            _end([worker])
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        """End all workers."""
        with self._lock:
            workers = list(self._workers.values())
            self._workers.clear()
        _end(workers)


def _end(workers: list[subprocess.Popen[bytes]]) -> None:
    for worker in workers:
        worker.terminate()
    for worker in workers:
        # Its pipe is closed, too.
        with worker:
            try:
                worker.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                worker.kill()


def serve(host: str, port: int, cache: int) -> None:
    """Run a pool until SIGTERM or SIGINT."""
    pool = WorkerPool(cache)
    server = grpc.server(ThreadPoolExecutor(_STARTING), options=[("grpc.so_reuseport", 0)])
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    server.add_insecure_port(f"{host}:{port}")
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server.start()
    print(f"workers are started on {host}:{port}", flush=True)
    stopped.wait()
    server.stop(grace=None)
    pool.close()


def work(name: str, control: str, cache: int, connected: int) -> None:
    """Be a worker until its runner has done, or has gone."""
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    try:
        # Once it is made, its channel is ready.
        harness = SdkHarness(control, worker_id=name, state_cache_size=cache << 20)
        os.write(connected, _CONNECTED)
        os.close(connected)
        harness.run()
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        _LOGGER.warning("the runner of worker %s is gone: %s", name, error)
    finally:
        # Threads that still wait for the runner would keep the process.
        logging.shutdown()
        os._exit(0)


def _end_with_the_pool() -> None:
    with contextlib.suppress(OSError):
        sys.stdin.buffer.read()
    os._exit(1)


def main() -> int:
    """Run the pool, or a worker that it starts, and return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--host", default=HOST, help="where it listens")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--cache", type=int, default=CACHE, metavar="MB", help="state of a worker")
    parser.add_argument("--folder", help="not read: a mark in the list of processes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--control", help=argparse.SUPPRESS)
    parser.add_argument("--connected", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"
    )
    if args.worker is None:
        serve(args.host, args.port, args.cache)
    else:
        work(args.worker, args.control, args.cache, args.connected)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
