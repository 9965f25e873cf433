"""What runs inside an app: randomize, keep a ledger, send. Standard library only, save Kafka."""

from typing import TYPE_CHECKING

from clientsdk.client import Client
from clientsdk.forgetful import NO_LIFETIME_BOUND
from clientsdk.ledger import Consent, Ledger, LedgerPeriod, PendingChain
from clientsdk.outcomes import FlushResult, Lapses, Outcome
from clientsdk.permanent import PermanentCharge
from clientsdk.publishers import MemoryPublisher, Publisher
from clientsdk.quota import Quota
from clientsdk.settings import Settings
from clientsdk.stats import Stats
from sotto.plan.compiled import Ceilings, CompiledPlan

if TYPE_CHECKING:
    from clientsdk.kafkapublisher import KafkaPublisher
    from clientsdk.logpublisher import EmbeddedLogPublisher
    from sotto.kafka.brokers import Broker

#: Where messages go is the app's choice: it pays for the one that it names, when it names it.
_CHOICES = {
    "Broker": "sotto.kafka.brokers",
    "EmbeddedLogPublisher": "clientsdk.logpublisher",
    "KafkaPublisher": "clientsdk.kafkapublisher",
}

__all__ = [
    "NO_LIFETIME_BOUND",
    "Broker",
    "Ceilings",
    "Client",
    "CompiledPlan",
    "Consent",
    "EmbeddedLogPublisher",
    "FlushResult",
    "KafkaPublisher",
    "Lapses",
    "Ledger",
    "LedgerPeriod",
    "MemoryPublisher",
    "Outcome",
    "PendingChain",
    "PermanentCharge",
    "Publisher",
    "Quota",
    "Settings",
    "Stats",
]


def __getattr__(name: str) -> object:
    if name not in _CHOICES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    choice: object = getattr(import_module(_CHOICES[name]), name)
    globals()[name] = choice
    return choice


def __dir__() -> list[str]:
    return sorted(globals().keys() | _CHOICES.keys())
