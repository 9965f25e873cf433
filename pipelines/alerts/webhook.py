"""The way in which alerts leave: a webhook."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from datetime import datetime
from urllib.parse import urlsplit

from pipelines.alerts.configuration import WebhookFile, secret_in
from pipelines.alerts.kept import Alert
from sotto.errors import SottoError

#: Seconds within which a connection is made, and then those within which all of a message is sent
#: and answered, however slowly the bytes of the answer come.
TIMEOUT = 10.0
#: What about an alert is nobody's business but ours.
_OURS = {"deliveries", "standing"}


class NotificationError(SottoError):
    """An alert could not be delivered; it may be later. The text has no secret."""


class Webhook:
    """Posts each alert as JSON, signed as the Standard Webhooks specification has it.

    Certificates are checked, no proxy is used and no redirect is followed. ``webhook-id`` is the
    alert's id, the same however often it is posted.
    """

    def __init__(self, configured: WebhookFile, context: ssl.SSLContext | None = None) -> None:
        self._url = urlsplit(configured.url)
        file = configured.secret_file
        self._secret = None if file is None else secret_in(file)
        self._context = context

    def send(self, alert: Alert, now: datetime) -> None:
        """Post an alert.

        Raises
        ------
        NotificationError
            It may not have arrived.
        """
        body = json.dumps(payload(alert), allow_nan=False).encode()
        path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
        try:
            status = self._post(path, body, self._headers(alert.id, body, now))
        except (OSError, http.client.HTTPException) as error:
            raise NotificationError(f"{self._url.hostname}: {_reason(error)}") from error
        if not 200 <= status < 300:
            hint = (
                "; redirects are not followed: give the last address" if status // 100 == 3 else ""
            )
            raise NotificationError(f"{self._url.hostname} answered {status}{hint}")

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> int:
        """Return the status of the answer; TimeoutError if there is none in time."""
        host = self._url.hostname or ""
        port = self._url.port or (443 if self._url.scheme == "https" else 80)
        plain = socket.create_connection((host, port), TIMEOUT)
        # TLS takes the socket over: another name of the same connection can end it at any step.
        with plain.dup() as same:
            end = threading.Timer(TIMEOUT, _shut, [same])
            end.daemon = True
            began = time.monotonic()
            end.start()
            connection = http.client.HTTPConnection(host, self._url.port)
            connection.sock = plain
            try:
                if self._url.scheme == "https":
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

    def _headers(self, id: str, body: bytes, now: datetime) -> dict[str, str]:
        stamp = str(int(now.timestamp()))
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "sotto",
            "webhook-id": id,
            "webhook-timestamp": stamp,
        }
        if self._secret is not None:
            signed = hmac.digest(self._secret, f"{id}.{stamp}.".encode() + body, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(signed).decode()}"
        return headers


def payload(alert: Alert) -> dict[str, object]:
    """Return what is posted of an alert; ``data`` has the fields of :class:`Alert`."""
    return {
        "type": "estimate.moved",
        "timestamp": alert.raised.isoformat(),
        "text": alert.sentence(),
        "data": alert.model_dump(mode="json", exclude=_OURS),
    }


def paragraph(alert: Alert) -> list[str]:
    """Return what is to be known of an alert, in lines."""
    rate = alert.false_alarms_per_year
    found = (
        f"within {_windows(alert.predicted_windows)} with 90 % probability"
        if alert.predicted_windows is not None
        else "in less than 90 % of all cases within 26 windows"
    )
    return [
        alert.sentence(),
        f"  plan {alert.plan} of {alert.collector}, revision {alert.revision}; it took "
        f"{_windows(alert.windows)} of {alert.figure.length.total_seconds() / 86400:g} days, up to "
        f"{alert.window_end:%Y-%m-%d %H:%M} UTC;",
        f"  a shift of this size is found {found};",
        f"  {rate:g} false alarm{'' if rate == 1 else 's'} a year are expected of the "
        f"{alert.figures} figures watched",
    ]


def _windows(count: int) -> str:
    return "1 window" if count == 1 else f"{count} windows"


def _shut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _reason(error: Exception) -> str:
    """Return why a delivery failed, without what a server has said, which may quote us."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    if isinstance(error, TimeoutError):
        return str(error)
    return type(error).__name__
