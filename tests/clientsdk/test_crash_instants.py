"""Killed with -9 before each single statement, and full disks; at random: ``test_kills``."""

from __future__ import annotations

import pytest
from scripts import KILLS, run

#: Lives a life in a child that is killed at its n-th statement, for every n, and goes on after it.
#: What a script adds: METRICS, ``live`` (until killed) and ``check`` (of what a crash left).
INSTANTS = """
import sqlite3
from contextlib import closing
from clientsdk.ledger import read_file
from scripts import published

LATE = 5

def open_at(folder, now):
    publisher = EmbeddedLogPublisher(folder / "log", fsync="never")
    return device(*METRICS, now=now, state=folder / "device.db", publisher=publisher)

def sent(folder):
    return reports(published(folder / "log"))

def rows(folder, query):
    with closing(sqlite3.connect(folder / "device.db")) as connection:
        return connection.execute(query).fetchall()

def invariants(folder):
    ledger = read_file(folder / "device.db")
    chains = {(report.metric, report.chain): report.event // WEEK for report in sent(folder)}
    compiled = plan(*METRICS, ceilings=VAST)
    numbers = {f"trial/{each.name}": each.index for each in compiled.metrics}
    for pending in ledger.pending:
        chains[numbers[pending.metric], bytes.fromhex(pending.chain)] = pending.period
    # One chain a metric and period, whatever was sent and is still to be.
    assert len(chains) == len({(metric, period) for (metric, _), period in chains.items()})
    periods = {report.pseudonym: report.event // WEEK for report in sent(folder)}
    aggregator = {periods[name]: cost
                  for name, cost in counted(sent(folder), [compiled]).items()}
    for period in ledger.periods:
        assert aggregator.pop(period.number, 0) <= period.spent <= period.reserved
    assert not aggregator
    return ledger

def finish(folder, now):
    client = open_at(folder, now)
    while (due := client.next_due()) is not None:
        client.clock.now = max(client.clock.now, due)
        assert client.flush().error is None
    ledger = client.ledger()
    client.close()
    return ledger

def begin(folder):
    # Its consent is given before, so that statements are those of what is looked at.
    open_at(folder, START).close()

number = 0
for folder, _ in instants(path, begin, lambda folder: open_at(folder, START), live):
    check(folder, invariants(folder))
    client = open_at(folder, START + LATE * WEEK)
    live(client)
    client.close()
    ledger = finish(folder, START + (LATE + 1) * WEEK)
    check(folder, ledger)
    assert invariants(folder) == ledger
    number += 1
print(number)
"""

CONSTANT = """
METRICS = [metric("model", "constant", ladder=CONSTANT)]

def live(client):
    for _ in range(2):
        assert client.record("model", "a") is Outcome.ACCEPTED
        client.clock.advance(hours=3)
        assert client.flush().error is None
        client.clock.advance(days=7)

def check(folder, ledger):
    last = plan(*METRICS).metrics[0].mechanism.certified(2)
    found = rows(folder, "SELECT cost, response <> x'' FROM permanent")
    # Never a response without its charge, never a charge without the response, never two.
    assert found in ([], [(last, 1)]), found
    assert ledger.reserved == ledger.spent == (last if found else 0)
    assert bool(ledger.periods) <= bool(found)
"""

TOP_ITEM = """
METRICS = [items()]

def live(client):
    assert client.record("app", "a") is Outcome.ACCEPTED
    assert client.record("app", "b") is Outcome.ACCEPTED
    client.clock.advance(days=7)
    for _ in range(3):
        assert client.flush().error is None
        client.clock.advance(hours=25)

def check(folder, ledger):
    cost = plan(*METRICS).metrics[0].cost
    for period in ledger.periods:
        assert period.reserved == cost
"""


@pytest.mark.real_randomness
@pytest.mark.slow
@pytest.mark.parametrize(("life", "least"), [(CONSTANT, 40), (TOP_ITEM, 30)])
def test_killed_before_every_statement(tmp_path, life, least):
    # every draw: each statement is a step, whatever is drawn.
    assert int(run(KILLS + life + INSTANTS, tmp_path)) > least
