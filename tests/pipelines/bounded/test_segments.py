"""Segments from devices to results: counts by segment add up, and few reports are withheld."""

from __future__ import annotations

from collections import defaultdict

import pytest
from committed_states import projected
from device_plans import START, VAST, metric, number, plan, string
from report_logs import Sent, write

from clientsdk.testing import FakeClock, SeededClient
from pipelines.bounded.run import aggregate

pytestmark = pytest.mark.slow

SEGMENTS = [{"name": "os", "values": ["linux", "mac"]}, {"name": "app", "values": ["1", "2"]}]
PLAN = plan(
    metric("colour"), number("size"), string("word"), ceilings=VAST, segments=SEGMENTS, shards=4
)
#: Devices by what they are: one combination of few, beside many.
FLEET = {
    ("linux", "1"): 60,
    ("linux", "2"): 50,
    ("mac", "1"): 45,
    ("mac", "2"): 4,
    ("plan9", "2"): 30,
}


def sent() -> list[Sent]:
    found, seed = [], 0
    for (os, app), devices in FLEET.items():
        for _ in range(devices):
            seed += 1
            segments = {"os": os, "app": app}
            client = SeededClient(PLAN, seed=seed, clock=FakeClock(START), segments=segments)
            client.record("colour", "abc"[seed % 3])
            client.record("size", seed % 10)
            client.record("word", "home")
            for _ in range(4):
                client.clock.advance(days=3)
                client.flush()
                now = client.clock.now
                found += [Sent(now, body) for _, body in client.publisher.messages]
                client.publisher.messages.clear()
            client.close()
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("segments")
    log, state = write(folder / "log", sent()), folder / "state"
    words = {PLAN.fingerprint: {"word": ("home", "away")}}
    found = aggregate(log, state, [PLAN], candidates=words)
    assert found.rejects == {}
    stored = projected(state)
    return stored["windows"], stored["estimates"]


def attributes(segment: object) -> dict[str, str]:
    return dict(part.split("=") for part in str(segment).split(",") if part)


def test_reports_of_segments_add_up_to_the_total_to_the_integer(results):
    windows, _ = results
    by_metric = defaultdict(dict)
    for row in windows:
        by_metric[row["metric"]][row["segment"]] = row
    assert set(by_metric) == {"colour", "size", "word"}
    for name, rows in by_metric.items():
        total = rows[""]
        assert total["n"] == sum(FLEET.values())
        for named in ({"os"}, {"app"}, {"os", "app"}):
            # The row of a union repeats its parts.
            parts = [
                row
                for key, row in rows.items()
                if set(attributes(key)) == named and " or " not in key
            ]
            if named == {"os", "app"} and name == "word":
                assert parts == []
                continue
            assert sum(row["n"] for row in parts) == total["n"]
            levels = zip(*(row["reports_by_level"] for row in parts), strict=True)
            assert [*map(sum, levels)] == total["reports_by_level"]
    assert by_metric["colour"]["os=mac,app=2"]["n"] == 4
    assert by_metric["colour"]["os=other"]["n"] == 30
    assert "os=other,app=1" not in by_metric["colour"]


def test_a_segment_of_few_reports_is_withheld_and_what_it_would_follow_from(results):
    windows, estimates = results
    withheld = {row["segment"]: row["withheld"] for row in windows if row["metric"] == "colour"}
    assert withheld[""] is withheld["os=mac"] is withheld["app=2"] is None
    assert withheld["os=mac,app=2"] == "4 reports, the plan asks for 20"
    others = {
        key: why for key, why in withheld.items() if why is not None and key != "os=mac,app=2"
    }
    # A rectangle of cells, of which the sums of rows and columns are published.
    assert set(others) == {"os=mac,app=1", "os=linux,app=1", "os=linux,app=2"}
    assert set(others.values()) == {
        "with it, the estimate of a segment with too few reports could be computed"
    }
    for row in estimates:
        if row["segment"] in withheld and row["metric"] == "colour":
            assert row["withheld"] == withheld[row["segment"]]
            assert (row["value"] is None) == (row["withheld"] is not None)
