"""A webhook, as the Standard Webhooks specification has it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, PrivateAttr, StrictStr

from pipelines.alerts.kept import Alert
from pipelines.alerts.notifiers.base import HttpNotifier, NamedFile, checked_url, secret_text

#: Bytes of a secret, as the Standard Webhooks specification has it.
_LEAST_SECRET, _MOST_SECRET = 24, 64


def secret_in(path: Path) -> bytes:
    """Return the secret in a file, which has it in base 64, with ``whsec_`` before it or not.

    Raises ValueError if the file has none.
    """
    try:
        secret = base64.b64decode(secret_text(path).removeprefix("whsec_"), validate=True)
    except binascii.Error:
        secret = b""
    if not _LEAST_SECRET <= len(secret) <= _MOST_SECRET:
        raise ValueError(
            f"{path} must have {_LEAST_SECRET} to {_MOST_SECRET} random bytes in base 64; "
            f"'openssl rand -base64 32' prints such"
        )
    return secret


class Webhook(HttpNotifier):
    """Posts each alert as JSON, signed if there is a secret.

    ``webhook-id`` is the alert's id, the same however often it is posted.
    """

    url: Annotated[StrictStr, AfterValidator(checked_url)]
    #: Has the secret with which messages are signed, in base 64; not signed if not given.
    secret_file: NamedFile | None = None
    _secret: bytes | None = PrivateAttr(None)

    def model_post_init(self, _context: object) -> None:
        if self.secret_file is not None:
            self._secret = secret_in(self.secret_file)

    def send(self, alert: Alert, now: datetime) -> None:
        message = {
            "type": "estimate.moved",
            "timestamp": alert.raised.isoformat(),
            "text": alert.sentence(),
            "data": alert.data(),
        }
        body = json.dumps(message, allow_nan=False).encode()
        stamp = str(int(now.timestamp()))
        headers = {"webhook-id": alert.id, "webhook-timestamp": stamp}
        if self._secret is not None:
            signed = f"{alert.id}.{stamp}.".encode() + body
            code = hmac.digest(self._secret, signed, hashlib.sha256)
            headers["webhook-signature"] = f"v1,{base64.b64encode(code).decode()}"
        self._post(self.url, body, headers)
