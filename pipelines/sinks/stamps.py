"""Which generation of which state directory has published a document: headers of its record.

A state directory that was restored from a copy knows nothing of what was published after the copy
was made. Its revisions would be lower than those in the topic, or mean something else, and whoever
reads the topic would keep what it has. By the stamps that is told before anything is published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from pipelines.storage.manifest import Manifest
from sotto.errors import BrokerError

NAME = "sotto-generation"


class Stamp(NamedTuple):
    """A generation of a state directory, and its digest."""

    state: str
    generation: int
    digest: str


def stamp_of(manifest: Manifest) -> tuple[str, bytes]:
    """Return the header of what is published of a manifest."""
    digest = manifest.digest(manifest.generation)
    return NAME, f"{manifest.state} {manifest.generation} {digest}".encode()


def check_stamps(records: Iterable[Any], manifest: Manifest, topic: str) -> None:
    """Refuse to go on where a topic has what a state directory has never committed.

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
        for stamp in stamps_in(record):
            if stamp.state == manifest.state:
                _check(stamp, manifest, topic)


def _check(stamp: Stamp, manifest: Manifest, topic: str) -> None:
    known = manifest.digest(stamp.generation)
    # Digests are kept of the last generations only.
    if stamp.generation <= manifest.generation and known in (None, stamp.digest):
        return
    raise BrokerError(
        f"{topic} has a generation {stamp.generation} of these results that the state directory, "
        f"at its generation {manifest.generation}, does not know: it was restored from a copy, or "
        f"there are two; delete {topic}, make it again with sotto topics create --sinks, and start "
        "sinks once with --replace"
    )


def stamps_in(record: Any) -> Iterator[Stamp]:
    """Yield the stamps of a record; what is none says nothing."""
    for name, value in record.headers:
        if name == NAME:
            try:
                state, generation, digest = value.decode("ascii").split(" ")
                yield Stamp(state, int(generation), digest)
            except (AttributeError, ValueError):
                continue
