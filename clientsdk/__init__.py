"""What runs inside an app: randomize, keep a ledger, send. Standard library only."""

from clientsdk.client import Client
from clientsdk.ledger import Consent, Ledger, LedgerPeriod, PendingChain
from clientsdk.outcomes import FlushResult, Outcome
from clientsdk.permanent import PermanentCharge
from clientsdk.publishers import EmbeddedLogPublisher, MemoryPublisher, Publisher
from sotto.compiled import Ceilings, CompiledPlan

__all__ = [
    "Ceilings",
    "Client",
    "CompiledPlan",
    "Consent",
    "EmbeddedLogPublisher",
    "FlushResult",
    "Ledger",
    "LedgerPeriod",
    "MemoryPublisher",
    "Outcome",
    "PendingChain",
    "PermanentCharge",
    "Publisher",
]
