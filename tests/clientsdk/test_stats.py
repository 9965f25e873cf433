"""Counts that a client keeps of itself, in process and for Prometheus."""

from __future__ import annotations

import dataclasses
import json
import os

import pytest
from device_plans import metric, plan, seeded
from prometheus_client import CollectorRegistry, generate_latest

from clientsdk.prometheus import ClientCollector
from clientsdk.testing import SeededClient


@pytest.fixture
def client(tmp_path):
    return seeded(
        plan(metric("colour"), metric("shape", "every", limit=2)), state=tmp_path / "device.db"
    )


def test_a_store_that_cannot_be_read_is_said_to_be_one(client):
    client.record("colour", "a")
    client.close()
    stats = client.stats()
    assert (stats.recorded, stats.due, stats.outbox_bytes) == ({"colour": 1}, None, None)
    logged = json.loads(json.dumps(dataclasses.asdict(stats)))
    assert (logged["outcomes"], logged["lapses"]["late"]) == ({"accepted": {"colour": 1}}, 0)


@pytest.mark.real_randomness
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_of_a_fork_begins_to_count_anew(client):
    client.record("colour", "a")
    pid = os.fork()
    if pid == 0:
        os._exit(0 if client.stats().outcomes == {} else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert client.stats().recorded == {"colour": 1}


def test_prometheus_is_told_the_same_under_labels_of_the_plan_alone(client, tmp_path):
    other = SeededClient(client.plan, seed=2, clock=client.clock)
    registry = CollectorRegistry()
    registry.register(ClientCollector(client, other))
    for each in (client, client, other):
        each.record("colour", "a")
    client.clock.advance(hours=3)
    client.flush()
    lines = generate_latest(registry).decode().splitlines()
    said = [line for line in lines if not line.startswith("#")]
    assert said[:2] == [
        'sotto_client_values_total{metric="colour",outcome="accepted"} 2.0',
        'sotto_client_values_total{metric="colour",outcome="period_full"} 1.0',
    ]
    assert "sotto_client_sent_total 1.0" in said
    assert "sotto_client_send_errors_total 0.0" in said
    assert "sotto_client_due 1.0" in said
    assert "sotto_client_outbox_chains 2.0" in said
    assert "sotto_client_last_send_timestamp_seconds 1.7539308e+09" in said
    assert 'sotto_client_lapsed_total{reason="late"} 0.0' in said
    client.close()
    assert "sotto_client_unreadable_stores 1.0" in generate_latest(registry).decode()
    assert b'sotto_client_lapsed_total{reason="late"} 0.0' in generate_latest(ClientCollector())
