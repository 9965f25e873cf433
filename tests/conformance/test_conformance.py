"""The vectors pass, are what the SDK writes, and fail when the SDK is changed."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clientsdk import client as client_module
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

pytestmark = pytest.mark.slow

FOLDER = files.FOLDER
HOUR = 3_600_000


@pytest.mark.parametrize("name", PARTS)
def test_all_vectors_pass(name: str) -> None:
    found = list(PARTS[name].check())
    assert [each for each in found if each is not None] == []
    assert found


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


def _kept_one_word_more(draw: SymbolDraw, symbol: int, word: int) -> int:
    if word <= draw.keep:
        return symbol
    index = (word - draw.keep) // draw.other
    return index if index < symbol else index + 1


def _bits_highest_first(planes: Any, width: int, source: Any) -> int:
    return int(f"{_MASK(planes, width, source):0{width}b}"[::-1], 2)


def _goes_back_unasked(store: Store, connection: Any, now: int) -> None:
    """Follow the clock without a second reading."""
    reading, store.clock = store.clock, lambda: now
    _FOLLOW(store, connection, now)
    store.clock = reading


def _uses_of_any_period(recorder: Recorder, *given: Any) -> list[str]:
    """Take the uses that wait for ones of this period."""
    now = recorder._store.period, recorder._store.consents
    recorder._uses = dict.fromkeys(recorder._uses, now)
    return _RESPOND(recorder, *given)


def _every_use(recorder: Recorder, *given: Any) -> Any:
    """Forget that a use was written already."""
    recorder._written.clear()
    return _NOTE_USE(recorder, *given)


def _after_its_period(*given: Any) -> outbox.StoredChain:
    chain = _ANSWER(*given)
    return chain._replace(event=chain.event + HOUR)


_ANSWER, _MOST, _TAKE = measures.answer, measures._most, measures.take
_NOTE_USE, _RESPOND = Recorder.note_use, Recorder._respond
_FOLLOW = Store.follow
_EARLIEST = Store.earliest.fget
_WEEK = 7 * 86_400_000
_MASK = bits.bernoulli_mask
_ROUND = grid.round_to_grid

#: Changes of the SDK, and a file that notices each.
PLANTED: dict[str, tuple[str, object, str, Any]] = {
    "a word more keeps the symbol": ("draws", SymbolDraw, "apply", _kept_one_word_more),
    "rows are read one word off": (
        "draws",
        FiniteDraw,
        "apply",
        lambda draw, x, word, old=FiniteDraw.apply: old(draw, x, word and word - 1),
    ),
    "a vector's bits are drawn in another order": (
        "draws",
        bits,
        "bernoulli_mask",
        _bits_highest_first,
    ),
    "numbers are always rounded down": (
        "draws",
        grid,
        "round_to_grid",
        lambda u, steps, source: _ROUND(u, steps, source) and int(u * steps),
    ),
    "sets take the wrong place when one is taken": (
        "draws",
        subsets,
        "uniform_subset",
        lambda n, k, source: set(range(k)),
    ),
    "the sign of a place is not mended": ("draws", HadamardChain, "place", lambda c, x: (0, 1)),
    "the cohort is that of the next metric": ("draws", Rappor, "cohort", lambda r, pseudonym: 0),
    "the shard is hashed otherwise": (
        "messages",
        coins,
        "shard_of",
        lambda pseudonym, shards: pseudonym[0] % shards,
    ),
    "the ratchet forgets the old secret": (
        "identities",
        device_secrets,
        "advance",
        lambda secret, source: device_secrets.draw_secret(source),
    ),
    "the turn is counted from the other end": (
        "identities",
        device_secrets,
        "slot",
        lambda secret, n, cycle, old=device_secrets.slot: n - 1 - old(secret, n, cycle),
    ),
    "a ceiling is reached and not passed": (
        "ledger",
        Accounts,
        "allow",
        lambda accounts, pinned, own, cost, lifetime: (
            accounts.reserved + cost < min(pinned.period, own.period)
            and accounts.lifetime_reserved + lifetime < min(pinned.lifetime, own.lifetime)
        ),
    ),
    "a reservoir keeps every value": (
        "ledger",
        client_draws,
        "replaces",
        lambda source, seen: True,
    ),
    "reports leave one resolution too early": (
        "outbox",
        sender,
        "due_time",
        lambda chain, plan, after: chain.event + chain.jitter + after,
    ),
    "any clock is believed": ("ledger", client_module, "plausible", lambda time, earliest: time),
    "2020 begins a millisecond early": ("ledger", client_module.Client, "_earliest", 1577836799999),
    "2100 begins a millisecond late": ("ledger", clocks, "LATEST", clocks.LATEST + 1),
    "the period before the ledger's is gone back to": (
        "ledger",
        Store,
        "earliest",
        property(lambda store: _EARLIEST(store) + _WEEK),
    ),
    "one reading is enough to go back": ("ledger", Store, "follow", _goes_back_unasked),
    "no period is ever closed": (
        "ledger",
        Accounts,
        "fold_other_periods",
        lambda accounts, connection: False,
    ),
    "chains of periods that have not come stay": (
        "outbox",
        outbox,
        "erase_after",
        lambda connection, period: 0,
    ),
    "a device that has lost its file goes back": (
        "guard",
        Store,
        "earliest",
        property(lambda store: (store.accounts.period - 1) * _WEEK),
    ),
    "the guard is not written": ("guard", sender.Store, "write_guard", lambda store: None),
    "counts end before the last edge": ("measures", measures, "_most", lambda m: _MOST(m) - 1),
    "ages count from the Epoch": ("measures", measures, "first_use", lambda *given: 0),
    "an answer is of the next period": ("measures", measures, "answer", _after_its_period),
    "uses go on into the next period": ("measures", Recorder, "_respond", _uses_of_any_period),
    "a response is drawn anew after every use": ("measures", Recorder, "note_use", _every_use),
    "a device answers only where it counted": (
        "measures",
        measures,
        "take",
        lambda connection: [row for row in _TAKE(connection) if any(row.state)],
    ),
    "documents are taken as they were served": (
        "exchange",
        http,
        "canonical",
        lambda document: json.dumps(document).encode(),
    ),
    "lengths are big-endian": (
        "exchange",
        batch,
        "join_messages",
        lambda messages: b"".join(len(each).to_bytes(4, "big") + each for each in messages),
    ),
    "a hint is not waited for": (
        "exchange",
        backoff,
        "delay",
        lambda failures, hint=None, old=backoff.delay: old(failures),
    ),
}


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_change_is_found(planted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, place, attribute, change = PLANTED[planted]
    monkeypatch.setattr(place, attribute, change)
    assert any(each is not None for each in PARTS[name].check())
