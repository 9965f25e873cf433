"""OpenTelemetry's instruments as the source of a plan's metrics."""

from __future__ import annotations

import itertools
import json
import os
import struct
import subprocess
import sys
import threading
import traceback
from collections import Counter
from types import SimpleNamespace

import httpx
import pytest
import requests
from device_plans import START, WEEK
from local_server import Answer, LocalServer
from opentelemetry import baggage, context
from opentelemetry.instrumentation.httpx import HTTPXClientInstrumentor
from opentelemetry.instrumentation.requests import RequestsInstrumentor
from opentelemetry.instrumentation.system_metrics import SystemMetricsInstrumentor
from opentelemetry.metrics import CallbackOptions, NoOpMeterProvider, Observation
from opentelemetry.sdk.metrics import Histogram, MeterProvider
from opentelemetry.sdk.metrics.export import AggregationTemporality, InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from plan_texts import plan_head
from scripts import ROOT
from test_planted_values import FIGURE, MARK, assert_clean

from clientsdk import Client, EmbeddedLogPublisher, MemoryPublisher
from clientsdk import otel as module
from clientsdk.otel import SottoMeterProvider
from clientsdk.testing import FakeClock, SeededClient, WatchedClient, reported
from sotto.plan.compile import parse_plan
from sotto.plan.segments import MEASURED

#: Requests that are made of a server, an even number.
TIMES = 6
COMMON = "window: 28d, ladder: [{epsilon: 6}], repeat: {every: 100}"
ONCE = "window: 7d, ladder: [{epsilon: 26}]"
DURATION = "type: number, range: [0, 40], unit: ms, outside: clip"
TOOK = f"took: {{{DURATION}, otel: {{instrument: app.latency}}}}"
LOAD = f"load: {{{DURATION}, otel: {{instrument: app.load}}}}"
PAGE = (
    "page: {type: category, domain: [home], outside: other, "
    "otel: {instrument: app.latency, attribute: page}}"
)
CLICKS = (
    "clicks: {type: ordinal, edges: [0, 1, 3, 5], measure: {count: click}, stored: true, "
    "otel: {instrument: app.clicks}}"
)
TABS = (
    "open: {type: ordinal, edges: [0, 2, 4], missing: true, measure: {last: open}, stored: true, "
    "otel: {instrument: app.open}}"
)


def plan(*lines, more="", rest=COMMON):
    head = plan_head("measured", (100_000, 200_000), expires="2036-12-31")
    text = head.replace("metrics:", f"{more}metrics:") + "".join(
        f"  {line[:-1]}, {rest}}}\n" for line in lines
    )
    return parse_plan(text).compile()


HTTP = plan(
    f"took: {{{DURATION}, otel: {{instrument: http.client.duration}}}}",
    "status: {type: category, domain: ['200', '404'], outside: other, "
    "otel: {instrument: http.client.duration, attribute: http.status_code}}",
)
MEMORY = plan(
    "memory: {type: number, range: [0, 4.0e+9], unit: By, outside: clip, "
    "otel: {instrument: process.memory.usage}}"
)
LATENCY = plan(TOOK)
MEASURES = plan(CLICKS, TABS, rest=ONCE)


def read(reader, name):
    """The values that the app's own OpenTelemetry has collected of an instrument."""
    found = reader.get_metrics_data()
    each = [
        metric
        for resource in (found.resource_metrics if found else ())
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
    ]
    return [getattr(p, "sum", getattr(p, "value", 0)) for m in each for p in m.data.data_points]


@pytest.fixture(scope="module")
def url():
    """The address of a server that answers every second request that it found nothing."""
    statuses = itertools.cycle((404, 200))
    with LocalServer(lambda _: Answer(next(statuses))) as server:
        yield f"{server.url}/"


def watched(plan, reader):
    """A device that keeps what it is given, and its provider before the app's own."""
    device = WatchedClient(plan)
    return device, SottoMeterProvider(device, also=MeterProvider([reader]))


def httpx_get(url, provider, reader):
    with httpx.Client() as client:
        HTTPXClientInstrumentor().instrument_client(client, meter_provider=provider)
        for _ in range(TIMES):
            client.get(url)
            yield from read(reader, "http.client.duration")


def requests_get(url, provider, reader):
    RequestsInstrumentor().instrument(meter_provider=provider)
    try:
        with requests.Session() as session:
            for _ in range(TIMES):
                session.get(url)
                yield from read(reader, "http.client.duration")
    finally:
        RequestsInstrumentor().uninstrument()


@pytest.mark.filterwarnings("ignore::clientsdk.testing.OutsideDomainWarning")
@pytest.mark.parametrize("get", [httpx_get, requests_get])
def test_unmodified_http_clients_record_what_the_app_s_own_provider_is_given(url, get):
    reader = InMemoryMetricReader({Histogram: AggregationTemporality.DELTA})
    device, provider = watched(HTTP, reader)
    truth = list(get(url, provider, reader))
    assert len(truth) == TIMES
    assert device.values("took") == truth
    assert device.values("status") == ["404", "200"] * (TIMES // 2)


def test_unmodified_system_metrics_are_recorded_once_a_period():
    reader = InMemoryMetricReader()
    device, provider = watched(MEMORY, reader)
    instrumentor = SystemMetricsInstrumentor(config={"process.memory.usage": None})
    instrumentor.instrument(meter_provider=provider)
    truth = []
    try:
        for _ in range(3):
            truth += read(reader, "process.memory.usage")
            # Asked again in the same period, it has been answered.
            read(reader, "process.memory.usage")
            device.clock.advance(days=7)
    finally:
        instrumentor.uninstrument()
    assert len(truth) == 3
    assert device.values("memory") == truth


@pytest.mark.real_randomness
def test_an_app_reports_by_configuration_alone(tmp_path):
    """The app knows OpenTelemetry alone; the environment brings plan, file and collector."""
    (tmp_path / "plan.json").write_bytes(LATENCY.to_json())
    app = "from opentelemetry.metrics import get_meter, get_meter_provider as provider\n"
    app += "took = get_meter('app').create_histogram('app.latency', unit='ms'); took.record(12)\n"
    # Nothing is recorded after the shutdown.
    app += "assert provider().force_flush(); provider().shutdown(); took.record(13)\n"
    variables = {
        "OTEL_PYTHON_METER_PROVIDER": "sotto",
        "SOTTO_PLAN": "plan.json",
        "SOTTO_STATE_FILE": "device.db",
        "SOTTO_PUBLISHER": "file:log",
    }
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **variables}
    for consent, pending in (("", 0), ("yes", 0), ("given", 1), ("", 2)):
        told = subprocess.run(
            [sys.executable, "-c", app],
            cwd=tmp_path,
            env=environment | {"SOTTO_CONSENT": consent},
            capture_output=True,
            text=True,
            check=True,
        )
        assert ("SOTTO_CONSENT must be given" in told.stderr) is (consent == "yes")
        file = tmp_path / "device.db"
        assert file.exists() is bool(pending)
        if pending:
            with Client(LATENCY, state=file, publisher=MemoryPublisher()) as client:
                assert len(client.ledger().pending) == pending


@pytest.mark.parametrize("plan", ["", "nowhere.json"])
def test_an_environment_that_describes_no_client_stops_no_app(monkeypatch, plan, caplog):
    for name, value in zip(module.PLACES, (plan, "device.db", "file:log"), strict=True):
        monkeypatch.setenv(name, value)
    SottoMeterProvider().get_meter("app").create_histogram("app.latency").record(1)
    SottoMeterProvider(also=NoOpMeterProvider()).shutdown()
    said = "needs SOTTO_PLAN in the environment" if not plan else "'nowhere.json' cannot be read"
    assert said in caplog.text
    monkeypatch.setenv("SOTTO_ON_ERROR", "raise")
    with pytest.raises(ValueError, match=said):
        SottoMeterProvider()


@pytest.mark.real_randomness
def test_no_attribute_resource_context_or_amount_is_stored_or_sent(tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"service.name={MARK}")
    caplog.set_level("DEBUG")
    clock = FakeClock(START)
    publisher, state = EmbeddedLogPublisher(tmp_path / "log"), tmp_path / "device.db"
    known = plan(TOOK, PAGE, LOAD.replace(", unit: ms", ""))
    client = Client(known, state=state, publisher=publisher, clock=clock, background=False)
    client.give_consent()
    reader = InMemoryMetricReader()
    own = MeterProvider([reader], Resource.create({"host.name": MARK}))
    token = context.attach(baggage.set_baggage("user", MARK))
    try:
        for provider in (teed := SottoMeterProvider(client, also=own), SottoMeterProvider(client)):
            meter = provider.get_meter(MARK, MARK, MARK, {"scope": MARK})
            histogram = meter.create_histogram("app.latency", "ms", MARK)
            observed = Observation(FIGURE, {"host": MARK}, context.get_current())
            meter.create_observable_gauge("app.load", [lambda _, each=observed: [each]], "", MARK)
            for attributes in ({"page": MARK}, {MARK: MARK, "page": [MARK]}, {"page": "home"}):
                histogram.record(FIGURE, attributes, context.get_current())
                if provider is not teed:
                    # The app's own provider would raise.
                    histogram.record(MARK, attributes)
            provider.observe()
            reader.get_metrics_data()
    finally:
        context.detach(token)
    stored = b"".join(each.read_bytes() for each in tmp_path.glob("device.db*"))
    assert len(client.ledger().pending) == 17
    clock.advance(days=2)
    assert client.flush().sent == 17
    client.close()
    publisher.close()
    bytes_sent = b"".join(each.read_bytes() for each in (tmp_path / "log").rglob("*.*"))
    assert bytes_sent
    assert_clean(stored, bytes_sent, caplog.text)
    # As a share of the range, too.
    assert struct.pack("<d", FIGURE / 40) not in stored + bytes_sent + caplog.text.encode()


def generated():
    """Generator callback that says how often it was asked."""
    options = yield
    times = 0
    while True:
        assert isinstance(options, CallbackOptions)
        times += 1
        options = yield [Observation(times, {"of": "generator"})]


def test_a_tee_leaves_the_apps_own_figures_unchanged(caplog):
    """Also of callbacks that remember when they were last asked, fail, or are generators."""

    def figures(make):
        reader = InMemoryMetricReader()
        provider = make(MeterProvider([reader], Resource({}), shutdown_on_exit=False))
        meter, asked = provider.get_meter("app", "1", "https://schema.example", {"a": "b"}), []

        def counted(options):
            asked.append(options)
            return (Observation(len(asked), {"n": str(n)}) for n in range(2))

        def failing(options):
            raise ValueError

        named = ("app.latency", "ms", "What it takes")
        buckets = {"explicit_bucket_boundaries_advisory": [1, 5, 20]}
        synchronous = [
            meter.create_histogram(*named, **buckets).record,
            meter.create_gauge("app.latency.gauge", "ms").set,
            meter.create_counter("app.pages").add,
            meter.create_up_down_counter("app.open").add,
        ]
        for kind in ("counter", "gauge", "up_down_counter"):
            create = getattr(meter, f"create_observable_{kind}")
            create(f"app.seen.{kind}", [counted, failing, generated()], "ms")
        meter.create_observable_gauge("app.none")
        times = []
        for step in range(5):
            for record in synchronous:
                record(step, {"even": step % 2 == 0, "page": "home"})
                record(step + 0.5)
            times.append(json.loads(reader.get_metrics_data().to_json()))
        # Methods of the app's provider beyond the interface are the tee's too.
        assert provider.force_flush()
        provider.shutdown()
        for resource in (resource for each in times for resource in each["resource_metrics"]):
            for metric in (m for scope in resource["scope_metrics"] for m in scope["metrics"]):
                for point in metric["data"]["data_points"]:
                    del point["time_unix_nano"], point["start_time_unix_nano"]
        return times

    known = plan(
        f"took: {{{DURATION}, otel: {{instrument: App.Latency}}}}",
        "page: {type: category, domain: [home], outside: other, missing: true, "
        "otel: {instrument: app.pages, attribute: page}}",
        f"load: {{{DURATION}, otel: {{instrument: app.seen.up_down_counter}}}}",
        f"seen: {{{DURATION}, otel: {{instrument: app.seen.gauge}}}}",
        f"last: {{{DURATION}, otel: {{instrument: app.latency.gauge}}}}",
        f"open: {{{DURATION}, otel: {{instrument: app.open}}}}",
    )
    device = WatchedClient(known)
    assert figures(lambda own: SottoMeterProvider(device, also=own)) == figures(lambda own: own)
    assert device.values("took") == [each for n in range(5) for each in (n, n + 0.5)]
    assert device.values("last") == device.values("took")
    assert device.values("page") == ["home", None] * 5
    # Once a period, the sum of the parts of each callback that does not fail.
    assert device.values("load") == [6, 1]
    # A gauge has no sum; of one callback it has several values, of the other one.
    assert device.values("seen") == [1]
    assert device.values("open") == []
    said = [each.getMessage() for each in caplog.records if each.name == "clientsdk"]
    assert sorted(said) == [
        "metric open: instrument app.open does not feed it: a metric of type number takes what a "
        "histogram, gauge, observable gauge or observable up-down counter measures, and no "
        "up-down counter",
        "the observable app.seen.gauge is not recorded: has several values, by attributes that "
        "are no segments",
    ]


def test_a_plan_that_names_no_instrument_is_told(caplog):
    SottoMeterProvider(WatchedClient(plan(f"took: {{{DURATION}}}")))
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("instruments record nothing: no metric of the plan names an instrument")


@pytest.mark.parametrize(
    ("metric", "create", "unit", "said"),
    [
        ("took", "counter", "ms", "and no counter"),
        ("took", "up_down_counter", "ms", "and no up-down counter"),
        ("took", "observable_counter", "ms", "and no observable counter"),
        ("took", "histogram", "s", "it measures in 's', and the plan says 'ms'"),
        ("clicks", "histogram", "", "count takes what a counter measures, and no histogram"),
        ("open", "counter", "", "or up-down counter measures, and no counter"),
    ],
)
def test_an_instrument_that_would_count_wrong_is_refused_once(metric, create, unit, said, caplog):
    device = WatchedClient(LATENCY if metric == "took" else MEASURES)
    name = device.plan.metric(metric).otel.instrument
    provider = SottoMeterProvider(device)
    meter = provider.get_meter("app")
    observed = [[lambda options: [Observation(3)]]] if create.startswith("observable") else []
    for _ in range(2):
        made = getattr(meter, f"create_{create}")(name, *observed, unit=unit)
        if not observed:
            (made.record if create == "histogram" else made.add)(3)
    provider.observe()
    assert device.recorded == []
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith(f"metric {metric}: instrument {name} does not feed it: ")
    assert said in line


def test_instruments_never_raise_and_count_what_is_invalid(caplog):
    with SeededClient(LATENCY, seed=1) as device:
        histogram = SottoMeterProvider(device).get_meter("app").create_histogram("app.latency")
        for amount in (MARK, None, True, [FIGURE]):
            histogram.record(amount, {"page": MARK})
        histogram.record(3)
        assert device.stats().outcomes == {"invalid": {"took": 4}, "accepted": {"took": 1}}
    histogram.record(3)
    assert MARK not in caplog.text
    assert "metric 'took' expects int or float; got str" in caplog.text


@pytest.mark.parametrize("beside_another", [False, True])
def test_what_is_measured_is_in_no_frame_of_an_interrupt(beside_another, monkeypatch):
    known = plan(TOOK, PAGE, TABS, LOAD, more="segments: {os: [linux]}\n", rest=ONCE)
    reader = InMemoryMetricReader()
    also = MeterProvider([reader], shutdown_on_exit=False) if beside_another else None
    provider = SottoMeterProvider(SeededClient(known, seed=1), also=also)
    meter = provider.get_meter("app")
    meter.create_observable_gauge("app.load", [lambda options: [Observation(FIGURE, {"a": MARK})]])
    latency = meter.create_histogram("app.latency")
    opened = meter.create_up_down_counter("app.open")

    def interrupting(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("clientsdk.recorder.Recorder.attempt", interrupting)
    for work in (
        lambda: latency.record(FIGURE, {"page": MARK, "os": MARK}),
        lambda: opened.add(FIGURE, {"page": MARK}),
        reader.get_metrics_data if beside_another else provider.observe,
    ):
        with pytest.raises(KeyboardInterrupt) as caught:
            work()
        frames = [each for each, _ in traceback.walk_tb(caught.tb)]
        kept = [each.f_locals for each in frames if each.f_globals is vars(module)]
        assert kept
        assert repr(FIGURE) not in repr(kept)
        assert MARK not in repr(kept)


def test_an_attribute_is_a_segment_only_if_the_plan_has_it():
    known = plan(TOOK, LOAD, more="segments: {os.type: [linux], http.method: [GET, POST]}\n")
    device = SeededClient(known, seed=1, segments={"os.type": "linux"})
    provider = SottoMeterProvider(device)
    meter = provider.get_meter("app")
    histogram = meter.create_histogram("app.latency")
    for attributes in ({"http.method": "GET", "os": "mac"}, None, {"http.method": ["GET"]}):
        histogram.record(3, attributes)
    histogram.record(3, {"os.type": "beos", "http.method": "POST"})
    # The app's own recording is in the app's own segment.
    device.record("took", 3)
    parts = [Observation(n, {"http.method": name}) for n, name in enumerate(("GET", "POST"))]
    meter.create_observable_gauge("app.load", [lambda options: parts])
    provider.observe()
    assert Counter(each.segment for each in device.ledger().pending) == {
        "os.type=linux,http.method=GET": 2,
        "os.type=linux,http.method=other": 3,
        "os.type=other,http.method=POST": 1,
        "os.type=linux,http.method=POST": 1,
    }


def test_an_observable_has_one_answer_a_period_once_somebody_agrees():
    device = SeededClient(plan(LOAD), seed=1, clock=FakeClock(START), consent=False)
    provider, asked = SottoMeterProvider(device), []
    provider.get_meter("app").create_observable_gauge(
        "app.load", [lambda options: asked.append(options) or [Observation(3)]]
    )
    for _ in range(2):
        provider.observe()
    assert asked == []
    device.give_consent()
    for week in range(3):
        for _ in range(2):
            provider.observe()
        assert len(asked) == week + 1
        device.clock.now += WEEK
    assert device.stats().outcomes == {"accepted": {"load": 3}}


def test_a_category_without_its_attribute_is_missing_where_the_plan_says_so():
    known = plan(
        "page: {type: category, domain: ['1', 'true'], outside: other, missing: true, "
        "otel: {instrument: app.pages, attribute: page}}"
    )
    device = WatchedClient(known)
    counter = SottoMeterProvider(device).get_meter("app").create_counter("app.pages")
    for attributes in ({"page": 1}, {"page": True}, {}, None, {"page": b"1"}):
        counter.add(1, attributes)
    assert device.values("page") == ["1", "true", None, None, None]


@pytest.mark.real_randomness
def test_a_thread_asks_observables_also_in_the_child_of_a_fork(tmp_path, monkeypatch):
    for name in ("_FIRST_LOOK", "_LOOK"):
        monkeypatch.setattr(module, name, 0.01)
    asked = threading.Event()
    with Client(plan(LOAD), state=tmp_path / "device.db", publisher=MemoryPublisher()) as client:
        meter = SottoMeterProvider(client).get_meter("app")
        meter.create_observable_gauge("app.load", [lambda _: asked.set() or [Observation(3)]])
        if (child := os.fork()) == 0:
            try:
                client.give_consent()
                found = asked.wait(60)
            finally:
                os._exit(not found)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert asked.wait(60)


def test_counters_are_counted_and_their_sums_are_last_values(caplog):
    device = SeededClient(MEASURES, seed=1)
    meter = SottoMeterProvider(device).get_meter("app")
    clicks, tabs = meter.create_counter("app.clicks"), meter.create_up_down_counter("app.open")
    for amount in (1, True, False, 1.9, float("inf"), float("nan")):
        clicks.add(amount, {"button": MARK})
    for amount in (4, 1, -3):
        tabs.add(amount)
    # How often an app counted is in no figure that it may pass on.
    assert device.stats().outcomes == {}
    device.clock.advance(days=8)
    device.flush()
    device.clock.advance(hours=3)
    device.flush()
    said = {each.metric: each.meaning.strip("'") for each in reported(device)}
    assert said == {"clicks": "3 to 4", "open": "2 to 3"}
    # A count takes what no float can hold.
    caplog.clear()
    assert clicks.add(10**400) == "accepted"
    assert caplog.text == ""


def test_no_attribute_chooses_the_segment_of_a_measure():
    """All measures of a period begin at whichever measurement comes first."""
    known = plan(TOOK, CLICKS, more="segments: {http.method: [GET, POST]}\n", rest=ONCE)
    device = SeededClient(known, seed=1, segments={"http.method": "POST"})
    meter = SottoMeterProvider(device).get_meter("app")
    latency, clicks = meter.create_histogram("app.latency"), meter.create_counter("app.clicks")
    found: set[tuple[str, str]] = set()
    for _ in range(2):
        latency.record(3, {"http.method": "GET"})
        clicks.add(1, {"http.method": "GET"})
        found |= {(each.metric, each.segment) for each in device.ledger().pending}
        device.clock.now = known.period * (known.period_of(device.clock.now) + 1)
    device.flush()
    found |= {(each.metric, each.segment) for each in device.ledger().pending}
    assert found == {("measured/clicks", "http.method=POST"), ("measured/took", "http.method=GET")}


def test_parts_of_an_observable_are_one_value_of_a_measure_whatever_their_segments():
    device = WatchedClient(plan(TABS, more="segments: {os: [linux, mac]}\n", rest=ONCE))
    provider = SottoMeterProvider(device)
    parts = [Observation(3, {"os": "linux"}), Observation(4, {"os": "mac"})]
    make = provider.get_meter("app").create_observable_up_down_counter
    make("app.open", [lambda options: parts])
    provider.observe()
    assert device.values("open") == [7]


def test_an_interrupt_leaves_no_segment_set(monkeypatch):
    def interrupted(segments):
        MEASURED.set(segments)
        raise KeyboardInterrupt

    monkeypatch.setattr(
        "sotto.plan.segments.MEASURED", SimpleNamespace(set=interrupted, reset=None)
    )
    device = SeededClient(plan(TOOK, more="segments: {os: [linux]}\n"), seed=1)
    histogram = SottoMeterProvider(device).get_meter("app").create_histogram("app.latency")
    with pytest.raises(KeyboardInterrupt):
        histogram.record(3, {"os": "linux"})
    assert MEASURED.get() is None
