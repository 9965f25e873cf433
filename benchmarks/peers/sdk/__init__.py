"""The SDK beside those that an app would embed instead: what each costs the app that embeds it."""

from benchmarks.peers.sdk.report import main

__all__ = ["main"]
