"""Errors that say why a service cannot be started here."""

from __future__ import annotations

from sotto.errors import SottoError


class DeployError(SottoError):
    """A service cannot be started or stopped; the message says what to do."""


class MissingToolError(DeployError):
    """A program that is needed is not installed, or too old."""


class UnavailableError(DeployError):
    """Parts are not in the cache and cannot be fetched: without a network, for example."""
