"""Scripts for each SDK, as an app would write them.

They are texts, not functions: each runs in an interpreter that has loaded nothing else. ``HOST``
is where messages go: an address on loopback.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

PLAN = """
import json
def plan(**metric):
    week, ladder = 604_800_000, [(500_000, 0), (1_000_000, 86_400_000), (2_000_000, 604_800_000)]
    metric = {
        "name": "m", "missing": False, "window": 4 * week,
        "repeat": {"kind": "every", "limit": 100_000},
        "ladder": [{"epsilon": epsilon, "after": after} for epsilon, after in ladder], **metric,
    }
    document = {
        "format": 2, "collector": "bench.example", "plan": "bench", "version": 1,
        "owner": "owner@bench.example", "expires": 4_102_444_800_000, "period": week,
        "resolution": 3_600_000, "grace": 86_400_000, "retention": week, "shards": 64,
        "ceilings": {"period": 10**12, "lifetime": 10**12}, "metrics": [metric],
    }
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode()
def category(**metric):
    return plan(
        type="category", mechanism={"name": "grr", "domain_size": 4},
        domain=["red", "green", "blue"], outside="other", **metric,
    )
CATEGORY = category()
ONE = category(repeat={"kind": "first", "limit": 1})
INSTRUMENT = category(otel={"instrument": "colours", "attribute": "colour"})
STRING = plan(
    type="string", mechanism={"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
)
COUNTED = plan(
    type="ordinal", mechanism={"name": "grr", "domain_size": 3}, edges=[0, 1, 2],
    domain=["0", "1", "2 or more"], outside="clip", measure={"kind": "count", "of": "export"},
    stored=True, window=604_800_000, repeat={"kind": "first", "limit": 1},
)
"""
#: With what a recording loads, but its mechanism.
_SOTTO = "import clientsdk\nimport clientsdk.sending.parts"
_SOTTO_START = """
class Nowhere:
    def publish(self, shard, message):
        go(HOST)
    def close(self):
        pass
shift = 0
client = clientsdk.Client({plan}, state={state}, publisher={publisher}, {options})
"""
_INSTRUMENT_START = """
from clientsdk.otel import SottoMeterProvider
counter = SottoMeterProvider(client).get_meter("app").create_counter("colours")
"""
_METRICS_START = """
class Nowhere(MetricExporter):
    def export(self, metrics_data, timeout_millis=10_000, **options):
        go(HOST)
        return MetricExportResult.SUCCESS
    def force_flush(self, timeout_millis=10_000):
        return True
    def shutdown(self, timeout_millis=30_000, **options):
        pass
provider = MeterProvider([PeriodicExportingMetricReader(Nowhere())])
counter = provider.get_meter("app").create_counter("colours")
"""
_LOGS_START = """
class Nowhere(LogRecordExporter):
    def export(self, batch):
        go(HOST)
        return LogRecordExportResult.SUCCESS
    def force_flush(self, timeout_millis=30_000):
        return True
    def shutdown(self):
        pass
provider = LoggerProvider()
provider.add_log_record_processor(BatchLogRecordProcessor(Nowhere()))
logger = provider.get_logger("app")
"""
#: Over TLS both would have a context; the address on loopback is plain HTTP.
_TLS = "import ssl\ntls = ssl.create_default_context()"
_OTLP_START = """
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
provider = LoggerProvider()
exporter = OTLPLogExporter(endpoint=f"http://127.0.0.1:{HOST[1]}/v1/logs")
provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
logger = provider.get_logger("app")
"""
_SENTRY_START = """
sentry_sdk.init(dsn=f"http://key@127.0.0.1:{HOST[1]}/1")
"""
_POSTHOG_START = """
client = posthog.Posthog("key", host=f"http://127.0.0.1:{HOST[1]}")
"""


@dataclass(frozen=True)
class Contender:
    """One way to report one thing."""

    name: str
    #: As it is installed.
    distribution: str
    #: Statements: load the package, make what an app makes once, report one thing, and let time
    #: pass until that may be sent.
    load: str
    start: str
    event: str
    age: str = ""


def sotto(
    name: str,
    plan: str = "CATEGORY",
    state: str = "STATE",
    event: str = "client.record('m', 'red')",
    options: str = "",
    publisher: str = "Nowhere()",
    on: bool = True,
    more: str = "",
) -> Contender:
    """Return one of ours, with consent unless it is not ``on``; ``more`` is made once too."""
    start = PLAN + _SOTTO_START.format(plan=plan, state=state, options=options, publisher=publisher)
    start += "client.give_consent()\n" if on else ""
    return Contender(name, "sotto", _SOTTO, start + more, event, "shift = 172_800")


OURS = (
    sotto("sotto, a category, durable"),
    sotto("sotto, a category, in memory", state="clientsdk.NO_LIFETIME_BOUND"),
    sotto(
        "sotto, a string of 128 bits, durable",
        plan="STRING",
        event="client.record('m', 'Iosevka')",
    ),
    sotto(
        "sotto, an OTel counter, durable",
        plan="INSTRUMENT",
        event="counter.add(1, {'colour': 'red'})",
        more=_INSTRUMENT_START,
    ),
    sotto("sotto, count of a measure, durable", plan="COUNTED", event="client.count('export')"),
    sotto("sotto, refused", plan="ONE"),
    sotto("sotto, switched off", options="settings=clientsdk.Settings(disabled=True),", on=False),
    sotto("sotto, without consent", on=False),
)
OPENTELEMETRY = "opentelemetry-sdk"
_PREPARED = PLAN + "open('plan.json', 'wb').write(CATEGORY)\n"
_OPENED = """
from clientsdk import Client
client = Client.open("plan.json", state=STATE, publisher="https://telemetry.example")
"""
_ENDED = 'client.record("m", "red")\nclient.close()\n'
_OFF = "import os\nos.environ['SOTTO_DISABLED'] = '1'"
_AGREED = f"{_OPENED}client.give_consent()\n{_ENDED}"
#: Whole runs of a tool: what is done before, and what is measured. It begins, and ends at once.
TOOLS = {
    "sotto, switched off": (_PREPARED, _OFF + _OPENED + _ENDED),
    "sotto, nobody has agreed": (_PREPARED, _OPENED + _ENDED),
    "sotto, the run that somebody agrees in": (_PREPARED, _AGREED),
    "sotto, each run after it": (_PREPARED + _AGREED, _OPENED + _ENDED),
}
PEERS = (
    Contender(
        "opentelemetry, counter.add",
        OPENTELEMETRY,
        "from opentelemetry.sdk.metrics import MeterProvider\n"
        "from opentelemetry.sdk.metrics.export import (\n"
        "    MetricExporter, MetricExportResult, PeriodicExportingMetricReader)",
        _METRICS_START,
        "counter.add(1, {'colour': 'red'})",
    ),
    Contender(
        "opentelemetry, logger.emit",
        OPENTELEMETRY,
        "from opentelemetry.sdk._logs import LoggerProvider\n"
        "from opentelemetry.sdk._logs.export import (\n"
        "    BatchLogRecordProcessor, LogRecordExporter, LogRecordExportResult)",
        _LOGS_START,
        "logger.emit(body='colour', attributes={'colour': 'red'})",
    ),
    Contender(
        "sentry, capture_message",
        "sentry-sdk",
        "import sentry_sdk",
        _SENTRY_START,
        "sentry_sdk.capture_message('colour red')",
    ),
    Contender(
        "sentry, metrics.count",
        "sentry-sdk",
        "import sentry_sdk",
        _SENTRY_START,
        "sentry_sdk.metrics.count('colours', 1, attributes={'colour': 'red'})",
    ),
    Contender(
        "posthog, capture",
        "posthog",
        "import posthog",
        _POSTHOG_START,
        "client.capture('colour', distinct_id='somebody', properties={'colour': 'red'})",
    ),
)
_AGED = "clock=lambda: time.time() + shift,"
#: The first of ours with a clock that moves on: an app's own clock costs something at each event.
AGED = sotto(OURS[0].name, options=_AGED)
_HTTP = sotto(
    "sotto", publisher="clientsdk.HttpPublisher(f'http://127.0.0.1:{HOST[1]}')", options=_AGED
)
#: Those that send over HTTP, at the end of ``age``; the first is compared with the second.
SENDING = (
    replace(_HTTP, age=f"{_HTTP.age}\nclient.flush()\n{_TLS}"),
    replace(
        PEERS[1],
        name="opentelemetry, OTLP",
        start=_OTLP_START,
        age=f"provider.force_flush()\n{_TLS}",
    ),
)
