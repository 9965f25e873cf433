"""Arms of experiments as flags, and tracked events as recordings."""

from __future__ import annotations

import math
import traceback
from unittest.mock import Mock

import pytest
from device_plans import VAST, metric, number, plan
from openfeature import api
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.flag_evaluation import Reason
from openfeature.track import TrackingEventDetails
from test_measures import answers, week_later
from test_measures import device as measuring

from clientsdk import Client, MemoryPublisher, Settings
from clientsdk.openfeature import SottoFeatureProvider
from clientsdk.testing import FakeClock, SeededClient, WatchedClient
from sotto.errors import StoreError

MARK = "Qzx7-marked-value"
ARMS = {"name": "onboarding", "arms": ["control", "guided"], "share": 500_000}
BOUGHT = metric("bought", "every", 9, type="boolean", mechanism={"name": "grr", "domain_size": 2})
del BOUGHT["domain"], BOUGHT["outside"]
METRICS = (metric("theme", "every", 9), BOUGHT, number("load", kind="every", limit=9))
PLAN = plan(*METRICS, experiment=ARMS, ceilings=VAST)


@pytest.fixture
def flags():
    """Make OpenFeature's client on a device."""

    def made(device):
        api.set_provider_and_wait(SottoFeatureProvider(device))
        return api.get_client()

    yield made
    api.clear_providers()


def test_an_arm_is_a_flag_and_no_context_decides_about_it(flags):
    found = set()
    for seed in range(30):
        device = SeededClient(PLAN, seed=seed)
        arm, client = device.arm("onboarding"), flags(device)
        for user in ("a", "b"):
            told = client.get_string_details("onboarding", "off", EvaluationContext(user))
            expected = (arm, arm, Reason.SPLIT) if arm else ("off", None, Reason.DEFAULT)
            assert (told.value, told.variant, told.reason) == expected
            for default in (True, False):
                second = client.get_boolean_value("onboarding", default, EvaluationContext(user))
                assert second is (arm == "guided" if arm else default)
        found.add(arm)
    assert found == {"control", "guided", None}


def test_what_is_no_flag_or_of_another_type_has_its_default(flags):
    three = plan(metric("theme"), experiment={**ARMS, "arms": ["a", "b", "c"], "share": 1_000_000})
    client = flags(SeededClient(three, seed=1))
    assert client.get_string_value("onboarding", "off") in ("a", "b", "c")
    for told, default in (
        (client.get_boolean_details("onboarding", True), True),
        (client.get_integer_details("onboarding", 7), 7),
        (client.get_float_details("onboarding", 0.5), 0.5),
        (client.get_object_details("onboarding", {"a": 1}), {"a": 1}),
    ):
        assert (told.value, told.error_code) == (default, ErrorCode.TYPE_MISMATCH)
    for each in (client, flags(SeededClient(plan(metric("theme")), seed=1))):
        told = each.get_string_details("another", "off")
        assert (told.value, told.error_code) == ("off", ErrorCode.FLAG_NOT_FOUND)


def test_without_consent_or_switched_off_each_flag_has_its_default(flags, tmp_path):
    options = {"publisher": MemoryPublisher(), "clock": FakeClock(), "background": False}
    for settings in (Settings(), Settings(disabled=True)):
        with Client(PLAN, state=tmp_path / "device.db", settings=settings, **options) as device:
            told = flags(device).get_string_details("onboarding", "off")
            assert (told.value, told.reason) == ("off", Reason.DEFAULT)


def test_a_store_that_fails_stops_no_app(flags, monkeypatch):
    device = SeededClient(PLAN, seed=1)
    client = flags(device)

    monkeypatch.setattr(device, "arm", Mock(side_effect=StoreError("the disk is gone")))
    told = client.get_string_details("onboarding", "off")
    assert (told.value, told.error_code) == ("off", ErrorCode.GENERAL)
    assert told.error_message == "the disk is gone"


def test_an_event_is_a_recording_of_its_value_alone(flags):
    device = WatchedClient(PLAN)
    client = flags(device)
    for name, value in (("load", 7.5), ("load", None), ("bought", 1.0), ("bought", 0.0)):
        details = TrackingEventDetails(value, {"user": MARK})
        client.track(name, EvaluationContext(MARK, {"email": MARK}), details)
    client.track("load")
    client.track(MARK, tracking_event_details=TrackingEventDetails(1.0))
    told = [("load", 7.5), ("load", None), ("bought", True), ("bought", False), ("load", None)]
    assert [each[:2] for each in device.recorded] == told


def test_an_event_feeds_all_measures_of_its_name(flags, caplog):
    device = measuring("most", "least", "dark", "exports", "opened", "days")
    client = flags(device)
    # The device counts the days of "app" itself.
    counted = [(name, 1.0) for name in ("export", "open", "export", "app")]
    for name, value in (("load", 15.0), ("load", 3.0), ("dark", 2.0), *counted):
        client.track(name, tracking_event_details=TrackingEventDetails(value))
    assert device.stats().outcomes == {}
    week_later(device)
    told = {"most": ["10 to 19"], "least": ["0 to 9"], "dark": ["true"], "exports": ["0"]}
    assert answers(device) == {**told, "opened": ["false"], "days": ["1"]}
    said = [each.getMessage() for each in caplog.records]
    assert [each.partition("the plan counts it, so ")[2] for each in said if "counts" in each] == [
        "call count('export')",
        "call count('open')",
    ]


def test_what_cannot_be_recorded_is_counted_and_never_raised(flags, caplog):
    device = SeededClient(PLAN, seed=1)
    client = flags(device)
    client.track("theme", tracking_event_details=TrackingEventDetails(math.pi))
    client.track("bought")
    client.track("bought", tracking_event_details={"value": 1})
    assert device.stats().outcomes == {"invalid": {"theme": 1, "bought": 2}}
    assert "metric 'theme' expects str; got float" in caplog.text
    assert "3.14" not in caplog.text


def test_an_interrupt_leaves_no_value_in_a_frame(flags, monkeypatch):
    def interrupting(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("clientsdk.recorder.Recorder.attempt", interrupting)
    provider = SottoFeatureProvider(SeededClient(PLAN, seed=1))
    with pytest.raises(KeyboardInterrupt) as caught:
        provider.track("load", None, TrackingEventDetails(math.pi))
    tracked = next(each for each, _ in traceback.walk_tb(caught.tb) if "client" in each.f_locals)
    assert repr(math.pi) not in repr(tracked.f_locals)
