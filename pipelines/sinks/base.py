"""The contract of sinks: where a pipeline's documents and rejects go.

Everything is written at least once. Documents are idempotent by revision; a reject that comes
again has the same key or file name.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol


class Sink(Protocol):
    """Writes items durably; crosses Beam pickled, and connects when it first writes."""

    def write(self, items: Sequence[Any]) -> None:
        """Return once all items are durable; after an error all of them are written again."""
        ...

    def close(self) -> None:
        """Close connections; they are opened again when needed."""
        ...
