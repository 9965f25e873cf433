"""The example of OpenTelemetry prints estimates of what its server did."""

from __future__ import annotations

import re

import pytest
from statistical import check_normal

from examples import otel


@pytest.mark.slow
def test_requests_become_estimates(capsys: pytest.CaptureFixture[str]) -> None:
    otel.main()
    printed = capsys.readouterr().out
    found = re.findall(r"^ *(200|404|other) +([\d.-]+) +([\d.-]+) to ([\d.-]+)", printed, re.M)
    assert [name for name, *_ in found] == ["200", "404", "other"]
    for (name, value, low, high), true in zip(found[:2], (0.25, 0.75), strict=True):
        error = (float(high) - float(low)) / 2 / 1.96
        check_normal(float(value), true, error, label=name)
    figures = r"[\d.]+ +[\d.]+ to [\d.]+ +[\d.]+( +[\d.]+){2} +400"
    assert re.search(rf"^ *mean \(ms\) +{figures}$", printed, re.M)
