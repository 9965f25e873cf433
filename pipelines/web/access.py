"""Access to the page: a token, a session that a form opens and ends, and the names of the server.

Pages are for those who may read the results. On loopback these are all users of the machine. A web
page whose own name points to loopback (DNS rebinding) is none of them, so the ``Host`` of a request
must be one of the server's names.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from starlette.datastructures import Headers

from pipelines.http.server import is_loopback
from sotto.errors import ParameterError

#: The cookie of a session.
COOKIE = "sotto"
#: How many characters a token has at least.
_SHORTEST = 20
#: How many sessions can be open at a time; one more ends the oldest.
_SESSIONS = 1000
#: Names of the machine itself.
LOOPBACK = ("localhost", "127.0.0.1", "[::1]")

#: Headers of every answer. Nothing is fetched from elsewhere, no script or style is in a page.
SECURITY_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'self'; script-src 'self'; "
    "connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def embedding(origins: Sequence[str]) -> str:
    """Return the content security policy of a chart that pages of ``origins`` may embed."""
    policy = SECURITY_HEADERS["content-security-policy"]
    return policy.replace("frame-ancestors 'none'", f"frame-ancestors {' '.join(origins)}")


def token_of(path: Path) -> str:
    """Return the token in a file.

    Raises ParameterError if it is shorter than 20 characters, or has others than printable ASCII.
    """
    try:
        token = path.read_text("ascii").strip()
    except ValueError:
        token = ""
    if len(token) < _SHORTEST or not re.fullmatch(r"[!-~]+", token):
        raise ParameterError(
            f"{path} must hold a token: at least {_SHORTEST} characters of printable ASCII, such "
            f"as {secrets.token_urlsafe(8)}… of `openssl rand -hex 32`"
        )
    return token


def new_token() -> str:
    """Return a token of 256 random bits, from the system's generator."""
    return secrets.token_urlsafe(32)


@dataclass(frozen=True)
class Access:
    """The rule that decides which requests are answered.

    ``token``: None if no token is needed. ``public``: whether only pages for the public are shown.
    ``hosts``: the names under which the server may be asked; any if empty. ``secure``: whether the
    session's cookie is always for TLS alone; otherwise it is if a proxy says in
    ``X-Forwarded-Proto`` that the browser used TLS.

    A session is a random id that is kept in memory: signing out removes it, so that no copy of the
    cookie is admitted any more, and all sessions end with the server.
    """

    token: str | None = field(default=None, repr=False)
    public: bool = False
    hosts: Sequence[str] = LOOPBACK
    secure: bool = False
    _sessions: deque[str] = field(default_factory=lambda: deque(maxlen=_SESSIONS), repr=False)

    def knows_host(self, headers: Headers) -> bool:
        """Return whether a request is for one of the server's names, whatever its port."""
        name = re.sub(r":\d*$", "", headers.get("host", "").lower())
        return not self.hosts or name in self.hosts

    def admits(self, headers: Headers) -> bool:
        """Return whether a request has the token, or the cookie of a session."""
        if self.token is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return self.is_token(given.strip())
        given = _cookie(headers)
        return any(_equal(given, each) for each in [*self._sessions])

    def is_token(self, given: str) -> bool:
        """Return whether this is the token, in a time that does not depend on where it differs."""
        return self.token is not None and _equal(given, self.token)

    def sign_in(self, headers: Headers) -> str:
        """Open a session; return the header that gives its cookie to the browser."""
        self._sessions.append(secrets.token_urlsafe(32))
        return self._cookie(self._sessions[-1], headers)

    def sign_out(self, headers: Headers) -> str:
        """End the session of a request; return the header that removes its cookie."""
        given = _cookie(headers)
        for each in [*self._sessions]:
            if _equal(given, each):
                self._sessions.remove(each)
        return self._cookie("", headers, "; Max-Age=0")

    def _cookie(self, value: str, headers: Headers, age: str = "") -> str:
        # The header can be forged, but only for the sender's own cookie.
        scheme = headers.get("x-forwarded-proto", "").partition(",")[0].strip().lower()
        secure = "; Secure" if self.secure or scheme == "https" else ""
        return f"{COOKIE}={value}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"


def access_of(
    address: str, site: str | None, token_file: Path | None, *, public: bool
) -> tuple[Access, bool]:
    """Return who may see the page at an address, and whether a new token was made for it.

    ``site``: the name under which a proxy on this machine serves the page. Raises ParameterError if
    the file has no token, or a public page is given one.
    """
    local = is_loopback(address)
    secure = site is not None
    hosts = (*LOOPBACK, *([site.lower()] if site else [])) if local else ()
    if public:
        if token_file is not None:
            raise ParameterError("--public asks for no token: leave out --token-file")
        return Access(None, True, hosts, secure), False
    token = None if token_file is None else token_of(token_file)
    if token is None and local and site is None:
        return Access(None, False, hosts, secure), False
    return Access(token or new_token(), False, hosts, secure), not token


def _equal(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), expected.encode())


def _cookie(headers: Headers) -> str:
    # The cookie needs no decoding, and before 3.11.10 Python took a minute to decode 64 KB.
    found = re.findall(rf"(?:^|;) *{COOKIE}=([\w-]*)", headers.get("cookie", ""))
    return found[-1] if found else ""
