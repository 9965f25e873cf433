"""Problem documents, limits of request bodies, and warnings of unexpected errors."""

from __future__ import annotations

import asyncio
import json
import os
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from fastapi import Request, Response
from starlette.exceptions import HTTPException

#: Seconds within which a body must have arrived.
BODY_SECONDS = 10.0
_MEDIA_TYPE = "application/problem+json"
#: An answer's content as OpenAPI describes it.
CONTENT: dict[str, Any] = {
    _MEDIA_TYPE: {
        "schema": {
            "type": "object",
            "properties": {"title": {"type": "string"}, "status": {"type": "integer"}},
            "required": ["title", "status"],
        }
    }
}


def problem(status: int, title: str, headers: Mapping[str, str]) -> Response:
    """Return a problem document (RFC 9457)."""
    body = json.dumps({"title": title, "status": status})
    return Response(body, status, headers, _MEDIA_TYPE)


async def body_of(request: Request, most: int) -> bytes:
    """Return the body of a request; HTTPException if it has over ``most`` bytes, or is late."""
    parts, size = [], 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    text = f"What is sent is too long: it may have {most:,} bytes."
                    raise HTTPException(413, text, {"connection": "close"})
                parts.append(part)
    except TimeoutError:
        raise HTTPException(408, "It did not arrive in time.", {"connection": "close"}) from None
    return b"".join(parts)


class Faults:
    """Warns once of each place in the code that raises an error, without the error's text.

    The text may hold what a client has sent.
    """

    def __init__(self, warn: Callable[[str], None], server: str) -> None:
        self._warn = warn
        self._server = server
        self._known: set[str] = set()

    def note(self, error: Exception) -> str:
        """Warn unless the place is known already; return the class of the error and the place."""
        places = traceback.extract_tb(error.__traceback__)[-1:]
        at = (f", {os.path.basename(place.filename)}:{place.lineno}" for place in places)
        where = f"{type(error).__name__}{''.join(at)}"
        if where not in self._known:
            self._known.add(where)
            with suppress(OSError):
                self._warn(f"an error in the {self._server} ({where})")
        return where
