"""Publishes messages to an HTTP collector (``sotto collect``), with the standard library alone."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
from contextlib import suppress
from urllib.parse import urlsplit

from clientsdk.publishers import pseudonym_in
from sotto.errors import ParameterError, PublishError, is_number, wrong_type
from sotto.wire.batch import join_messages

_PATH = "/v1/reports"
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
#: Bytes of an answer that are read; it has no more to say.
_ANSWER_BYTES = 4096


class HttpPublisher:
    """Posts each message to a collector, which answers once it is durable.

    Messages of one pseudonym share a connection, those of another one begin a new one, and a
    process forked from this one has connections of its own. Certificates are checked, redirects
    are not followed, and nothing but the app's key says who sends.

    Parameters
    ----------
    url : str
        Of the collector, such as ``"https://telemetry.example"``; ``http://`` for loopback alone.
    key : str, optional
        The app's: ``sotto collect --new-key`` makes one. It is the same for all installations.
    timeout : float, in [0.5, 600]
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
        timeout: float = 10.0,
        context: ssl.SSLContext | None = None,
    ) -> None:
        if not is_number(timeout):
            raise wrong_type("timeout", "a number of seconds", timeout)
        if not isinstance(context, ssl.SSLContext | None):
            raise wrong_type("context", "an ssl.SSLContext, or None", context)
        if not 0.5 <= timeout <= 600:
            raise ParameterError(f"timeout {timeout} must be in [0.5, 600] seconds")
        self._https, self._host, self._port, self._path = _parsed(url)
        if not isinstance(key, str | None):
            raise wrong_type("key", "a text, or None", key)
        if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
            raise ParameterError("key must be the text that sotto collect --new-key has printed")
        self._headers = {"Content-Type": "application/octet-stream"}
        if key is not None:
            self._headers["Authorization"] = f"Bearer {key}"
        self._timeout = timeout
        self._context = context
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._pseudonym = b""

    def publish(self, shard: int, message: bytes) -> None:
        """Post a message; it is durable when this returns.

        Raises
        ------
        PublishError
            It may not be. ``retry_after`` is what the collector asked for.
        """
        pseudonym = pseudonym_in(message)
        self._check_process()
        if not self._lock.acquire(timeout=self._timeout):
            raise PublishError("another thread waits for the collector")
        try:
            if pseudonym != self._pseudonym:
                self._disconnect()
                self._pseudonym = pseudonym
            self._post(join_messages([message]))
        finally:
            self._lock.release()

    def close(self) -> None:
        """Disconnect."""
        self._check_process()
        with self._lock:
            self._disconnect()

    def _post(self, body: bytes) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            request = self._attempt(connection, body)
            if request.status or not request.over:
                self._conclude(request)
                return
            # The collector has closed it since, as it does after some seconds.
        self._conclude(self._attempt(self._connect(), body))

    def _attempt(self, connection: http.client.HTTPConnection, body: bytes) -> _Request:
        """Send a request in a thread of its own, which ends when it will: no call is unbounded."""
        request = _Request(connection, self._path, body, self._headers)
        request.start()
        request.wait(self._timeout)
        return request

    def _conclude(self, request: _Request) -> None:
        """Keep the connection of a request that has succeeded; raise for any other."""
        if request.status // 100 == 2:
            self._connection = request.connection
        elif not request.over or request.error == "TimeoutError":
            request.give_up()
            raise PublishError("the collector did not answer in time")
        elif request.status:
            request.connection.close()
            raise PublishError(
                f"the collector answered with status {request.status}", retry_after=request.hint
            )
        else:
            raise PublishError(f"the collector cannot be reached ({request.error})")

    def _connect(self) -> http.client.HTTPConnection:
        if not self._https:
            return http.client.HTTPConnection(self._host, self._port, self._timeout)
        context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=self._timeout, context=context
        )

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            # The connection is the parent's: its descriptor is closed here, and no byte is sent.
            self._lock = threading.Lock()
            connection, self._connection = self._connection, None
            if connection is not None and connection.sock is not None:
                with suppress(OSError):
                    os.close(connection.sock.detach())
            self._process = os.getpid()


class _Request(threading.Thread):
    """A request under way."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        path: str,
        body: bytes,
        headers: dict[str, str],
    ) -> None:
        super().__init__(name="sotto-http", daemon=True)
        self.connection = connection
        #: Of the answer; 0 if there was none.
        self.status = 0
        self.hint: float | None = None
        #: The type of what went wrong: its text may hold addresses.
        self.error = ""
        self._sent = path, body, headers
        self._done = threading.Event()
        self._unwanted = False

    @property
    def over(self) -> bool:
        """Whether there is an answer, or an error."""
        return self._done.is_set()

    def wait(self, seconds: float) -> None:
        """Wait until it is over, and not longer."""
        self._done.wait(seconds)

    def give_up(self) -> None:
        """Have the thread end: nothing more is sent."""
        self._unwanted = True
        socket_ = self.connection.sock
        if socket_ is not None:
            with suppress(OSError):
                socket_.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Send, and read the answer."""
        path, body, headers = self._sent
        try:
            if self.connection.sock is None:
                self.connection.connect()
            if self._unwanted:
                raise TimeoutError
            self.connection.request("POST", path, body, headers)
            answer = self.connection.getresponse()
            answer.read(_ANSWER_BYTES)
            self.hint = _seconds(answer.headers.get("Retry-After"))
            if not answer.isclosed():
                self.connection.close()
            self.status = answer.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            self.error = type(error).__name__
            self.connection.close()
        finally:
            self._done.set()


def _seconds(text: str | None) -> float | None:
    """Return the seconds of ``Retry-After``; no dates: a device's clock may be off."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None


def _parsed(url: str) -> tuple[bool, str, int | None, str]:
    """Return whether TLS is used, host, port and path."""
    # Never with the address itself: it may hold a password.
    expected = "url must be such as 'https://telemetry.example'"
    if not isinstance(url, str):
        raise wrong_type("url", "a text, such as 'https://telemetry.example'", url)
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        raise ParameterError(expected) from None
    if parts.scheme not in ("https", "http") or not host or parts.query or parts.username:
        raise ParameterError(expected)
    if parts.scheme == "http" and host not in _LOOPBACK:
        raise ParameterError("url must begin with https://: http is for loopback alone")
    return parts.scheme == "https", host, port, parts.path.rstrip("/") + _PATH
