"""What runs inside an app: randomize, keep a ledger, send. Standard library only, save Kafka."""

from clientsdk.client import Client
from clientsdk.kafkapublisher import KafkaPublisher
from clientsdk.ledger import Consent, Ledger, LedgerPeriod, PendingChain
from clientsdk.outcomes import FlushResult, Lapses, Outcome
from clientsdk.permanent import PermanentCharge
from clientsdk.publishers import EmbeddedLogPublisher, MemoryPublisher, Publisher
from clientsdk.quota import Quota
from clientsdk.settings import Settings
from sotto.brokers import Broker
from sotto.compiled import Ceilings, CompiledPlan

__all__ = [
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
]
