"""A server on loopback that keeps what is posted to it, and an alert to post."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from local_server import Answer, LocalServer, Request
from moving_results import when

from pipelines.alerts.kept import Alert
from pipelines.alerts.notifiers.base import Notifier

NOW = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)

#: An alert, as the file of alerts has it.
ALERT = {
    "raised": NOW,
    "collector": "tests.example",
    "plan": "moving",
    "metric": "colour",
    "segment": "",
    "kind": "share",
    "unit": "share",
    "revision": 4,
    "direction": "up",
    "since": when(30),
    "window_start": when(31),
    "window_end": when(32),
    "expected": 0.2,
    "change": 0.1,
    "low": 0.06,
    "high": 0.14,
    "sigma": 5,
    "false_alarms_per_year": 1,
    "figures": 3,
    "windows_between_false_alarms": 156.5,
    "windows": 2,
    "predicted_windows": 3,
    "news": True,
}


def alert(item="red", id="a1"):
    return Alert.model_validate({**ALERT, "item": item, "id": id})


@contextmanager
def receiving(*statuses: int, context: ssl.SSLContext | None = None) -> Iterator[LocalServer]:
    """Serve what answers with some statuses, one after another, and then takes all."""
    left = list(statuses)

    def answer(request: Request) -> Answer:
        status = left.pop(0) if left else 204
        return Answer(status, {"Location": "/other"} if status == 302 else {})

    with LocalServer(answer, context) as server:
        yield server


class Calling(Notifier):
    """Calls a function with each alert."""

    function: Callable[[Alert, datetime], None]

    def send(self, alert: Alert, now: datetime) -> None:
        self.function(alert, now)


def calling(function: Callable[[Alert, datetime], None]) -> dict[str, Notifier]:
    """Return notifiers that call a function, under the name of a webhook."""
    return {"webhook": Calling(function=function)}
