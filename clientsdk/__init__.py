"""The SDK that runs inside an app: randomizes values, keeps a ledger, sends reports.

It needs the standard library only, but for Kafka and signatures.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.client import Client
    from clientsdk.ledger import Ledger, LedgerPeriod, PendingChain, PermanentCharge
    from clientsdk.outcomes import Consent, FlushResult, Lapses, Outcome
    from clientsdk.publishers import MemoryPublisher, Publisher
    from clientsdk.publishers.http import HttpPublisher, fetch_plan
    from clientsdk.publishers.kafka import KafkaPublisher
    from clientsdk.publishers.log import EmbeddedLogPublisher
    from clientsdk.settings import NO_LIFETIME_BOUND, Quota, Settings
    from clientsdk.stats import Stats
    from clientsdk.terminal import TelemetryAction, ask, telemetry
    from sotto.errors import (
        ParameterError,
        PlanError,
        PublishError,
        SottoError,
        StoreError,
        UnknownMetricError,
        ValueTypeError,
    )
    from sotto.kafka.brokers import Broker
    from sotto.plan.compiled import CompiledPlan
    from sotto.version import __version__

#: Imported when an app names them: it pays for what it uses.
_LAZY = {
    "Broker": "sotto.kafka.brokers",
    "Client": "clientsdk.client",
    "CompiledPlan": "sotto.plan.compiled",
    "Consent": "clientsdk.outcomes",
    "EmbeddedLogPublisher": "clientsdk.publishers.log",
    "FlushResult": "clientsdk.outcomes",
    "HttpPublisher": "clientsdk.publishers.http",
    "KafkaPublisher": "clientsdk.publishers.kafka",
    "Lapses": "clientsdk.outcomes",
    "Ledger": "clientsdk.ledger",
    "LedgerPeriod": "clientsdk.ledger",
    "MemoryPublisher": "clientsdk.publishers",
    "NO_LIFETIME_BOUND": "clientsdk.settings",
    "Outcome": "clientsdk.outcomes",
    "ParameterError": "sotto.errors",
    "PendingChain": "clientsdk.ledger",
    "PermanentCharge": "clientsdk.ledger",
    "PlanError": "sotto.errors",
    "PublishError": "sotto.errors",
    "Publisher": "clientsdk.publishers",
    "Quota": "clientsdk.settings",
    "Settings": "clientsdk.settings",
    "SottoError": "sotto.errors",
    "Stats": "clientsdk.stats",
    "StoreError": "sotto.errors",
    "TelemetryAction": "clientsdk.terminal",
    "UnknownMetricError": "sotto.errors",
    "ValueTypeError": "sotto.errors",
    "__version__": "sotto.version",
    "ask": "clientsdk.terminal",
    "fetch_plan": "clientsdk.publishers.http",
    "telemetry": "clientsdk.terminal",
}

__all__ = [
    "NO_LIFETIME_BOUND",
    "Broker",
    "Client",
    "CompiledPlan",
    "Consent",
    "EmbeddedLogPublisher",
    "FlushResult",
    "HttpPublisher",
    "KafkaPublisher",
    "Lapses",
    "Ledger",
    "LedgerPeriod",
    "MemoryPublisher",
    "Outcome",
    "ParameterError",
    "PendingChain",
    "PermanentCharge",
    "PlanError",
    "PublishError",
    "Publisher",
    "Quota",
    "Settings",
    "SottoError",
    "Stats",
    "StoreError",
    "TelemetryAction",
    "UnknownMetricError",
    "ValueTypeError",
    "__version__",
    "ask",
    "fetch_plan",
    "telemetry",
]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    found: object = getattr(import_module(_LAZY[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LAZY.keys())
