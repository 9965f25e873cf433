"""Arguments of a wrong type: an error of ours that says what was expected, and no value."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from test_messages import client as client_of

from clientsdk import (
    Broker,
    Client,
    CompiledPlan,
    EmbeddedLogPublisher,
    KafkaPublisher,
    Quota,
    Settings,
)
from clientsdk.publishers.http import HttpPublisher, fetch_plan
from clientsdk.testing import (
    FakeClock,
    SeededClient,
    WatchedClient,
    move_to_turn,
    reported,
    small_plan,
)
from sotto.errors import SottoError

SECRET = "what a person said"


class Odd:
    def __repr__(self) -> str:
        return SECRET


PLAN = small_plan()
#: Values that somebody may pass by mistake.
WRONG = {
    "an int": 6,
    "a huge int": 10**40,
    "a float": 2.5,
    "nan": float("nan"),
    "infinity": float("inf"),
    "a negative": -1,
    "a bool": True,
    "a text": SECRET,
    "a text of digits": "5",
    "bytes": SECRET.encode(),
    "a list": [SECRET],
    "a dict": {"format": SECRET},
    "a tuple": (3, 60),
    "a set": {SECRET},
    "None": None,
    "an object": Odd(),
    "a class": Odd,
    "a function": time.time,
    "a path": Path("there is no such file"),
    "a plan": small_plan(),
}
Call = Callable[[object], object]


def made(kind: Callable[..., object], **good: object) -> dict[str, Call]:
    """Each argument of a class by itself, with good ones beside it."""
    calls: dict[str, Call] = {}
    for name in inspect.signature(kind).parameters:
        if name not in ("seed", "leaks_values", "api_version", "arguments"):
            calls[f"{kind.__name__}({name})"] = lambda value, name=name: kind(
                **good | {name: value}
            )
    return calls


def client(plan: object = PLAN, **changes: object) -> Client:
    return client_of(plan, **{"clock": FakeClock(), **changes})


def opened(name: str) -> Call:
    return lambda value: client(**{name: value}).close()


CALLS: dict[str, Call] = {
    **{
        f"Client({name})": opened(name)
        for name in inspect.signature(Client).parameters
        if name != "background"
    },
    "record": lambda value: client().record(value, "red"),  # type: ignore[arg-type]
    "flush": lambda value: client().flush(value),  # type: ignore[arg-type]
    "aflush": lambda value: asyncio.run(client().aflush(value)),  # type: ignore[arg-type]
    "close": lambda value: client().close(value),  # type: ignore[arg-type]
    "aclose": lambda value: asyncio.run(client().aclose(value)),  # type: ignore[arg-type]
    "give_consent": lambda value: client().give_consent(again=value),  # type: ignore[arg-type]
    "renew_consent": lambda value: client().renew_consent(value),  # type: ignore[arg-type]
    "ceilings": lambda value: client(ceilings=(0.002, value)),  # type: ignore[arg-type]
    "from_json": lambda value: CompiledPlan.from_json(value),  # type: ignore[arg-type]
    "of_document": lambda value: CompiledPlan.of_document(value),
    "environ": lambda value: Settings.from_environment(value),  # type: ignore[arg-type]
    "a variable": lambda value: Settings.from_environment(
        {"SOTTO_DISABLED": value}  # type: ignore[dict-item]
    ),
    "advance": lambda value: FakeClock().advance(days=value),  # type: ignore[arg-type]
    "reported": lambda value: reported(value),  # type: ignore[arg-type]
    "move_to_turn": lambda value: move_to_turn(value, "colour"),  # type: ignore[arg-type]
    "of": lambda value: reported(WatchedClient(small_plan())).of(value),  # type: ignore[arg-type]
    "a message": lambda value: EmbeddedLogPublisher("log").publish(0, value),  # type: ignore[arg-type]
    "seed": lambda value: SeededClient(small_plan(), seed=value),  # type: ignore[arg-type]
    **made(Quota),
    **made(Settings),
    **made(EmbeddedLogPublisher, directory="log"),
    **made(KafkaPublisher, broker="localhost:1", topic="reports-e1-p8"),
    **made(HttpPublisher, url="https://telemetry.example"),
    **made(fetch_plan, url="http://127.0.0.1:1", collector="c", expect="0" * 64, timeout=0.5),
    **made(Broker, servers="localhost:9092"),
}
#: Arguments that name something, and are no person's value: the message says which is not usable.
NAMED = ("plan", "broker", "topic", "servers", "of")


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_type_is_an_error_of_ours_without_the_value(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = []
    for value in WRONG.values():
        try:
            CALLS[call](value)
        except SottoError as error:
            said.append(str(error))
    assert len(said) >= 3
    if not any(name in call for name in NAMED):
        assert SECRET not in "".join(said)
