"""Clients of simulated devices: the SDK's own, with its store in memory."""

from __future__ import annotations

from typing import Any

from clientsdk import Client
from mechanisms.randomness import Source, SystemSource
from sotto.clocks import BEGINNING


class Device(Client):
    """A client that lives for as long as its table lasts, at whatever time, and no longer."""

    _earliest = BEGINNING + 1
    _simulated = True

    def __init__(self, *arguments: Any, source: Source | None = None, **options: Any) -> None:
        self._randomness = source or SystemSource()
        super().__init__(*arguments, **options)

    def _source(self) -> Source:
        return self._randomness

    def ignore_panels(self) -> None:
        """Answer in every period, whatever the plan's panels."""
        self._recorder.decisions.ignore_panels()

    def use(self) -> None:
        """Be in use, by an app that was not running: what is measured begins, or goes on."""
        self._recorder.held_back = False
        self._recorder.attend(self._now())

    def rest(self) -> None:
        """Write what was used, as an app does that ends; until the next use it only sends."""
        self._recorder.attend(self._now(), closing=True)
        self._recorder.held_back = True
