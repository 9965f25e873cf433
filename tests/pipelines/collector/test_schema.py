"""The collector does what /openapi.json says, as schemathesis finds it."""

from __future__ import annotations

import json

import pytest
from described_interfaces import check_described
from live_collector import LiveCollector

pytestmark = pytest.mark.slow


@pytest.mark.real_randomness
def test_the_collector_keeps_to_its_description(tmp_path):
    with LiveCollector(tmp_path) as collector:
        answer = collector.ask(
            b"GET /openapi.json HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
        )
        described = json.loads(answer.partition(b"\r\n\r\n")[2])
        selected = len(described["paths"])
        check_described(collector.url, tmp_path, seed=14, examples=50, selected=selected)
        assert "warning" not in collector.output(), collector.output()
