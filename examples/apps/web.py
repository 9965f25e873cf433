"""A web service that says which of its routes are used, served by several processes.

``python -m examples.apps.web`` makes the app once and forks the workers, as does
``gunicorn --preload --worker-class asgi "examples.apps.web:create_app()"``;
``uvicorn --factory examples.apps.web:create_app --workers 2`` makes one in each worker. All of
them share the installation's state file, and the limits of its plan.

The device is the installation. Its operator consents, by ``python -m examples.apps.tool telemetry
on`` on the same machine: no visitor can do so, and no visitor's own answer is recorded here.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvicorn
from fastapi import FastAPI

from examples.apps.installation import home, make_client
from examples.apps.usage import Metrics


def create_app() -> FastAPI:
    """Return the app, with a client that its whole life long records and sends."""
    client = make_client(home())
    metrics = Metrics(client)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()

    app = FastAPI(lifespan=living)

    @app.get("/resize")
    async def resize() -> dict[str, int]:
        metrics.route.record("/resize")
        return {"worker": os.getpid()}

    @app.get("/convert")
    def convert() -> dict[str, int]:
        # In a thread of the pool, as all that is not async.
        metrics.route.record("/convert")
        return {"worker": os.getpid()}

    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m examples.apps.web", description=__doc__)
    parser.add_argument("--port", type=int, default=8000, help="default: 8000")
    parser.add_argument("--workers", type=int, default=2, help="default: 2")
    args = parser.parse_args(arguments)
    with socket.create_server(("127.0.0.1", args.port)) as listening:
        print(f"http://127.0.0.1:{listening.getsockname()[1]}", flush=True)
        server = uvicorn.Server(uvicorn.Config(create_app(), log_level="warning"))
        workers = [_fork(server, listening) for _ in range(args.workers)]
        signal.signal(signal.SIGTERM, lambda number, frame: _stop(workers))
        signal.signal(signal.SIGINT, lambda number, frame: _stop(workers))
        codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    # A worker that was told to stop ends, in the end, by that very signal.
    return max(0, *codes)


def _fork(server: uvicorn.Server, listening: socket.socket) -> int:
    worker = os.fork()
    if worker == 0:
        code = 1
        try:
            server.run(sockets=[listening])
            code = 0
        finally:
            os._exit(code)
    return worker


def _stop(workers: Sequence[int]) -> None:
    for worker in workers:
        os.kill(worker, signal.SIGTERM)


if __name__ == "__main__":
    raise SystemExit(main())
