"""Framing: who has seen an honest device's messages contradicts it, to have it revoked.

He may append whatever he wants, before or after what he has seen, and repeat it. Nothing changes if
messages are signed; no device is left if they are not.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from bounded_streams import command, outcome_of
from committed_states import counted, period_totals, projected, rejects
from report_logs import Sent, write
from signed_logs import (
    ATTACKS,
    BEGIN,
    OPEN,
    OTHER,
    SIGNED,
    UNSIGNED,
    Attack,
    attacked,
    contradicting,
    honest,
    spliced,
)
from step_plans import DAY, PERIOD
from streaming_logs import rows_of, shard_said

from pipelines.aggregation.counts import WindowKey
from pipelines.bounded.run import RunResult, aggregate
from pipelines.requeue.state import requeue
from sotto.errors import ParameterError
from sotto.plan.compiled import CompiledPlan
from sotto.wire.format import encode_message
from sotto.wire.reasons import Reason
from sotto_cli import main

pytestmark = pytest.mark.slow

DEVICES = 60
PLANS = [SIGNED, OTHER, OPEN]


class Aggregated(NamedTuple):
    """The results of a run: tables and counts are equal bit by bit or not at all."""

    result: RunResult
    tables: dict[str, list[dict[str, object]]]
    counts: dict[WindowKey, list[list[int]]]
    audits: dict[int, object]


def aggregated(
    folder: Path, sent: Sequence[Sent], plans: list[CompiledPlan], lanes: int = 2, **more: int
) -> Aggregated:
    state = folder / "state"
    result = aggregate(write(folder / "log", list(sent), lanes), state, plans, **more)
    tables = projected(state, without=("revision",))
    chosen = {name: tables[name] for name in ("windows", "estimates")}
    return Aggregated(result, chosen, counted(state), dict(period_totals(state)))


@pytest.fixture(scope="module")
def sent():
    return honest(SIGNED, DEVICES)


@pytest.fixture(scope="module")
def truth(sent, tmp_path_factory):
    found = aggregated(tmp_path_factory.mktemp("honest"), sent, PLANS)
    assert (found.result.tally.counted, found.result.rejects) == (3 * DEVICES, {})
    return found


def attacks_on(sent: Sequence[Sent]) -> dict[str, Attack]:
    return {**ATTACKS, "spliced": partial(spliced, others=[one.message for one in sent])}


def check_unmoved(found: Aggregated, truth: Aggregated) -> None:
    """Nobody is revoked, and every estimate is what it would be without the attacker."""
    assert found.result.tally.revoked == 0
    assert found.counts == truth.counts
    assert found.tables == truth.tables
    assert found.audits == truth.audits


def test_a_signed_fleet_cannot_be_framed_in_any_order_and_however_runs_are_cut(
    sent, truth, tmp_path
):
    source = random.Random(1)
    made = attacked(sent, [*attacks_on(sent).values()], seed=1)
    known = {one.message for one in sent}
    shuffled = [
        # An attacker may be faster than a device, and see what it sends elsewhere.
        one if one.message in known else Sent(source.randrange(BEGIN, BEGIN + PERIOD), one.message)
        for one in sent + made
    ]
    source.shuffle(shuffled)
    found = aggregated(tmp_path, shuffled, PLANS, lanes=3, max_reports=6000)
    check_unmoved(found, truth)
    assert found.result.generation > 1


def revoking(victim: Sequence[Sent]) -> list[Sent]:
    """Return what has the device revoked that sent these, if it is not ignored."""
    return [
        Sent(
            BEGIN + PERIOD + 2 * DAY,
            encode_message(one.message[8:40], shard_said(one.message), contradicting(one.message)),
        )
        for one in victim
    ]


@pytest.mark.parametrize(("plan", "learns"), [(UNSIGNED, True), (SIGNED, False)])
def test_publishing_revoking_and_subtracting(plan, learns, tmp_path):
    """The difference between two publications is the payload of the one who was revoked."""
    sent = honest(plan, DEVICES)
    chosen = pseudonym(sent[0].message)
    victim = [one for one in sent if pseudonym(one.message) == chosen]
    log, state = tmp_path / "log", tmp_path / "state"
    aggregate(write(log, sent), state, [plan])
    first = {key: np.array(matrix) for key, matrix in counted(state).items()}
    write(log, revoking(victim))
    aggregate(log, state, [plan])
    second = {key: np.array(matrix) for key, matrix in counted(state).items()}
    lost = sum(np.abs(first[key] - second.get(key, 0)).sum() for key in first)
    assert (lost > 0) == learns


def pseudonym(message: bytes) -> bytes:
    return message[49:65]


def test_requeueing_lets_nothing_in(sent, truth, tmp_path):
    """A message that came before its plan was known is verified when it is taken again."""
    made = attacked(sent, [*attacks_on(sent).values()])
    state = tmp_path / "state"
    aggregate(write(tmp_path / "log", sent + made), state, [OPEN])
    assert counted(state) == {}
    requeue(state, PLANS)
    assert counted(state) == truth.counts
    assert period_totals(state) == truth.audits
    kept = [each for each in rejects(state) if each.reason is Reason.UNAUTHENTICATED]
    assert len(kept) > len(sent)
    with pytest.raises(ParameterError, match="unauthenticated"):
        requeue(state, PLANS, reasons=[Reason.UNAUTHENTICATED])
    assert requeue(state, PLANS).size == 0


def test_a_streaming_pipeline_comes_to_the_same(sent, truth, tmp_path):
    write(tmp_path / "log", sent + attacked(sent, [*attacks_on(sent).values()]))
    assert main(command(tmp_path, PLANS)) == 0
    outcome = outcome_of(tmp_path)
    assert outcome.windows == rows_of(truth.tables["windows"])
    assert outcome.estimates == rows_of(truth.tables["estimates"])
    assert outcome.fates["revoked"] == 0
    reasons = {each.reason for each in outcome.poison}
    assert reasons >= {Reason.UNAUTHENTICATED, Reason.MALFORMED}


def test_aggregate_warns_where_only_some_plans_have_signatures(sent, tmp_path, capsys):
    log = write(tmp_path / "log", sent)
    for plans, warned in (([SIGNED, OTHER], False), (PLANS, True)):
        given = []
        for number, plan in enumerate(plans):
            path = tmp_path / f"{number}.json"
            path.write_bytes(plan.to_json())
            given += ["--plan", str(path)]
        state = str(tmp_path / f"state-{len(plans)}")
        assert main(["aggregate", "--log", str(log), "--state", state, *given]) == 0
        err = capsys.readouterr().err
        assert ("open version 1 of tests.example has no signatures" in err) == warned


def test_a_run_says_what_is_missing(sent, tmp_path, monkeypatch):
    """Before anything is undertaken, instead of in the middle."""
    for name in [each for each in sys.modules if each.partition(".")[0] == "cryptography"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography", None)
    log, state = write(tmp_path / "log", sent), tmp_path / "state"
    run = aggregate(log, state, [OPEN])
    assert run.rejects == {"unknown_plan": len(sent)}
    assert run.lines()[-1] == "warning: no report was counted: sotto quarantine says why"
    for take in (partial(aggregate, log), requeue):
        with pytest.raises(ModuleNotFoundError, match=r"sottovoce-tools\[signatures\]"):
            take(state, PLANS)
