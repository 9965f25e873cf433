"""Slack, and chats that take its incoming webhooks (Mattermost, Rocket.Chat, Google Chat)."""

from __future__ import annotations

import json
from datetime import datetime

from pydantic import PrivateAttr

from pipelines.alerts.kept import Alert
from pipelines.alerts.notifiers.base import HttpNotifier, NamedFile, checked_url, secret_text

#: Characters that Slack reads as its markup.
_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class Slack(HttpNotifier):
    """Posts each alert as text to an incoming webhook, whose URL is a secret."""

    url_file: NamedFile
    _url: str = PrivateAttr("")

    def model_post_init(self, _context: object) -> None:
        try:
            self._url = checked_url(secret_text(self.url_file))
        except ValueError as error:
            raise ValueError(f"the address in {self.url_file}: {error}") from None

    def send(self, alert: Alert, now: datetime) -> None:
        text = "\n".join(alert.paragraph()).translate(_MARKUP)
        self._post(self._url, json.dumps({"text": text}).encode(), {})
