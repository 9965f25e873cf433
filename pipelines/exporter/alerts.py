"""Kept alerts on estimates, for Prometheus."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from pipelines.alerts import kept as file
from pipelines.alerts.kept import Kept
from pipelines.exporter.catalogue import CATALOGUE
from sotto.errors import SottoError

#: Alerts of a file that are exposed: so many of the newest ones, up to this age.
MOST_ALERTS, AGE = 100, timedelta(days=30)

_EVALUATED, _UNDELIVERED = "sotto_alerts_evaluated_timestamp_seconds", "sotto_alerts_undelivered"
_MOVED, _RAISED = "sotto_estimate_moved", "sotto_estimate_moved_timestamp_seconds"
_LABELS = ("collector", *CATALOGUE[_MOVED].labels)

_LOG = logging.getLogger(__name__)


class KeptAlerts(Collector):
    """The alerts of some files, as ``sotto alerts`` and ``sotto serve`` keep them."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths = paths

    def describe(self) -> Iterator[Metric]:
        """Name the metrics without reading a file."""
        yield from _families().values()

    def collect(self) -> Iterator[Metric]:
        """Read the files; one that cannot be read was evaluated at 0, so that this is noticed."""
        families = _families()
        now = datetime.now(UTC)
        for path in self._paths:
            try:
                kept = file.read(path)
            except (SottoError, OSError) as error:
                _LOG.warning("%s", error)
                kept = Kept()
            evaluated = 0.0 if kept.evaluated is None else kept.evaluated.timestamp()
            for collector in sorted({json.loads(key)[0] for key in kept.judged}) or [""]:
                whose = [collector, str(path)]
                families[_EVALUATED].add_metric(whose, evaluated)
                families[_UNDELIVERED].add_metric(whose, kept.undelivered(collector))
            # The newest of several about one figure and direction.
            newest = {
                tuple(str(getattr(alert, name)) for name in _LABELS): alert
                for alert in kept.alerts[-MOST_ALERTS:]
                if now - alert.raised < AGE and alert.news and alert.standing
            }
            for labels, alert in newest.items():
                families[_MOVED].add_metric(labels, alert.change)
                families[_RAISED].add_metric(labels, alert.raised.timestamp())
        yield from families.values()


def _families() -> dict[str, GaugeMetricFamily]:
    return {
        name: GaugeMetricFamily(
            name, CATALOGUE[name].help, labels=("collector", *CATALOGUE[name].labels)
        )
        for name in (_EVALUATED, _UNDELIVERED, _MOVED, _RAISED)
    }
