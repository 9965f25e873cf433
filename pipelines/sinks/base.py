"""The contract of sinks that the workers of a streaming job write to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Sink(Protocol):
    """Where documents or rejects go; crosses Beam pickled, and connects when it first writes.

    Everything is written at least once. Documents are idempotent by revision; a reject that comes
    again has the same key or file name.
    """

    def write(self, items: Sequence[Any]) -> None:
        """Return once all items are durable; after an error all of them are written again."""

    def close(self) -> None:
        """Close connections; they are opened again when needed."""
