"""Which generation of which state directory has published a document: headers of its record.

A state directory that was restored from a copy knows nothing of what was published after the copy
was made. Its revisions would be lower than those in the topic, or mean something else, and whoever
reads the topic would keep what it has. By the stamps that is told before anything is published.
Of what several shares add up to, a record has a stamp of each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from pipelines.manifest import Manifest
from sotto.errors import BrokerError

NAME = "sotto-generation"


class Stamp(NamedTuple):
    """A generation of a state directory, and its digest."""

    state: str
    generation: int
    digest: str

    @classmethod
    def of(cls, manifest: Manifest) -> Stamp:
        """Return the stamp of what is committed."""
        digest = manifest.digest(manifest.generation)
        return cls(manifest.state, manifest.generation, str(digest))

    def is_of(self, manifest: Manifest) -> bool:
        """Tell whether it is known to be of a generation of this directory, or of none yet."""
        known = manifest.digest(self.generation)
        return self.generation == 0 or (known is not None and known == self.digest)


def stamps_of(manifests: Sequence[Manifest]) -> list[tuple[str, bytes]]:
    """Return the headers of what is published of manifests: of one, or of all shares."""
    return [(NAME, " ".join(map(str, Stamp.of(manifest))).encode()) for manifest in manifests]


def check_stamps(records: Iterable[Any], manifests: Sequence[Manifest], topic: str) -> None:
    """Refuse to go on where a topic has what a state directory has never committed.

    Parameters
    ----------
    records : iterable
        Of the topic, as kafka-python gives them. Those of other jobs, and those without a stamp,
        say nothing.
    manifests : sequence of Manifest
    topic : str

    Raises
    ------
    BrokerError
        What to do.
    """
    ours = {manifest.state: manifest for manifest in manifests}
    for record in records:
        for stamp in stamps_in(record):
            if stamp.state in ours:
                _check(stamp, ours[stamp.state], topic)


def _check(stamp: Stamp, manifest: Manifest, topic: str) -> None:
    known = manifest.digest(stamp.generation)
    # Digests are kept of the last generations only.
    if stamp.generation <= manifest.generation and known in (None, stamp.digest):
        return
    raise BrokerError(
        f"{topic} has a generation {stamp.generation} of these results that the state directory"
        f"{'' if manifest.share is None else f' of share {manifest.share}'}, at its generation "
        f"{manifest.generation}, does not know: it was restored from a copy, or there are two; "
        f"delete {topic}, make it again with sotto topics create --sinks, and start sinks once "
        "with --replace"
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
