"""The way to an HTTP collector (``sotto collect``), with the standard library alone.

Certificates are checked, no proxy is used, no redirect is followed, and every wait is bounded.

The modules that connect are imported by the first request: ``ssl`` and ``http.client`` take longer
to load than the rest of the SDK, and most runs of a tool send nothing.
"""

from __future__ import annotations

import json
import os
import re
import time
from _thread import allocate_lock
from collections.abc import Collection
from operator import itemgetter

from clientsdk.lifecycle import Unshared
from sotto.errors import ParameterError, PlanError, PublishError, seconds_of, wrong_type
from sotto.plan.compiled import CompiledPlan, canonical, fingerprint_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    import http.client
    import ssl
    from datetime import timedelta

    from clientsdk.publishers.http_requests import Request, RequestParts

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Scheme, host, port and path of a collector's address; a query or a user's name is refused.
_URL = re.compile(
    r"([Hh][Tt][Tt][Pp][Ss]?)://(\[[\dA-Fa-f:.]+\]|[^\s\0-\x1f\x7f/?#@:\[\]]+)(?::(\d{0,5}))?"
    r"(/[^\s?#]*)?(?:#.*)?"
)
_PORTS = 1 << 16
#: Bytes of an answer that are read: what is posted is answered with a line, plans are larger.
_ANSWER_BYTES, _PLANS_BYTES = 4096, 4 << 20
#: Seconds without a message after which a connection is not used again: the collector has closed
#: it, or is about to.
_IDLE = 10.0


class HttpPublisher(Unshared):
    """Posts each message to a collector, which answers once it is durable.

    Messages of one pseudonym share a connection while they follow each other in a flush, those of
    another one begin a new one that resumes no TLS session, and a process forked from this one has
    connections of its own. Nothing but the app's key says who sends.

    Parameters
    ----------
    url : str
        Of the collector, such as ``"https://telemetry.example"``; ``http://`` for loopback alone.
    key : str, optional
        The app's: ``sotto collect --new-key`` makes one. It is the same for all installations.
    timeout : float or timedelta, in [0.5, 600]
        Seconds that a message may take, the look-up of the name and a slow answer included.
    context : ssl.SSLContext, optional
        For a certificate authority of your own; ``ssl.create_default_context()`` otherwise.

    Raises
    ------
    ParameterError
        One of these is not as it should be.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float | timedelta = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._collector = Address(url, context)
        if not isinstance(key, str | None):
            raise wrong_type("key", "a text, or None", key)
        if key is not None and not re.fullmatch(r"[!-~]{1,512}", key):
            raise ParameterError("key must be the text that sotto collect --new-key has printed")
        self._headers = {"Content-Type": "application/octet-stream"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout = seconds_of("timeout", timeout, 0.5, 600)
        self._process = os.getpid()
        self._lock = allocate_lock()
        self._connection: http.client.HTTPConnection | None = None
        self._pseudonym = b""
        self._used = 0.0
        self._closed = False

    @classmethod
    def from_url(cls, url: str) -> HttpPublisher:
        """Return the publisher to a collector at ``https://host``; see the class for errors."""
        return cls(url)

    def publish(self, shard: int, message: bytes) -> None:
        """Post a message; it is durable when this returns.

        Raises
        ------
        PublishError
            It may not be. ``retry_after`` is what the collector asked for.
        """
        from clientsdk.publishers import pseudonym_in
        from sotto.wire.batch import join_messages

        pseudonym = pseudonym_in(message)
        deadline = time.monotonic() + self._timeout
        self._check_process()
        if not self._lock.acquire(timeout=self._timeout):
            raise PublishError("another thread waits for the collector")
        try:
            if pseudonym != self._pseudonym or time.monotonic() - self._used > _IDLE:
                self._disconnect()
                self._pseudonym = pseudonym
            self._post(join_messages([message]), deadline)
        finally:
            self._lock.release()
            if self._closed:
                self.close()

    def close(self) -> None:
        """Disconnect at once, or when the message under way is answered."""
        self._closed = True
        self._end_flush()

    def _end_flush(self) -> None:
        """Disconnect at the end of a flush, unless a message of another client is under way.

        A connection that stayed open would be closed as another pseudonym's is opened, and the two
        moments would show that both are of one device.
        """
        self._check_process()
        if self._lock.acquire(blocking=False):
            try:
                self._disconnect()
            finally:
                self._lock.release()

    def _post(self, body: bytes, deadline: float) -> None:
        kept, self._connection = self._connection, None
        request = None if kept is None else self._attempt(kept, body, deadline)
        if request is None or not (request.status or request.given_up):
            # There was no connection, or the collector has closed it since.
            request = self._attempt(self._collector.connection(), body, deadline)
        request.require_success()
        if request.connection.sock is not None:
            self._connection, self._used = request.connection, time.monotonic()

    def _get(self, path: str, most: int, deadline: float) -> bytes:
        """Return the first bytes, ``most``, of what the collector has at a path.

        The request has a connection of its own and no key, so that it is joined to no message. It
        ends by the deadline, on the monotonic clock. Raises PublishError.
        """
        from clientsdk.publishers.http_requests import RequestParts

        parts = RequestParts("GET", path, None, {}, most)
        request = self._request(self._collector.connection(), parts)
        request.send(deadline)
        if not request.given_up:
            # Otherwise its thread, which may still read, closes it.
            request.connection.close()
        request.require_success()
        return request.answer

    def _attempt(
        self, connection: http.client.HTTPConnection, body: bytes, deadline: float
    ) -> Request:
        from clientsdk.publishers.http_requests import RequestParts

        parts = RequestParts("POST", "/v1/reports", body, self._headers, _ANSWER_BYTES)
        request = self._request(connection, parts)
        request.send(deadline)
        return request

    def _request(self, connection: http.client.HTTPConnection, parts: RequestParts) -> Request:
        from clientsdk.publishers.http_requests import Request

        return Request(connection, parts._replace(path=self._collector.path + parts.path))

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            # The connection is the parent's: its descriptor is closed here, and no byte is sent.
            self._lock = allocate_lock()
            connection, self._connection = self._connection, None
            if connection is not None and connection.sock is not None:
                try:  # noqa: SIM105
                    os.close(connection.sock.detach())
                except OSError:
                    pass
            self._process = os.getpid()


def fetch_plan(
    url: str | HttpPublisher,
    collector: str,
    *,
    expect: str | Collection[str],
    timeout: float | timedelta = 10.0,
    context: ssl.SSLContext | None = None,
) -> CompiledPlan:
    """Ask a collector for the newest document of a plan that the app was made for.

    The request has no key, no cookie and nothing that was served before: all devices send the same
    bytes. A plan that is served and not pinned is passed over: only a document that has an expected
    fingerprint is read as a plan.

    Parameters
    ----------
    url : str or HttpPublisher
        The collector's, as of :class:`HttpPublisher`; or a publisher, whose way the request takes.
        An app that reports through a relay gives its
        :class:`~clientsdk.publishers.ohttp.ObliviousPublisher`: with a URL the collector would see
        the device's address.
    collector : str
        Its name, as in the plan.
    expect : str or collection of str
        Fingerprints that the app was made for, 64 hexadecimal digits each, of which the plan with
        the highest version is returned.
    timeout : float or timedelta, in [0.5, 600]
        Seconds that all of it may take, from connecting to reading the plan.
    context : ssl.SSLContext, optional
        As of :class:`HttpPublisher`; for a URL alone.

    Raises
    ------
    ParameterError
        One of these is not as it should be.
    PublishError
        The collector cannot be reached, or its answer is none.
    PlanError
        It serves no plan with one of these fingerprints.
    """
    if not isinstance(collector, str):
        raise wrong_type("collector", "the name in the plan", collector)
    given = [expect] if isinstance(expect, str) or not isinstance(expect, Collection) else expect
    pinned = {each for each in given if isinstance(each, str)}
    if not pinned or not all(re.fullmatch(r"[0-9a-fA-F]{64}", each) for each in pinned):
        raise ParameterError(
            "expect must be fingerprints, 64 hexadecimal digits each, as sotto plan fingerprint "
            "prints them"
        )
    publisher = url if isinstance(url, HttpPublisher) else HttpPublisher(url, context=context)
    deadline = time.monotonic() + seconds_of("timeout", timeout, 0.5, 600)
    from urllib.parse import quote

    path = f"/v1/plans/{quote(collector, safe='')}"
    answer = publisher._get(path, _PLANS_BYTES, deadline)
    try:
        documents = list(json.loads(answer)["plans"])
    except (ValueError, TypeError, KeyError, RecursionError):
        raise PublishError("the collector's answer is no list of plans") from None
    found = _newest(documents, {each.lower() for each in pinned}, deadline)
    if found is None:
        raise PlanError(
            f"the collector serves {len(documents)} plans, and none with a fingerprint that this "
            "app expects"
        )
    return found


def _newest(documents: list[object], wanted: set[str], deadline: float) -> CompiledPlan | None:
    """Return the newest plan with a wanted fingerprint; PublishError once the deadline is over.

    Fingerprints are compared before a document is read as a plan, which takes long.
    """
    found: list[tuple[int, int, object]] = []
    for document in documents:
        _require_time(deadline)
        try:
            if fingerprint_of(document).hex() in wanted:  # type: ignore[arg-type]
                version, expires = document["version"], document["expires"]  # type: ignore[index]
                if type(version) is type(expires) is int:
                    found.append((version, expires, document))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            continue
    for _, _, document in sorted(found, key=itemgetter(0, 1), reverse=True):
        _require_time(deadline)
        try:
            return CompiledPlan.from_json(canonical(document))  # type: ignore[arg-type]
        except (ValueError, TypeError, RecursionError):
            continue
    return None


def _require_time(deadline: float) -> None:
    if time.monotonic() >= deadline:
        raise PublishError("the collector did not answer in time")


class Address:
    """The address of a collector."""

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        # Never with the address itself: it may hold a password.
        expected = (
            "url must be such as 'https://telemetry.example': with https://, and without a user, a "
            "query or blanks"
        )
        if not isinstance(url, str):
            raise wrong_type("url", "a text, such as 'https://telemetry.example'", url)
        if context is not None:
            from ssl import SSLContext

            if not isinstance(context, SSLContext):
                raise wrong_type("context", "an ssl.SSLContext, or None", context)
        found = _URL.fullmatch(url.strip())
        if found is None or int(found[3] or 0) >= _PORTS:
            raise ParameterError(expected)
        host = found[2].strip("[]").lower()
        self._https = found[1].lower() == "https"
        if not self._https and host not in _LOOPBACK:
            raise ParameterError(
                "url must begin with https://, or with http:// for this machine alone: localhost, "
                "127.0.0.1 or [::1]"
            )
        # The path that requests have is often copied from a log of a server's.
        self.path = (found[4] or "").rstrip("/").removesuffix("/v1/reports")
        # Without a port http.client would take the end of an IPv6 address for one.
        self._host, self._port = host, int(found[3] or (443 if self._https else 80))
        self._context = context

    def connection(self) -> http.client.HTTPConnection:
        """Return a connection that is made by the first request."""
        from http.client import HTTPConnection, HTTPSConnection

        if not self._https:
            return HTTPConnection(self._host, self._port)
        if self._context is None:
            from ssl import OP_NO_TICKET, create_default_context

            self._context = create_default_context()
            # No session is ever resumed; nor is the server asked for a ticket.
            self._context.options |= OP_NO_TICKET
        return HTTPSConnection(self._host, self._port, context=self._context)
