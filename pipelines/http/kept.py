"""Answers that a server keeps until the results from which they were made change."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from fastapi import Request, Response

from sotto.errors import SottoError

#: How many requests may wait for an answer to be made; each occupies one of the server's threads.
_WAITING = 16


class BusyError(SottoError):
    """Too many requests wait for an answer to be made."""


class Answer(NamedTuple):
    """An answer, and the cursor of the one that follows it, if there is one."""

    body: bytes
    following: str | None = None


class KeptAnswers:
    """The answers of one revision that were asked for last, up to ``most`` bytes.

    The bytes of a question count, too, since anybody can ask a long question that has a short
    answer. One answer is made at a time, and few requests may wait for that, so that many requests
    do not hold up those whose answer is kept.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._making = threading.Lock()
        self._places = threading.BoundedSemaphore(_WAITING)
        self._revision = ""
        self._made: OrderedDict[object, Answer] = OrderedDict()
        self._bytes = 0

    def get(
        self, revision: str, asked: object, make: Callable[[], Answer], *, keep: bool = True
    ) -> Answer:
        """Return the kept answer to what is asked, or make one; ``keep``: whether to keep it.

        Raises BusyError if too many requests wait for answers to be made.
        """
        if (known := self._known(revision, asked)) is not None:
            return known
        if not self._places.acquire(blocking=False):
            raise BusyError("many answers are being made")
        try:
            with self._making:
                if (known := self._known(revision, asked)) is not None:
                    return known
                made = make()
                if keep:
                    self._keep(revision, asked, made)
        finally:
            self._places.release()
        return made

    def _known(self, revision: str, asked: object) -> Answer | None:
        with self._lock:
            if revision != self._revision:
                self._revision, self._bytes = revision, 0
                self._made.clear()
            if (known := self._made.get(asked)) is not None:
                self._made.move_to_end(asked)
            return known

    def _keep(self, revision: str, asked: object, made: Answer) -> None:
        with self._lock:
            if revision != self._revision:
                return
            self._made[asked] = made
            self._bytes += _size(asked, made)
            while self._bytes > self._most:
                self._bytes -= _size(*self._made.popitem(last=False))


def _size(asked: object, made: Answer) -> int:
    return len(repr(asked)) + len(made.body)


def has_already(request: Request, etag: str) -> bool:
    """Return whether the client already has the answer of this ETag.

    A weak ETag counts as well: a proxy that compresses an answer makes its ETag weak.
    """
    given = request.headers.get("if-none-match", "").split(",")
    return bool({"*", etag} & {each.strip().removeprefix("W/") for each in given})


def answered(
    request: Request, body: bytes, media_type: str, etag: str | None = None, cache: str = "no-cache"
) -> Response:
    """Return an answer with its ETag, by default a digest; 304 if the client has it already."""
    etag = etag or f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = {"etag": etag, "cache-control": cache}
    if has_already(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(body, 200, headers, media_type)
