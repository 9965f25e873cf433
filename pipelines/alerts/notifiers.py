"""The ways in which alerts leave: a webhook, and e-mail."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import smtplib
import ssl
from collections.abc import Sequence
from datetime import datetime
from email.message import EmailMessage
from email.utils import format_datetime, make_msgid
from typing import Protocol
from urllib.parse import urlsplit

from pipelines.alerts.configuration import (
    EmailFile,
    NotifyFile,
    WebhookFile,
    password_in,
    secret_in,
)
from pipelines.alerts.kept import Alert
from sotto.errors import SottoError

#: Seconds that each step of a delivery may take.
TIMEOUT = 10.0
#: What about an alert is nobody's business but ours.
_OURS = {"deliveries", "standing"}


class NotificationError(SottoError):
    """An alert could not be delivered; it may be later. The text has no secret."""


class Notifier(Protocol):
    """A way to tell people."""

    name: str
    #: Alerts that one message holds at most.
    most: int

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        """Send alerts in one message.

        Raises
        ------
        NotificationError
            They may not have arrived.
        """
        ...


def notifiers(configured: NotifyFile) -> list[Notifier]:
    """Return those that are configured; a secret that cannot be read is an error at once."""
    found: list[Notifier] = []
    if configured.webhook is not None:
        found.append(Webhook(configured.webhook))
    if configured.email is not None:
        found.append(Email(configured.email))
    return found


class Webhook:
    """Posts each alert as JSON, signed as the Standard Webhooks specification has it.

    Certificates are checked, no proxy is used and no redirect is followed. ``webhook-id`` is the
    alert's id, the same however often it is posted.
    """

    name = "webhook"
    most = 1

    def __init__(self, configured: WebhookFile, context: ssl.SSLContext | None = None) -> None:
        self._url = urlsplit(configured.url)
        file = configured.secret_file
        self._secret = None if file is None else secret_in(file)
        self._context = context

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        """Post an alert; one at a time."""
        (alert,) = alerts
        body = json.dumps(payload(alert), allow_nan=False).encode()
        connection = self._connection()
        try:
            path = (self._url.path or "/") + (f"?{self._url.query}" if self._url.query else "")
            connection.request("POST", path, body, self._headers(alert.id, body, now))
            status = connection.getresponse().status
        except (OSError, http.client.HTTPException) as error:
            raise NotificationError(f"{self._url.hostname}: {_reason(error)}") from error
        finally:
            connection.close()
        if not 200 <= status < 300:
            hint = (
                "; redirects are not followed: give the last address" if status // 100 == 3 else ""
            )
            raise NotificationError(f"{self._url.hostname} answered {status}{hint}")

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=TIMEOUT)
        context = self._context or ssl.create_default_context()
        return http.client.HTTPSConnection(host, port, timeout=TIMEOUT, context=context)

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


class Email:
    """Mails all alerts that are due in one message."""

    name = "email"
    most = 100

    def __init__(self, configured: EmailFile, context: ssl.SSLContext | None = None) -> None:
        self._to = configured
        file = configured.password_file
        self._password = None if file is None else password_in(file)
        self._context = context

    def send(self, alerts: Sequence[Alert], now: datetime) -> None:
        """Mail alerts."""
        message = _message(self._to, alerts, now)
        try:
            with self._server() as server:
                if self._to.encryption == "starttls":
                    server.starttls(context=self._tls())
                if self._password is not None:
                    server.login(self._to.user or "", self._password)
                refused = server.send_message(message)
        except (OSError, smtplib.SMTPException) as error:
            raise NotificationError(f"{self._to.host}: {_reason(error)}") from error
        if refused:
            raise NotificationError(f"{self._to.host} refused {', '.join(sorted(refused))}")

    def _server(self) -> smtplib.SMTP:
        to = self._to
        if to.encryption == "tls":
            return smtplib.SMTP_SSL(to.host, to.port, timeout=TIMEOUT, context=self._tls())
        return smtplib.SMTP(to.host, to.port, timeout=TIMEOUT)

    def _tls(self) -> ssl.SSLContext:
        return self._context or ssl.create_default_context()


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


def _message(to: EmailFile, alerts: Sequence[Alert], now: datetime) -> EmailMessage:
    message = EmailMessage()
    more = f" and {len(alerts) - 1} more" if len(alerts) > 1 else ""
    message["Subject"] = f"Sotto: {_went(alerts[0])}{more}"
    message["From"] = to.sender
    message["To"] = ", ".join(to.to)
    message["Date"] = format_datetime(now)
    message["Message-ID"] = make_msgid(domain=to.sender.rpartition("@")[2])
    message["Auto-Submitted"] = "auto-generated"
    lines = [line for alert in alerts for line in (*paragraph(alert), "")]
    message.set_content("\n".join(lines))
    return message


def _went(alert: Alert) -> str:
    # A header is one line, whatever an item holds.
    name = " ".join(alert.figure.name.split())
    return f"{name} {'rose' if alert.direction == 'up' else 'fell'}"


def _reason(error: Exception) -> str:
    """Return why a delivery failed, without what a server has said, which may quote us."""
    if isinstance(error, smtplib.SMTPResponseException):
        hint = " (wrong user or password)" if error.smtp_code == 535 else ""
        return f"it answered {error.smtp_code}{hint}"
    if isinstance(error, smtplib.SMTPRecipientsRefused):
        return f"it refused {', '.join(sorted(error.recipients))}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__
