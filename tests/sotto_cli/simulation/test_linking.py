"""How well reports of a constant metric pick another of the same device: known laws, and faults."""

from __future__ import annotations

from fractions import Fraction

import pytest
from agreed_plans import compiled, metric_document

from mechanisms.base import Mechanism
from mechanisms.testing import SeededSource
from sotto_cli.simulation.linking import DEVICES, MUCH, recognized, warnings

pytestmark = pytest.mark.slow

GUESS = 1 / DEVICES


def constant(name, size, epsilons=(1_000_000, 2_000_000), **parameters):
    """A constant category of so many symbols."""
    labels = [f"v{number}" for number in range(size - 1)]
    ladder = [{"epsilon": epsilon, "after": 0} for epsilon in epsilons]
    document = metric_document(
        "model",
        domain=labels,
        outside="other",
        missing=False,
        mechanism={"name": name, "domain_size": size, **parameters},
        repeat={"kind": "constant", "limit": 1},
        ladder=ladder,
    )
    return compiled(metrics=[document]).metrics[0]


@pytest.mark.parametrize("levels", [(1_000_000, 2_000_000), (500_000, 1_000_000, 4_000_000)])
def test_where_a_report_is_kept_or_drawn_anew_it_is_found_if_both_were_kept(levels):
    """No two devices have the same one of so many outputs by chance."""
    metric = constant("subset", 65, levels, subset_size=12)
    # From the last level to the last that is sent.
    both = float(Fraction(metric.mechanism.chain.keeps[-1], 1 << 64)) ** 2
    spread = (both * (1 - both) / DEVICES) ** 0.5
    assert recognized(metric) == pytest.approx(both, abs=4 * spread)


def test_more_bits_and_stronger_reports_tell_more():
    widths = [recognized(constant("sue", size)) for size in (8, 64, 512)]
    assert widths == sorted(widths)
    assert widths[0] < 0.02
    assert widths[-1] > 0.9
    sent = [recognized(constant("oue", 64, (sent, 4_000_000))) for sent in (500_000, 3_500_000)]
    assert sent[0] < 0.02 < sent[1]


@pytest.mark.parametrize("name", ["sue", "oue", "subset"])
def test_reports_of_other_responses_are_found_no_better_than_by_a_guess(monkeypatch, name):
    metric = constant(name, 64, **({"subset_size": 12} if name == "subset" else {}))
    kind = type(metric.mechanism)
    real, source = kind.weaker, SeededSource(7)

    def of_another(self, last, given):
        return real(self, self.draw_last(0, bytes(16), bytes(16), source), given)

    assert recognized(metric) > 20 * GUESS
    monkeypatch.setattr(kind, "weaker", of_another)
    assert recognized(metric) < 5 * GUESS


def test_the_weights_are_those_of_the_likelihood():
    """Counting equal bits instead finds fewer where a set bit is rare, as it is in oue."""
    metric = constant("oue", 256, (2_000_000, 4_000_000))
    mechanism, source = metric.mechanism, SeededSource(19)
    assert isinstance(mechanism, Mechanism)
    reports = []
    for _ in range(DEVICES):
        response = mechanism.draw_last(0, bytes(16), bytes(16), source)
        drawn = (mechanism.weaker(response, source)[-1] for _ in range(2))
        reports.append([int.from_bytes(each, "little") for each in drawn])
    hits = sum(
        min(reports, key=lambda rival: (one ^ rival[1]).bit_count())[1] == two
        for one, two in reports[:300]
    )
    assert recognized(metric) > 1.2 * hits / 300


def test_the_same_plan_gets_the_same_figure_and_only_much_is_warned_of():
    much, little = constant("sue", 128), constant("grr", 4)
    assert recognized(much) == recognized(much)
    (line,) = warnings([little, much])
    assert f"in {recognized(much):.1%} of trials" in line
    assert recognized(little) < MUCH
    assert warnings([little]) == []


@pytest.mark.parametrize(
    "changes",
    [
        {"type": "boolean", "domain": None, "outside": None},
        {"type": "number", "domain": None, "outside": "clip", "range": [0.0, 1.0]},
        {"type": "string", "domain": None, "outside": None},
    ],
)
def test_it_can_be_said_of_every_type(changes):
    mechanism = {
        "boolean": {"name": "grr", "domain_size": 2},
        "number": {"name": "duchi", "missing": False},
        "string": {"name": "rappor", "bits": 256, "hashes": 2, "cohorts": 1},
    }[changes["type"]]
    ladder = [{"epsilon": epsilon, "after": 0} for epsilon in (1_000_000, 2_000_000)]
    document = metric_document(
        "x",
        mechanism=mechanism,
        missing=False,
        repeat={"kind": "constant", "limit": 1},
        ladder=ladder,
        **changes,
    )
    document = {name: value for name, value in document.items() if value is not None}
    found = recognized(compiled(metrics=[document]).metrics[0])
    assert (found > 0.5) is (changes["type"] == "string")
