"""Publishes the sum of all shares to a topic of estimates.

The shares' directories are only read, so that no note there says what has been published. The
topic does: each document bears which generation of every share it is of, and the one about the
job's health is sent once all others are acknowledged. Whoever begins reads the topic whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

from pipelines.committedshares import CommittedShares
from pipelines.manifest import Manifest
from pipelines.publication import health_of
from pipelines.published import HealthDocument, parse
from pipelines.publishing import EstimatesTopic
from pipelines.stamps import Stamp, check_stamps, stamps_in, stamps_of
from sotto.errors import FormatError


@dataclass(frozen=True)
class _Heard:
    """What a topic says of what has been published to it.

    ``ends`` says, of each partition, up to where it was read; ``stamps`` and ``clock`` are those
    of the highest ``revision`` of which all was published.
    """

    id: str = ""
    ends: tuple[tuple[str, int], ...] = ()
    revision: int = 0
    clock: int | None = None
    stamps: tuple[Stamp, ...] = ()


class CombinedTopic:
    """A topic of estimates, to which one process publishes the sum of all shares.

    Parameters
    ----------
    topic : EstimatesTopic
    """

    def __init__(self, topic: EstimatesTopic) -> None:
        self._topic = topic
        self._heard = _Heard()

    def __call__(self, shares: CommittedShares) -> None:
        """Publish what has changed since what the topic has.

        Raises
        ------
        BrokerError
            It could not be, or only in part, or the topic has what the shares do not know; it can
            be tried again.
        FileNotFoundError
            A share has committed meanwhile.
        """
        manifests, whole = list(shares.manifests.values()), shares.whole
        if not whole.generation:
            return
        found = self._topic.found()
        heard = self._heard if self._heard.id == found.id else _Heard(found.id)
        if self._since(heard, manifests) != shares.generations:
            ends = dict(heard.ends)
            news = _News(heard, whole.state)
            with closing(self._topic.records(found.partitions, ends)) as records:
                check_stamps(news.of(records, ends), manifests, str(self._topic.topic))
            self._heard = heard = replace(news.heard, ends=tuple(ends.items()))
        since = self._since(heard, manifests)
        if since == shares.generations:
            return
        changed = shares.projection(shares.changed(since))
        health = health_of(shares.manifests, whole, shares.registry.collector)
        before = heard.clock if any(since) else None
        stamps = stamps_of(manifests)
        sent = self._topic.send(changed, shares.registry.collector, before, health, stamps)
        ends = {**dict(heard.ends), **sent}
        now = (whole.generation, whole.clock, tuple(map(Stamp.of, manifests)))
        self._heard = _Heard(found.id, tuple(ends.items()), *now)

    def _since(self, heard: _Heard, manifests: Sequence[Manifest]) -> tuple[int, ...]:
        """Return which generation of each share the topic has; 0 of all if one is not known."""
        said = {stamp.state: stamp for stamp in heard.stamps}
        found = [said.get(manifest.state) for manifest in manifests]
        known = [
            stamp.generation
            for stamp, manifest in zip(found, manifests, strict=True)
            if stamp is not None and stamp.is_of(manifest)
        ]
        return tuple(known) if len(known) == len(manifests) else (0,) * len(manifests)


class _News:
    """Notes, of records that pass, up to which generation all has been published.

    Attributes
    ----------
    heard : _Heard
    """

    def __init__(self, heard: _Heard, job: str) -> None:
        self.heard = heard
        self._job = job

    def of(self, records: Iterable[Any], ends: dict[str, int]) -> Iterator[Any]:
        """Yield all records, once it is noted what they say and where they are."""
        for record in records:
            ends[str(record.partition)] = record.offset + 1
            if (record.key or b"").startswith(b'["health"'):
                self._note(record)
            yield record

    def _note(self, record: Any) -> None:
        try:
            document = parse(record.key, record.value)
        except FormatError:
            return
        if not isinstance(document, HealthDocument) or document.job != self._job:
            return
        if document.revision > self.heard.revision:
            clock = document.health["clock"]
            self.heard = replace(
                self.heard,
                revision=document.revision,
                clock=clock if isinstance(clock, int) else None,
                stamps=tuple(stamps_in(record)),
            )
