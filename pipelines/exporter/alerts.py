"""Exposes the alerts on estimates that ``sotto alerts`` and ``sotto serve`` keep in files."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from pipelines.alerts import kept as file
from pipelines.alerts.kept import Kept
from pipelines.exporter.catalogue import CATALOGUE
from pipelines.exporter.families import Samples
from sotto.errors import SottoError

#: At most so many alerts of a file, the newest, are exposed, up to this age.
MOST_ALERTS, AGE = 100, timedelta(days=30)

_MOVED = "sotto_estimate_moved"
_LABELS = ("collector", *CATALOGUE[_MOVED].labels)

_LOG = logging.getLogger(__name__)


class KeptAlerts(Collector):
    """The alerts of some files, as ``sotto alerts`` and ``sotto serve`` keep them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def describe(self) -> list[Metric]:
        """Return no metric, since naming them would take reading the files."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the files; one that cannot be read has the time 0, so that an alert notices it."""
        samples = Samples()
        now = datetime.now(UTC)
        for path in self._paths:
            try:
                kept = file.read(path)
            except (SottoError, OSError) as error:
                _LOG.warning("%s", error)
                kept = Kept()
            evaluated = 0.0 if kept.evaluated is None else kept.evaluated.timestamp()
            for collector in sorted({json.loads(key)[0] for key in kept.judged}) or [""]:
                samples.collector = collector
                samples.add("sotto_alerts_evaluated_timestamp_seconds", evaluated, path)
                samples.add("sotto_alerts_undelivered", kept.undelivered(collector), path)
            # The newest of several alerts about one figure and direction is exposed.
            newest = {
                tuple(getattr(alert, name) for name in _LABELS): alert
                for alert in kept.alerts[-MOST_ALERTS:]
                if now - alert.raised < AGE and alert.news and alert.standing
            }
            for (samples.collector, *labels), alert in newest.items():
                samples.add(_MOVED, alert.change, *labels)
                raised = alert.raised.timestamp()
                samples.add("sotto_estimate_moved_timestamp_seconds", raised, *labels)
        yield from samples.families()
