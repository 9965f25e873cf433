"""Arguments over variables over defaults; what is bad fails or is told of once; the kill switch."""

from __future__ import annotations

import dataclasses
import logging
import os
import re
from pathlib import Path

import pytest
from device_plans import START, metric, plan

from clientsdk import (
    NO_LIFETIME_BOUND,
    Client,
    MemoryPublisher,
    Outcome,
    Quota,
    Settings,
    diagnostics,
)
from clientsdk.settings import CI, CONSENT, ON_ERROR, OTHERS, PLACES, VARIABLES, configured
from clientsdk.testing import FakeClock, SeededClient
from sotto.errors import ParameterError
from sotto.plan.compiled import Ceilings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/sdk.md").read_text("utf-8")
GOOD = {
    "SOTTO_DISABLED": ("off", {"disabled": False}),
    "SOTTO_DISABLE": ("yes", {"disabled": True}),
    "SOTTO_TELEMETRY": ("False", {"disabled": True}),
    "SOTTO_CEILING_PERIOD": ("1.5", {"ceiling_period": 1.5}),
    "SOTTO_CEILING_LIFETIME": ("20", {"ceiling_lifetime": 20.0}),
    "SOTTO_BACKGROUND": ("No", {"background": False}),
    "SOTTO_QUOTA_BYTES": ("200000", {"quota": Quota(bytes=200_000)}),
    "SOTTO_QUOTA_AGE": ("12h", {"quota": Quota(age=12 * 3600.0)}),
    "SOTTO_CLOSE_TIMEOUT": (" 0.25 ", {"close_timeout": 0.25}),
    "SOTTO_LOG": ("off", {"log": "off"}),
}
BAD = {
    "SOTTO_DISABLED": ["", "maybe", "2"],
    "SOTTO_DISABLE": ["", "2"],
    "SOTTO_TELEMETRY": ["", "never"],
    "SOTTO_CEILING_PERIOD": [
        *("", "-1", "0", "0.000999", "nan", "1e3"),
        *("1.0000001", "inf", "١", "6 epsilon"),
    ],
    "SOTTO_CEILING_LIFETIME": ["", "0.000000", "9" * 13, "x"],
    "SOTTO_BACKGROUND": ["", "maybe"],
    "SOTTO_QUOTA_BYTES": ["", "1", "ten", "-5", "1e9"],
    "SOTTO_QUOTA_AGE": ["", "0d", "a week"],
    "SOTTO_CLOSE_TIMEOUT": ["", "-0.5", "nan", "soon"],
    "SOTTO_LOG": ["", "loud"],
}


#: A text that no variable may hold and no message says.
MARKED = "qwertzuiop"
#: Clients that :func:`client_of` has made.
opened: list[Client] = []


def client_of(compiled=None, **options) -> Client:
    options.setdefault("state", NO_LIFETIME_BOUND)
    options.setdefault("publisher", MemoryPublisher())
    options.setdefault("clock", FakeClock(START))
    opened.append(Client(compiled or plan(metric("colour")), **options))
    return opened[-1]


@pytest.fixture(autouse=True)
def _nothing_goes_on():
    """Close all clients: a sender would warn of its file, which goes, in the middle of others."""
    yield
    while opened:
        opened.pop().close()


def test_every_variable_is_tried_here_and_documented():
    assert GOOD.keys() == BAD.keys() == VARIABLES.keys()
    assert {*re.findall(r"(?:^\| |, or )`(SOTTO_\w+)`", PAGE, re.MULTILINE)} == VARIABLES.keys()
    more = (ROOT / "docs/guides/opentelemetry.md").read_text("utf-8")
    assert {*re.findall(r"^\| `(SOTTO_\w+)`", more, re.MULTILINE)} == {*PLACES, CONSENT}


def test_every_outcome_is_documented():
    """``invalid`` too, in another table of the page: only a lenient client answers so."""
    rows = re.findall(r"^\| `([a-z_]+)` \|", PAGE, re.MULTILINE)
    assert sorted(rows) == sorted({*Outcome} - {Outcome.INVALID})
    assert re.search(r"^\| .*the outcome is `invalid`", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", GOOD)
def test_a_variable_sets_what_it_says_unless_an_argument_does(name):
    text, said = GOOD[name]
    assert Settings.from_environment(environ={name: text}) == Settings(**said)
    (field,) = said
    other = Settings.from_environment(environ={name: text}, **{field: getattr(Settings(), field)})
    # The stricter of two settings about privacy holds.
    assert other == (Settings(**said) if VARIABLES[name].privacy else Settings())


@pytest.mark.parametrize(
    ("name", "text"), [(name, text) for name in BAD for text in (*BAD[name], MARKED)]
)
def test_what_is_bad_fails_where_it_is_about_privacy_and_else_is_logged_once(name, text, caplog):
    """And no message repeats it."""
    if VARIABLES[name].privacy:
        with pytest.raises(ParameterError, match=f"{name} must be") as caught:
            Settings.from_environment(environ={name: text})
        assert MARKED not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__
        return
    for _ in range(3):
        assert Settings.from_environment(environ={name: text}) == Settings()
    assert [record.name for record in caplog.records] == ["clientsdk"]
    assert caplog.records[0].getMessage().startswith(f"{name} is not used: it must be ")
    assert MARKED not in caplog.text


def test_ceilings_of_variables_that_are_swapped_are_refused():
    with pytest.raises(ParameterError, match="SOTTO_CEILING_LIFETIME"):
        Settings.from_environment(
            environ={"SOTTO_CEILING_PERIOD": "3", "SOTTO_CEILING_LIFETIME": "2"}
        )


def test_settings_are_frozen_and_read_when_the_client_is_made(monkeypatch):
    monkeypatch.setenv("SOTTO_CLOSE_TIMEOUT", "0.25")
    with client_of() as client:
        monkeypatch.setenv("SOTTO_CLOSE_TIMEOUT", "9")
        assert client.settings.close_timeout == 0.25
        with pytest.raises(dataclasses.FrozenInstanceError):
            client.settings.disabled = True
    with client_of(settings=Settings()) as client:
        assert client.settings == Settings()


def test_settings_of_a_client_have_what_its_arguments_say(monkeypatch):
    monkeypatch.setenv("SOTTO_BACKGROUND", "on")
    monkeypatch.setenv("SOTTO_QUOTA_AGE", "1d")
    said = {"background": False, "quota": Quota(bytes=131072)}
    with client_of(**said) as client:
        assert client.settings == Settings(**said)
    with client_of(settings=Settings(close_timeout=2.0), **said) as client:
        assert client.settings == Settings(close_timeout=2.0, **said)


@pytest.mark.parametrize(
    "wrong",
    [{"publisher": None}, {"publisher": MemoryPublisher}, {"background": "no"}, {"quota": 131072}],
)
def test_an_argument_that_cannot_serve_makes_neither_a_client_nor_a_file(wrong, tmp_path):
    with pytest.raises(ParameterError, match=f"^{next(iter(wrong))} must be"):
        client_of(state=tmp_path / "device.db", **wrong)
    assert not list(tmp_path.iterdir())


WAYS = {
    "nothing": lambda settings: {},
    "settings": lambda settings: {"settings": settings},
    "settings with an argument": lambda settings: {"settings": settings, "background": False},
    "settings of the environment": lambda settings: {
        "settings": Settings.from_environment(
            **{name: getattr(settings, name) for name in Settings.__annotations__}
        )
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("asked", [None, "0", "1"])
@pytest.mark.parametrize("argument", [False, True])
def test_the_stricter_switch_holds_whatever_is_passed(monkeypatch, tmp_path, way, asked, argument):
    if asked is not None:
        monkeypatch.setenv("SOTTO_DISABLED", asked)
    options = WAYS[way](Settings(disabled=argument))
    passed = argument and way != "nothing"
    with client_of(state=tmp_path / "device.db", **options) as client:
        assert client.settings.disabled == (passed or asked == "1")
        client.give_consent()
        off = client.record("colour", "a") is Outcome.DISABLED
    assert off == (passed or asked == "1") == (not list(tmp_path.iterdir()))


@pytest.mark.parametrize("way", [*WAYS, "ceilings", "ceilings and settings"])
@pytest.mark.parametrize("asked", [(None, None), (1, None), (None, 3), (1, 3), (2, 2)])
@pytest.mark.parametrize("argument", [(None, None), (2, None), (None, 2), (2, 5)])
def test_the_lowest_ceilings_hold_whatever_is_passed(monkeypatch, way, asked, argument):
    for name, amount in zip(("PERIOD", "LIFETIME"), asked, strict=True):
        if amount is not None:
            monkeypatch.setenv(f"SOTTO_CEILING_{name}", str(amount))
    planned = plan(metric("colour")).ceilings
    said = tuple(amount and amount * 1_000_000 for amount in argument)
    wanted = Settings(ceiling_period=argument[0], ceiling_lifetime=argument[1])
    if "ceilings" in way:
        ceilings = wanted.lowered(planned)
        options = {"ceilings": ceilings, **({"settings": Settings()} if "and" in way else {})}
    else:
        options = WAYS[way](wanted)
    lifetimes = [planned.lifetime, asked[1] and asked[1] * 1_000_000]
    periods = [planned.period, asked[0] and asked[0] * 1_000_000]
    if way != "nothing":
        lifetimes.append(said[1])
        periods.append(said[0])
    lifetime = min(filter(None, lifetimes))
    lowest = Ceilings(min(lifetime, *filter(None, periods)), lifetime)
    with client_of(**options) as client:
        assert client.ledger().ceilings == lowest
        # Nor does renewed consent exceed what the environment allows.
        client.renew_consent((1000, 1000))
        assert client.ledger().ceilings.lifetime <= (asked[1] or 1000) * 1_000_000
        assert client.ledger().ceilings.period <= (asked[0] or 1000) * 1_000_000


@pytest.mark.parametrize("way", [*WAYS, "ceilings"])
@pytest.mark.parametrize(("name", "text"), [(n, BAD[n][-1]) for n in BAD if VARIABLES[n].privacy])
def test_a_bad_variable_about_privacy_is_an_error_whatever_is_passed(monkeypatch, way, name, text):
    options = {"ceilings": Ceilings(10**6, 10**6)} if way == "ceilings" else {}
    made = options or WAYS[way](Settings())
    monkeypatch.setenv(name, text)
    with pytest.raises(ParameterError, match=name):
        client_of(**made)


def test_the_logger_is_left_alone_unless_a_variable_says_so(tmp_path, caplog):
    log = logging.getLogger("clientsdk")
    client_of(state=tmp_path / "device.db", settings=Settings()).close()
    assert log.level == logging.NOTSET
    try:
        client_of(settings=Settings(log="off")).close()
        diagnostics.warn("a test", "nobody hears this")
        assert caplog.records == []
    finally:
        log.setLevel(logging.NOTSET)


# The kill switch, and what a person or a place wishes.


@pytest.mark.parametrize(
    ("environ", "by"),
    [
        ({"SOTTO_DISABLED": "1"}, "SOTTO_DISABLED"),
        ({"SOTTO_DISABLED": "0", "SOTTO_DISABLE": "yes"}, "SOTTO_DISABLE"),
        ({"SOTTO_DISABLE": "on", "SOTTO_TELEMETRY": "1"}, "SOTTO_DISABLE"),
        *(({"SOTTO_TELEMETRY": text}, "SOTTO_TELEMETRY") for text in ("0", "off", "False", "no")),
        ({"SOTTO_TELEMETRY": "on", "SOTTO_DISABLED": "off"}, None),
        *(({"DO_NOT_TRACK": text}, "DO_NOT_TRACK") for text in ("1", "true", "false", "please")),
        *(({"DO_NOT_TRACK": text}, None) for text in ("", "0", " 0 ")),
        ({"DO_NOT_TRACK": "1", "SOTTO_TELEMETRY": "1"}, "DO_NOT_TRACK"),
        *(({name: "1"}, name) for name in CI),
        ({"CI": "true", "SOTTO_TELEMETRY": "1"}, "CI"),
        ({"CI": "woodpecker"}, "CI"),
        ({"CI": ""}, None),
        ({"CI": "false", "BUILD_ID": "7"}, None),
        ({"JENKINS_URL": "", "USER": "1"}, None),
    ],
    ids=str,
)
def test_what_switches_off_is_named(monkeypatch, tmp_path, environ, by):
    for name, text in environ.items():
        monkeypatch.setenv(name, text)
    for options in ({}, {"settings": Settings()}):
        with client_of(state=tmp_path / "device.db", **options) as client:
            assert client.settings.disabled is (by is not None)
            said = client.stats().disabled
            assert said == (None if by is None else f"the SDK is switched off ({by})")
    assert Settings.from_environment().switched_off_by() == by
    # A simulation runs in continuous integration too, unless it is meant.
    simulated = SeededClient(plan(metric("colour")), seed=1).settings.disabled
    assert simulated is (by is not None and by.startswith("SOTTO_"))


def test_a_name_is_found_in_whatever_case_windows_keeps_it(monkeypatch):
    """Its ``os.environ`` keeps all names in capitals."""
    kept = type(os.environ)({"BAMBOO_PLANKEY": "7"}, str.upper, str, str, str)
    with monkeypatch.context() as patch:
        patch.setattr(os, "environ", kept)
        assert Settings().switched_off_by() == "bamboo_planKey"


def test_an_app_may_record_in_continuous_integration_and_not_where_nobody_wants_it(monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    settings = Settings(in_ci=True)
    with client_of(settings=settings) as client:
        client.give_consent()
        assert client.record("colour", "a") is Outcome.ACCEPTED
    assert not Settings.from_environment(in_ci=True).disabled
    monkeypatch.setenv("DO_NOT_TRACK", "1")
    with client_of(settings=settings) as client:
        assert client.record("colour", "a") is Outcome.DISABLED


# To keep no state file is a choice that an app has to name.


def test_named_it_is_warned_of_once_a_process(caplog):
    for _ in range(3):
        with client_of() as client:
            client.give_consent()
            assert client.record("colour", "a") is Outcome.ACCEPTED
    (warning,) = caplog.records
    assert "no lifetime bound survives this process" in warning.getMessage()


def test_no_warning_where_there_is_nothing_to_lose(caplog, tmp_path):
    """With a file, switched off, and in tests of apps."""
    client_of(state=tmp_path / "device.db").close()
    client_of(settings=Settings(disabled=True)).close()
    SeededClient(plan(), seed=1).close()
    assert caplog.records == []


def test_a_variable_that_is_not_read_is_named_once_and_never_what_it_holds(monkeypatch, caplog):
    for name in ("SOTTO_DISABELD", "SOTTO_FLUSH_TIMEOUT", "SOTTO_SITE"):
        monkeypatch.setenv(name, "qwertzuiop")
    for _ in range(2):
        configured(None, simulated=False)
    assert sorted(each.getMessage() for each in caplog.records) == [
        "the variable SOTTO_DISABELD is not read; did you mean 'SOTTO_DISABLED'?",
        "the variable SOTTO_FLUSH_TIMEOUT is not read; pass a timeout to flush()",
    ]


@pytest.mark.parametrize(
    "name",
    [
        *("sotto_disabled", "SOTTO_DNT"),
        *("SOTTO_OFF", "SOTTO_NO_TELEMETRY", "SOTTO_OPT_OUT", "SOTTO_DISABLE_TELEMETRY"),
        *("SOTTO_TELEMETRY_OPTOUT", "SOTTO_DO_NOT_TRACK", "SOTTO_NOTRACK", "SOTTO_ENABLED"),
    ],
)
def test_a_wish_to_switch_off_that_is_not_read_is_told_what_does(name, monkeypatch, caplog):
    monkeypatch.setenv(name, "1")
    configured(None, simulated=False)
    [record] = caplog.records
    assert record.getMessage() == (
        f"the variable {name} is not read; SOTTO_DISABLED=1 switches the SDK off"
    )


def test_no_variable_that_the_tree_reads_is_called_misspelt(monkeypatch, caplog):
    folders = ("deploy", "sotto", "pipelines", "sotto_cli", "examples")
    files = [each for folder in folders for each in (ROOT / folder).rglob("*") if each.is_file()]
    files += ROOT.glob("docker-compose*.yml")
    found = set()
    for file in files:
        found |= set(re.findall(r"\bSOTTO_[A-Z_]*[A-Z]\b", file.read_text("utf-8", "ignore")))
    assert found - {*VARIABLES, *PLACES, ON_ERROR, CONSENT} == {*OTHERS}
    for name in OTHERS:
        monkeypatch.setenv(name, "x")
    configured(None, simulated=False)
    assert caplog.records == []
