"""Which generation of which state directory has published a document: a header of its record.

A state directory that was restored from a copy knows nothing of what was published after the copy
was made. Its revisions would be lower than those in the topic, or mean something else, and whoever
reads the topic would keep what it has. By the stamps that is told before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipelines.manifest import Manifest
from sotto.errors import BrokerError

NAME = "sotto-generation"


def stamp_of(manifest: Manifest) -> list[tuple[str, bytes]]:
    """Return the headers of what is published of a manifest."""
    digest = manifest.digest(manifest.generation)
    return [(NAME, f"{manifest.state} {manifest.generation} {digest}".encode())]


def check_stamps(records: Iterable[Any], manifest: Manifest, topic: str) -> None:
    """Refuse to go on where a topic has what the state directory has never committed.

    Parameters
    ----------
    records : iterable
        Of the topic, as kafka-python gives them. Those of other jobs, and those without a stamp,
        say nothing.
    manifest : Manifest
    topic : str

    Raises
    ------
    BrokerError
        What to do.
    """
    for record in records:
        state, generation, digest = _stamp(record)
        if state != manifest.state:
            continue
        known = manifest.digest(generation)
        # Digests are kept of the last generations only.
        if generation > manifest.generation or known not in (None, digest):
            raise BrokerError(
                f"{topic} has a generation {generation} of these results that the state directory, "
                f"at its generation {manifest.generation}, does not know: it was restored from a "
                f"copy, or there are two; delete {topic}, make it again with sotto topics create "
                "--sinks, and start sinks once with --replace"
            )


def _stamp(record: Any) -> tuple[str, int, str]:
    for name, value in record.headers:
        if name == NAME:
            try:
                state, generation, digest = value.decode("ascii").split(" ")
                return state, int(generation), digest
            except (AttributeError, ValueError):
                break
    return "", 0, ""
