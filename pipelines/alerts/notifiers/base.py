"""The contract of notifiers, and the base of those that post over HTTP."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, PrivateAttr, ValidationInfo

from pipelines.alerts.kept import Alert
from pipelines.storage.yaml_files import YamlModel
from sotto.errors import SottoError

#: Seconds within which a connection must be made, and then again seconds within which the whole
#: message must be sent and answered, however slowly the bytes of the answer come.
TIMEOUT = 10.0
_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class NotificationError(SottoError):
    """An alert could not be delivered; it may be later. The text has no secret."""


class Notifier(YamlModel, ABC):
    """Sends alerts to one place; its fields are its keys in the configuration of alerts.

    Wrong values, also of secrets in files, are refused when the configuration is read. A field of
    the type :data:`NamedFile` is a path relative to the configuration's folder.
    """

    @abstractmethod
    def send(self, alert: Alert, now: datetime) -> None:
        """Send an alert, within seconds.

        If this raises, it is called again later with the same ``alert.id``. It is also called again
        if the process crashes just after this returned.

        Raises
        ------
        NotificationError
            The alert may not have arrived. The text names the host, and has no secret, no path of a
            URL and nothing that the host has answered.
        """


def _beside(path: Path, info: ValidationInfo) -> Path:
    return Path((info.context or {}).get("folder", "")) / path


#: A file that the configuration names from its own folder.
NamedFile = Annotated[Path, AfterValidator(_beside)]


def secret_text(path: Path) -> str:
    """Return the text of a file; ValueError, without any of it, if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} must be text in UTF-8") from None


def checked_url(url: str) -> str:
    """Return a URL to which alerts may be posted; ValueError, without any of it, if it is none."""
    expected = "must be such as https://hooks.example/sotto"
    try:
        parts = urlsplit(url)
        host, _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError:
        raise ValueError(expected) from None
    if parts.username is not None or parts.fragment:
        raise ValueError("must have no user, password or fragment")
    readable = parts.path.isascii() and parts.query.isascii() and len(url.split()) == 1
    if not host or not readable or parts.scheme not in ("https", "http"):
        raise ValueError(expected)
    if parts.scheme == "http" and parts.hostname not in _LOOPBACK:
        raise ValueError("must begin with https://, but on this machine alone")
    return url


class HttpNotifier(Notifier):
    """Posts over HTTP: certificates are checked, no proxy is used, no redirect is followed."""

    _context: ssl.SSLContext | None = PrivateAttr(None)

    def _post(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Post a body of JSON; NotificationError if it is not answered in time with success."""
        host = urlsplit(url).hostname or ""
        known = {"Content-Type": "application/json", "User-Agent": "sotto"}
        try:
            status = self._answer(url, body, known | dict(headers))
        except (OSError, http.client.HTTPException) as error:
            raise NotificationError(f"{host}: {_reason(error)}") from error
        if not 200 <= status < 300:
            hint = (
                "; redirects are not followed: give the last address" if status // 100 == 3 else ""
            )
            raise NotificationError(f"{host} answered {status}{hint}")

    def _answer(self, url: str, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the answer; TimeoutError if there is none in time."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        port = parts.port or (443 if parts.scheme == "https" else 80)
        plain = socket.create_connection((host, port), TIMEOUT)
        # TLS takes over the socket; a duplicate of it can end the connection at any step.
        with plain.dup() as same:
            end = threading.Timer(TIMEOUT, _shut, [same])
            end.daemon = True
            began = time.monotonic()
            end.start()
            connection = http.client.HTTPConnection(host, parts.port)
            connection.sock = plain
            try:
                if parts.scheme == "https":
                    context = self._context or ssl.create_default_context()
                    connection.sock = context.wrap_socket(plain, server_hostname=host)
                connection.request("POST", path, body, headers)
                return connection.getresponse().status
            except (OSError, http.client.HTTPException) as error:
                if time.monotonic() - began >= TIMEOUT:
                    raise TimeoutError(f"no answer within {TIMEOUT:g} s") from error
                raise
            finally:
                end.cancel()
                connection.close()
                plain.close()


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    """Return why a delivery failed, without the server's answer, which may quote the message."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) if isinstance(error, TimeoutError) else type(error).__name__
