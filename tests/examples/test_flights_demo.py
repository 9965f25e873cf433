"""The demo itself, with a few aircraft: everything that it finds is as it should be."""

from __future__ import annotations

from pathlib import Path

import pytest
from statistical import check_at_least

from examples.flights.demo import Demo, run
from sotto.errors import ParameterError


def test_a_foreign_directory_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    with pytest.raises(ParameterError, match="not empty"):
        Demo(tmp_path).start_afresh()
    assert (tmp_path / "precious").exists()


def test_a_former_run_is_removed(tmp_path: Path) -> None:
    demo = Demo(tmp_path / "demo")
    demo.start_afresh()
    (tmp_path / "demo" / "left").touch()
    demo.start_afresh()
    assert [path.name for path in (tmp_path / "demo").iterdir()] == [".sotto-demo"]


@pytest.mark.real_randomness
@pytest.mark.slow
def test_a_small_fleet(tmp_path: Path) -> None:
    # In the week that counts some 30 have their turn; fewer than two only once in 10**14 runs.
    findings = run(Demo(tmp_path / "demo", processes=1, aircraft=120))
    assert findings.devices == 120
    assert findings.reports == 3 * findings.chains
    # Both ledgers, week by week and pseudonym by pseudonym.
    assert all(period.difference == 0 for period in findings.ledger)
    assert sum(period.withheld for period in findings.ledger) == 20_000_000
    equal, pseudonyms = findings.agreeing
    assert equal == pseudonyms - 2
    assert {one.reason for one in findings.revocations} == {"over_budget", "equivocation"}
    assert all(one.spent and not one.accepted for one in findings.revocations)
    same, windows = findings.equal_windows
    assert same == windows > 40  # every draw: the flights decide how many there are.
    # Everything planted is in quarantine, and nothing else.
    assert findings.quarantine
    assert all(one.as_planted for one in findings.quarantine)
    # Intervals of one window depend on each other: some 350 say as much as 100 that do not.
    together = findings.coverage[-1]
    assert together.total > 100  # every draw: each window has several intervals.
    check_at_least(100 * together.hits // together.total, 100, 0.95)
    for releases in findings.sharpening:
        assert releases[-1].by_level[:-1] == (0, 0)
    # every draw: charts and tables have a size.
    assert (tmp_path / "demo" / "report.html").stat().st_size > 100_000
    # every draw: as above.
    assert (tmp_path / "demo" / "results.html").stat().st_size > 100_000
