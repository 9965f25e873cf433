"""The vectors pass, are what the SDK writes, and fail when the SDK is changed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from planted import plant

from clientsdk import client
from clientsdk import draws as client_draws
from clientsdk.publishers import http
from clientsdk.recorder import Recorder
from clientsdk.sending import backoff, sender
from clientsdk.store import device_secrets, measures, outbox
from clientsdk.store.accounts import Accounts
from clientsdk.store.store import Store
from mechanisms import coins
from mechanisms.chains import bits, subsets
from mechanisms.chains.output_sets import HadamardChain
from mechanisms.chains.symbols import SymbolDraw
from mechanisms.chains.thresholds import FiniteDraw
from mechanisms.number import grid
from mechanisms.string.rappor import Rappor
from sotto import clocks
from sotto.wire import batch
from tests.conformance import files
from tests.conformance.__main__ import PARTS, main

FOLDER = files.FOLDER
HOUR = 3_600_000


@pytest.mark.parametrize("name", PARTS)
def test_all_vectors_pass(name: str) -> None:
    found = list(PARTS[name].check())
    assert [each for each in found if each is not None] == []
    assert found


@pytest.mark.slow
@pytest.mark.real_randomness
def test_the_command_prints_a_line_for_each_file() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance", "plans.json", "identities"],
        cwd=FOLDER.parent.parent,
        capture_output=True,
        text=True,
        timeout=600,
    )
    counts = [len(list(PARTS[name].check())) for name in ("plans", "identities")]
    assert done.stdout.splitlines() == [
        f"plans.json: {counts[0]} of {counts[0]} vectors pass",
        f"identities.json: {counts[1]} of {counts[1]} vectors pass",
    ]
    assert (done.returncode, done.stderr) == (0, "")


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["nothing.json"])
    assert ended.value.code == 2
    assert "there is no file nothing.json; there are plans, " in capsys.readouterr().err


@pytest.mark.slow
def test_the_committed_files_are_what_the_sdk_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for the exchange, of which an answer depends on the time."""
    written = set()

    def write(name: str, *, write: Any = files.write, **changes: Any) -> None:
        written.add(name)
        write(name, **changes)

    for path in FOLDER.glob("*.json"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    monkeypatch.setattr(files, "write", write)
    files.read.cache_clear()
    try:
        for name, part in PARTS.items():
            if part.write is not None and name != "exchange":
                part.write()
    finally:
        files.read.cache_clear()
    assert written | {"exchange"} == PARTS.keys()
    for name in written:
        path = FOLDER / f"{name}.json"
        assert (tmp_path / path.name).read_bytes() == path.read_bytes(), name


def test_the_messages_of_the_exchange_are_of_a_plan_that_the_collector_knows() -> None:
    """Else a changed plan would turn all of its vectors into ones of refusals."""
    first = files.read("exchange")["collector"][0]
    assert (first["name"], first["answers"]) == ("a message", [{"status": 204}])
    assert len(first["stored"]) == 1


def test_every_mechanism_is_drawn_and_every_file_is_small() -> None:
    from mechanisms.registry import REGISTRY

    every = json.loads(files.plan("every"))
    names = {metric["name"]: metric["mechanism"]["name"] for metric in every["metrics"]}
    drawn = {names[each["metric"]] for each in files.read("draws")["vectors"]}
    assert drawn == set(REGISTRY)
    assert sum(path.stat().st_size for path in FOLDER.glob("*.json")) < 1_000_000


def test_the_interpreter_imports_nothing_of_the_library() -> None:
    ours = {"mechanisms", "sotto", "sotto_cli", "clientsdk", "pipelines"}
    for path in (FOLDER / "reference").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            for name in names:
                assert name.split(".")[0] not in ours, path
                assert name.split(".")[:2] != ["tests", "conformance"] or name.startswith(
                    "tests.conformance.reference"
                ), path


# Faults: each is called instead of the right function, with it and its arguments.


def _kept_one_word_more(right: Any, draw: SymbolDraw, symbol: int, word: int) -> int:
    if word <= draw.keep:
        return symbol
    index = (word - draw.keep) // draw.other
    return index if index < symbol else index + 1


def _one_word_off(right: Any, draw: FiniteDraw, x: int, word: int) -> Any:
    return right(draw, x, word and word - 1)


def _bits_highest_first(right: Any, planes: Any, width: int, source: Any) -> int:
    return int(f"{right(planes, width, source):0{width}b}"[::-1], 2)


def _rounded_down(right: Any, u: float, steps: int, source: Any) -> int:
    return right(u, steps, source) and int(u * steps)


def _first_places(right: Any, n: int, k: int, source: Any) -> set[int]:
    return set(range(k))


def _shard_of_a_byte(right: Any, pseudonym: bytes, shards: int) -> int:
    return pseudonym[0] % shards


def _new_secret(right: Any, secret: bytes, source: Any) -> bytes:
    return device_secrets.draw_secret(source)


def _turn_from_the_end(right: Any, secret: bytes, n: int, cycle: int) -> int:
    return n - 1 - int(right(secret, n, cycle))


def _below_ceilings(right: Any, had: Accounts, pinned: Any, own: Any, cost: int, life: int) -> bool:
    period, lifetime = min(pinned.period, own.period), min(pinned.lifetime, own.lifetime)
    return had.reserved + cost < period and had.lifetime_reserved + life < lifetime


def _without_the_resolution(right: Any, chain: Any, plan: Any, after: int) -> int:
    return int(chain.event + chain.jitter + after)


def _goes_back_unasked(right: Any, store: Store, connection: Any, now: int) -> None:
    """Follow the clock without a second reading."""
    reading, store.clock = store.clock, lambda: now
    right(store, connection, now)
    store.clock = reading


def _uses_of_any_period(right: Any, recorder: Recorder, *given: Any) -> Any:
    """Take the uses that wait for ones of this period."""
    now = recorder._store.period, recorder._store.consents
    recorder._uses = dict.fromkeys(recorder._uses, now)
    return right(recorder, *given)


def _every_use(right: Any, recorder: Recorder, *given: Any) -> Any:
    """Forget that a use was written already."""
    recorder._written.clear()
    return right(recorder, *given)


def _after_its_period(right: Any, *given: Any) -> outbox.StoredChain:
    chain: outbox.StoredChain = right(*given)
    return chain._replace(event=chain.event + HOUR)


def _counted(right: Any, connection: Any) -> list[Any]:
    return [row for row in right(connection) if any(row.state)]


def _as_served(right: Any, document: Any) -> bytes:
    return json.dumps(document).encode()


def _big_endian(right: Any, messages: list[bytes]) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in messages)


def _unhinted(right: Any, failures: int, hint: float | None = None) -> float:
    return float(right(failures))


WEEK = 7 * 86_400_000
EARLIEST = Store.earliest.fget
A_WEEK_LATER = property(lambda store: EARLIEST(store) + WEEK)
A_WEEK_AGO = property(lambda store: (store.accounts.period - 1) * WEEK)

#: Changes of the SDK, by the file that notices each: where it is made, and a fault or a value.
PLANTED: dict[str, dict[str, tuple[Any, str, Any]]] = {
    "draws": {
        "a word more keeps the symbol": (SymbolDraw, "apply", _kept_one_word_more),
        "rows are read one word off": (FiniteDraw, "apply", _one_word_off),
        "a vector's bits come in another order": (bits, "bernoulli_mask", _bits_highest_first),
        "numbers are always rounded down": (grid, "round_to_grid", _rounded_down),
        "sets take the wrong place when one is taken": (subsets, "uniform_subset", _first_places),
        "the sign of a place is not mended": (HadamardChain, "place", lambda *given: (0, 1)),
        "the cohort is that of the next metric": (Rappor, "cohort", lambda *given: 0),
    },
    "messages": {"the shard is hashed otherwise": (coins, "shard_of", _shard_of_a_byte)},
    "identities": {
        "the ratchet forgets the old secret": (device_secrets, "advance", _new_secret),
        "the turn is counted from the other end": (device_secrets, "slot", _turn_from_the_end),
    },
    "ledger": {
        "a ceiling is reached and not passed": (Accounts, "allow", _below_ceilings),
        "a reservoir keeps every value": (client_draws, "replaces", lambda *given: True),
        "any clock is believed": (client, "plausible", lambda right, time, earliest: time),
        "2020 begins a millisecond early": (client.Client, "_earliest", 1577836799999),
        "2100 begins a millisecond late": (clocks, "LATEST", clocks.LATEST + 1),
        "the period before the ledger's is gone back to": (Store, "earliest", A_WEEK_LATER),
        "one reading is enough to go back": (Store, "follow", _goes_back_unasked),
        "no period is ever closed": (Accounts, "fold_other_periods", lambda *given: False),
    },
    "outbox": {
        "reports leave one resolution too early": (sender, "due_time", _without_the_resolution),
        "chains of periods that have not come stay": (outbox, "erase_after", lambda *given: 0),
    },
    "guard": {
        "a device that has lost its file goes back": (Store, "earliest", A_WEEK_AGO),
        "the guard is not written": (sender.Store, "write_guard", lambda *given: None),
    },
    "measures": {
        "counts end before the last edge": (measures, "_most", lambda right, of: right(of) - 1),
        "ages count from the Epoch": (measures, "first_use", lambda *given: 0),
        "an answer is of the next period": (measures, "answer", _after_its_period),
        "uses go on into the next period": (Recorder, "_respond", _uses_of_any_period),
        "a response is drawn anew after every use": (Recorder, "note_use", _every_use),
        "a device answers only where it counted": (measures, "take", _counted),
    },
    "exchange": {
        "documents are taken as they were served": (http, "canonical", _as_served),
        "lengths are big-endian": (batch, "join_messages", _big_endian),
        "a hint is not waited for": (backoff, "delay", _unhinted),
    },
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "what"), [(name, what) for name in PLANTED for what in PLANTED[name]]
)
def test_a_planted_change_is_found(name: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, *PLANTED[name][what])
    assert any(each is not None for each in PARTS[name].check())
