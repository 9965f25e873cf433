"""One installation of an app: its folder, and the client in it."""

from __future__ import annotations

import os
from pathlib import Path

from clientsdk import Client, EmbeddedLogPublisher
from examples.apps.usage import PLAN

#: Names the folder of the installation.
VARIABLE = "APPS_HOME"


def home() -> Path:
    folder = Path(os.environ.get(VARIABLE, Path.home() / ".apps-example"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def make_client(folder: Path, *, background: bool = True) -> Client:
    """Return a client on the installation's state file, which any process of it may have.

    Reports go to a log in the same folder; an app that reports to somebody has a
    :class:`~clientsdk.KafkaPublisher` here.
    """
    publisher = EmbeddedLogPublisher(folder / "log")
    return Client(PLAN, state=folder / "device.db", publisher=publisher, background=background)
