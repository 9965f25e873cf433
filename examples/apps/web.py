"""A web service that says which of its routes are used, served by several processes.

``gunicorn --preload --workers 4 --worker-class asgi "examples.apps.web:create_app()"`` makes the
app once and forks the workers; ``uvicorn --factory examples.apps.web:create_app --workers 4`` makes
one in each worker. All of them share the installation's state file, and the limits of its plan.

The device is the installation. Its operator consents, by ``python -m examples.apps.tool telemetry
on`` on the same machine: no visitor can do so, and no visitor's own answer is recorded here.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

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
