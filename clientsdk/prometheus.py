"""Exposes the counts of clients to Prometheus, in apps that use prometheus-client already.

This module imports it; nothing else of the SDK does. Labels are names of metrics, outcomes and
reasons, so that their number is bounded by the plan.

Examples
--------
>>> from prometheus_client import CollectorRegistry, generate_latest
>>> from clientsdk.testing import SeededClient, small_plan
>>> client, registry = SeededClient(small_plan(), seed=1), CollectorRegistry()
>>> registry.register(ClientCollector(client))
>>> client.record("colour", "red")
<Outcome.ACCEPTED: 'accepted'>
>>> print(generate_latest(registry).decode().splitlines()[2])
sotto_client_values_total{metric="colour",outcome="accepted"} 1.0
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from clientsdk.client import Client
from clientsdk.outcomes import NO_LAPSES
from clientsdk.stats import Stats

_OUTBOX = {
    "outbox_chains": "Values of which something is still to be sent.",
    "outbox_bytes": "Bytes that they take at most.",
    "due": "Reports that are due and still here.",
}


class ClientCollector(Collector):
    """Exposes what clients count, added up; it reads their stores at each scrape.

    Names of metrics may be in a registry once: hand one collector all clients that it is to show.
    """

    def __init__(self, *clients: Client) -> None:
        self._clients = clients

    def describe(self) -> list[Metric]:
        """Return nothing: what is not collected need not be known when this is registered."""
        return []

    def collect(self) -> Iterator[Metric]:
        stats = [client.stats() for client in self._clients]
        yield _values(stats)
        yield CounterMetricFamily(
            "sotto_client_sent", "Reports sent.", value=sum(each.sent for each in stats)
        )
        yield CounterMetricFamily(
            "sotto_client_send_errors",
            "Flushes that ended early.",
            value=sum(each.send_errors for each in stats),
        )
        yield _lapses(stats)
        last = [each.last_send for each in stats if each.last_send is not None]
        yield GaugeMetricFamily(
            "sotto_client_last_send_timestamp_seconds",
            "When a report was last sent; 0 if never.",
            value=max(last, default=0) / 1000,
        )
        for name, text in _OUTBOX.items():
            found = [value for each in stats if (value := getattr(each, name)) is not None]
            yield GaugeMetricFamily(f"sotto_client_{name}", text, value=sum(found))
        yield GaugeMetricFamily(
            "sotto_client_unreadable_stores",
            "Clients whose store cannot be read now.",
            value=sum(each.due is None for each in stats),
        )


def _values(stats: list[Stats]) -> Metric:
    family = CounterMetricFamily(
        "sotto_client_values",
        "Values handed to record, by what became of them.",
        labels=("metric", "outcome"),
    )
    total: Counter[tuple[str, str]] = Counter()
    for each in stats:
        for (metric, outcome), count in each.outcomes.items():
            total[metric, str(outcome)] += count
    for labels, count in sorted(total.items()):
        family.add_metric(labels, count)
    return family


def _lapses(stats: list[Stats]) -> Metric:
    family = CounterMetricFamily(
        "sotto_client_lapsed",
        "Values erased with something still to be sent, by the reason.",
        labels=("reason",),
    )
    lapses = sum((each.lapses for each in stats), NO_LAPSES)
    for reason, count in lapses._asdict().items():
        family.add_metric((reason,), count)
    return family
