"""Exposes the counts of clients to Prometheus, in apps that use prometheus-client already.

Labels are names of metrics, outcomes and reasons, so that their number is bounded by the plan.

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
        values: Counter[tuple[str, ...]] = Counter()
        lapsed = Counter(NO_LAPSES._asdict())
        for each in stats:
            for outcome, counts in each.outcomes.items():
                values.update({(metric, str(outcome)): n for metric, n in counts.items()})
            lapsed.update(each.lapses)
        text = "Values handed to record, by what became of them."
        yield _counts("values", text, ("metric", "outcome"), dict(sorted(values.items())))
        yield _counts("sent", "Reports sent.", (), {(): sum(each.sent for each in stats)})
        errors = sum(each.send_errors for each in stats)
        yield _counts("send_errors", "Flushes that ended early.", (), {(): errors})
        text = "Values erased with something still to be sent, by the reason."
        yield _counts("lapsed", text, ("reason",), {(reason,): n for reason, n in lapsed.items()})
        last = max((each.last_send or 0 for each in stats), default=0) / 1000
        text = "When a report was last sent; 0 if never."
        yield GaugeMetricFamily("sotto_client_last_send_timestamp_seconds", text, value=last)
        for name, text in _OUTBOX.items():
            found = sum(getattr(each, name) or 0 for each in stats)
            yield GaugeMetricFamily(f"sotto_client_{name}", text, value=found)
        unreadable = sum(each.due is None for each in stats)
        text = "Clients whose store cannot be read now."
        yield GaugeMetricFamily("sotto_client_unreadable_stores", text, value=unreadable)


def _counts(
    name: str, text: str, labels: tuple[str, ...], counts: dict[tuple[str, ...], int]
) -> Metric:
    family = CounterMetricFamily(f"sotto_client_{name}", text, labels=labels)
    for values, count in counts.items():
        family.add_metric(values, count)
    return family
