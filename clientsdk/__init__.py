"""The SDK that runs inside an app: randomizes values, keeps a ledger, sends reports.

It needs the standard library only, but for Kafka and signatures.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from clientsdk.client import Client as Client
    from clientsdk.ledger import Ledger as Ledger
    from clientsdk.ledger import LedgerPeriod as LedgerPeriod
    from clientsdk.ledger import PendingChain as PendingChain
    from clientsdk.ledger import PermanentCharge as PermanentCharge
    from clientsdk.outcomes import Consent as Consent
    from clientsdk.outcomes import FlushResult as FlushResult
    from clientsdk.outcomes import Lapses as Lapses
    from clientsdk.outcomes import Outcome as Outcome
    from clientsdk.publishers import MemoryPublisher as MemoryPublisher
    from clientsdk.publishers import Publisher as Publisher
    from clientsdk.publishers.http import HttpPublisher as HttpPublisher
    from clientsdk.publishers.http import fetch_plan as fetch_plan
    from clientsdk.publishers.kafka import KafkaPublisher as KafkaPublisher
    from clientsdk.publishers.log import EmbeddedLogPublisher as EmbeddedLogPublisher
    from clientsdk.settings import NO_LIFETIME_BOUND as NO_LIFETIME_BOUND
    from clientsdk.settings import Quota as Quota
    from clientsdk.settings import Settings as Settings
    from clientsdk.stats import Stats as Stats
    from clientsdk.terminal import TelemetryAction as TelemetryAction
    from clientsdk.terminal import ask as ask
    from clientsdk.terminal import telemetry as telemetry
    from sotto.errors import ParameterError as ParameterError
    from sotto.errors import PlanError as PlanError
    from sotto.errors import PublishError as PublishError
    from sotto.errors import SottoError as SottoError
    from sotto.errors import StoreError as StoreError
    from sotto.errors import UnknownMetricError as UnknownMetricError
    from sotto.errors import ValueTypeError as ValueTypeError
    from sotto.kafka.brokers import Broker as Broker
    from sotto.plan.compiled import CompiledPlan as CompiledPlan
    from sotto.version import __version__ as __version__

#: The public names, by the module that is imported when an app names one: it pays for what it uses.
_MODULES = {
    "clientsdk.client": ("Client",),
    "clientsdk.ledger": ("Ledger", "LedgerPeriod", "PendingChain", "PermanentCharge"),
    "clientsdk.outcomes": ("Consent", "FlushResult", "Lapses", "Outcome"),
    "clientsdk.publishers": ("MemoryPublisher", "Publisher"),
    "clientsdk.publishers.http": ("HttpPublisher", "fetch_plan"),
    "clientsdk.publishers.kafka": ("KafkaPublisher",),
    "clientsdk.publishers.log": ("EmbeddedLogPublisher",),
    "clientsdk.settings": ("NO_LIFETIME_BOUND", "Quota", "Settings"),
    "clientsdk.stats": ("Stats",),
    "clientsdk.terminal": ("TelemetryAction", "ask", "telemetry"),
    "sotto.errors": (
        *("ParameterError", "PlanError", "PublishError", "SottoError", "StoreError"),
        *("UnknownMetricError", "ValueTypeError"),
    ),
    "sotto.kafka.brokers": ("Broker",),
    "sotto.plan.compiled": ("CompiledPlan",),
    "sotto.version": ("__version__",),
}
_LAZY = {name: module for module, names in _MODULES.items() for name in names}
__all__ = sorted(_LAZY)


if not TYPE_CHECKING:  # Type checkers are to refuse unknown names.

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        # Without importlib, which loads warnings too.
        found = getattr(__import__(_LAZY[name], fromlist=[name]), name)
        globals()[name] = found
        return found

    class _Package(type(sys)):
        def __setattr__(self, name, value):
            """Refuse what would change nothing, such as ``disabled``, a switch of other SDKs."""
            if isinstance(value, bool):
                do = "call a client's withdraw_consent(), or give it Settings(disabled=True)"
                raise AttributeError(f"{name!r} cannot be set: {do}")
            super().__setattr__(name, value)

    sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    return sorted(globals().keys() | _LAZY.keys())
