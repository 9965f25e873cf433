"""A pool that starts Beam's Python workers where a runner asks for them: ``--environment_type
EXTERNAL --environment_config HOST:PORT``.

A worker ends with its runner, and with the pool. The runner is answered once its worker is
connected: Flink's waits without an end for one that it was promised. Beam's own pool answers at
once, gives workers no state cache, listens on every address, takes any Python that is on the path,
and leaves workers behind when it is killed.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
from apache_beam.portability.api import (
    beam_fn_api_pb2,
    beam_fn_api_pb2_grpc,
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format

HOST = "127.0.0.1"
PORT = 50000
#: Megabytes of state that a worker remembers between bundles.
CACHE = 256
#: How long a worker may take to end by itself, in seconds.
_STOP_SECONDS = 10
#: How long its runner may take to answer a new worker, in seconds.
_PROVISION_SECONDS = 60
_CACHE_OPTION = "beam:option:max_cache_memory_usage_mb:v1"
#: Workers that may be starting at a time.
_STARTING = 64
#: The byte that a worker writes once it has reached its runner.
_CONNECTED = b"."

_LOGGER = logging.getLogger(__name__)


class WorkerPool(beam_fn_api_pb2_grpc.BeamFnExternalWorkerPoolServicer):
    """The service by which a runner starts and stops workers."""

    def __init__(self, cache: int) -> None:
        self._cache = cache
        self._workers: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def StartWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StartWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StartWorkerResponse:
        """Start a process for a worker; answer once it is connected."""
        command = [sys.executable, "-m", __spec__.name, f"--cache={self._cache}"]
        command += [f"--worker={request.worker_id}"]
        command += [f"--provision={request.provision_endpoint.url}"]
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
                problem = (
                    f"worker {request.worker_id} ended before it was connected: see the pool's log"
                )
                return beam_fn_api_pb2.StartWorkerResponse(error=problem)
        return beam_fn_api_pb2.StartWorkerResponse()

    def _keep(self, name: str, worker: subprocess.Popen[bytes]) -> None:
        with self._lock:
            ended = [each for each in self._workers if each.poll() is not None]
            self._workers = [each for each in self._workers if each not in ended]
            self._workers.append(worker)
        # Their pipes are closed, too.
        _end(ended)
        _LOGGER.info("worker %s is process %d", name, worker.pid)

    def StopWorker(  # noqa: N802
        self, request: beam_fn_api_pb2.StopWorkerRequest, context: grpc.ServicerContext
    ) -> beam_fn_api_pb2.StopWorkerResponse:
        """Let a worker end, as it does by itself when its runner closes the connection.

        Each pipeline calls its first worker ``1-1``: to end the one of this name could end that of
        a pipeline that has just begun, and its runner would wait for it for ever.
        """
        return beam_fn_api_pb2.StopWorkerResponse()

    def close(self) -> None:
        with self._lock:
            workers = list(self._workers)
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
    # A signal may come in the instant before a wait without a limit, and would not end it.
    told: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: told.append(number))
    server.start()
    print(f"workers are started on {host}:{port}", flush=True)
    while not told:
        time.sleep(0.1)
    server.stop(grace=None)
    pool.close()


def work(name: str, provision: str, cache: int, connected: int) -> None:
    """Be a worker until its runner has no more work, or has gone.

    ``name``: what the runner calls it. ``provision``: HOST:PORT where the runner gives the worker
    its settings. ``cache``: megabytes, unless the pipeline's ``--max_cache_memory_usage_mb`` says
    another number. ``connected``: a descriptor to which a byte is written once the runner is
    reached.
    """
    threading.Thread(target=_end_with_the_pool, daemon=True).start()
    threading.excepthook = _report
    try:
        os.environ.update(_environment(name, provision, cache))
        # Once it is made, its channel is ready.
        handler, harness, _ = sdk_worker_main.create_harness(os.environ)
        os.write(connected, _CONNECTED)
        os.close(connected)
        harness.run()
        handler.close()
    except (grpc.RpcError, grpc.FutureTimeoutError) as error:
        _LOGGER.warning("the runner of worker %s is gone: %s", name, error)
    finally:
        # Threads that still wait for the runner would keep the process.
        logging.shutdown()
        os._exit(0)


def _environment(name: str, provision: str, cache: int) -> dict[str, str]:
    """Return what Beam's own start of a worker would find in the environment."""
    with grpc.insecure_channel(provision) as channel:
        info = (
            beam_provision_api_pb2_grpc.ProvisionServiceStub(channel)
            .GetProvisionInfo(
                beam_provision_api_pb2.GetProvisionInfoRequest(),
                metadata=[("worker_id", name)],
                timeout=_PROVISION_SECONDS,
            )
            .info
        )
    options = json_format.MessageToDict(info.pipeline_options)
    options[_CACHE_OPTION] = options.get(_CACHE_OPTION) or cache
    return {
        "WORKER_ID": name,
        "PIPELINE_OPTIONS": json.dumps(options),
        "RUNNER_CAPABILITIES": " ".join(info.runner_capabilities),
        "LOGGING_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.logging_endpoint),
        "CONTROL_API_SERVICE_DESCRIPTOR": text_format.MessageToString(info.control_endpoint),
    }


def _report(failed: threading.ExceptHookArgs) -> None:
    if not _is_of_runner(failed.exc_value):
        threading.__excepthook__(failed)


def _is_of_runner(error: BaseException | None) -> bool:
    """Return whether it is because the runner closed its connections, as each does at its end."""
    return isinstance(error, grpc.RpcError)


def _end_with_the_pool() -> None:
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main() -> int:
    """Run the pool, or a worker that it starts, and return the exit status."""
    parser = argparse.ArgumentParser(prog=f"python -m {__spec__.name}", description=__doc__)
    parser.add_argument("--host", default=HOST, help="where it listens")
    parser.add_argument("--port", type=int, default=PORT)
    parser.add_argument("--cache", type=int, default=CACHE, metavar="MB", help="state of a worker")
    parser.add_argument("--folder", help="not read: a mark in the list of processes")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--provision", help=argparse.SUPPRESS)
    parser.add_argument("--connected", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    # The runner has the whole log of a worker; here are its errors, if the runner is not there.
    log = logging.StreamHandler()
    log.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(message)s"))
    log.setLevel(logging.ERROR)
    log.addFilter(lambda record: not (record.exc_info and _is_of_runner(record.exc_info[1])))
    logging.basicConfig(handlers=[log], force=True)
    if args.worker is None:
        # As the sotto command has it: a thread of numpy's for each core takes more than it saves.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        serve(args.host, args.port, args.cache)
    else:
        work(args.worker, args.provision, args.cache, args.connected)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
