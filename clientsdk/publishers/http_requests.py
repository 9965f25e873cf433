"""One request to an HTTP collector, in a thread of its own."""

from __future__ import annotations

import http.client
import math
import socket
import threading
import time
from collections.abc import Mapping
from contextlib import suppress

from clientsdk import diagnostics
from mechanisms.frozen import NamedTuple
from sotto.errors import PublishError

#: Likely mistakes of an app's developer, by the status or by what was raised.
_HINTS: dict[int | str, str] = {
    401: "it asks for the app's key, as sotto collect --new-key has printed it",
    404: "the url is the collector's own, without /v1/reports",
    422: "it does not know the plan that the app records under",
    405: "what answers there is no collector: is it another port or path?",
    **dict.fromkeys((301, 302, 307, 308), "redirects are not followed: give the last address"),
    "ConnectionRefusedError": "nothing listens there",
    "gaierror": "its name is not known, or there is no network",
    "RemoteDisconnected": "it has hung up; if it takes https, the url must say so",
    "SSLCertVerificationError": "its certificate is not trusted, has ended, or has another name",
    "SSLError": "does the url begin with https:// where it takes http?",
}
#: Any 2xx is an acknowledgement; web servers give one for whatever is posted to a wrong path.
_WEB_SERVER = (
    "the collector took reports and answered with a text, as Sotto's does not: reports are lost if "
    "it is another web server; check the url"
)


class RequestParts(NamedTuple):
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    most: int  #: The most bytes that are read of an answer.


class Request(threading.Thread):
    """A request in a thread of its own, which ends when it will: so no call is unbounded."""

    #: The name of the one that answers.
    receiver = "collector"

    def __init__(self, connection: http.client.HTTPConnection, parts: RequestParts) -> None:
        super().__init__(name="sotto-http", daemon=True)
        self.connection = connection
        #: The answer's status; 0 if there was none.
        self.status = 0
        self.answer = b""
        self._hint: float | None = None
        #: The type of what went wrong: its text may hold addresses.
        self._error = ""
        self._parts = parts
        self._done = threading.Event()
        #: The connection leaves it before an answer is read to its end if it is the last there.
        self._socket: socket.socket | None = None
        #: Whether nobody waits for it any more.
        self.given_up = False

    def send(self, deadline: float) -> None:
        """Send it, and wait for the answer until the deadline."""
        self.connection.timeout = max(0.01, deadline - time.monotonic())
        try:
            self.start()
        except RuntimeError:
            # No thread can be started while the interpreter ends; what waits for this one does not
            # wait for long.
            self.run()
        self._done.wait(max(0.0, deadline - time.monotonic()))
        if not self._done.is_set():
            self._give_up()

    def require_success(self) -> None:
        """Raise PublishError unless the answer says that the request has succeeded."""
        # Only reports to the collector itself: others mean something else by an answer.
        reports = self.receiver == "collector" and self._parts.method == "POST"
        if self.status // 100 == 2 and not self.given_up:
            if reports and self.answer:
                diagnostics.warn("answer", _WEB_SERVER, quiet=math.inf)
            return
        if self.given_up or self._error == "TimeoutError":
            raise PublishError(f"the {self.receiver} did not answer in time")
        if not self.status:
            reached = f"the {self.receiver} cannot be reached ({self._error})"
            raise PublishError(reached + hint(self._error))
        self.connection.close()
        said = f"the {self.receiver} answered with status {self.status}"
        if reports:
            said += hint(self.status)
        raise PublishError(said, retry_after=self._hint)

    def run(self) -> None:
        """Send, and read the answer."""
        method, path, body, headers, most = self._parts
        try:
            if self.connection.sock is None:
                self.connection.connect()
            self._socket = self.connection.sock
            if self.given_up:
                raise TimeoutError
            self.connection.request(method, path, body, headers)
            answer = self.connection.getresponse()
            content = answer.read(most)
            self._hint = seconds(answer.headers.get("Retry-After"))
            if self.given_up or not answer.isclosed():
                self.connection.close()
            self.answer, self.status = content, answer.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            self._error = type(error).__name__
            self.connection.close()
        finally:
            self._done.set()

    def _give_up(self) -> None:
        """Have the thread end: nothing more is sent."""
        self.given_up = True
        if self._socket is not None:
            with suppress(OSError):
                # Not the one of TLS, which would let the thread send on without it for a moment.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def hint(cause: int | str) -> str:
    """Return what to look for, to stand behind an error's text; empty where nothing is known."""
    return f": {_HINTS[cause]}" if cause in _HINTS else ""


def seconds(text: str | None) -> float | None:
    """Return the seconds of ``Retry-After``; no dates: a device's clock may be off."""
    return float(text) if text is not None and text.isascii() and text.isdecimal() else None
