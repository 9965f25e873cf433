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


def constant(mechanism, epsilons=(1_000_000, 2_000_000), **fields):
    """Return a constant metric of a mechanism."""
    ladder = [{"epsilon": epsilon, "after": 0} for epsilon in epsilons]
    repeat = {"kind": "constant", "limit": 1}
    document = metric_document("model", mechanism=mechanism, repeat=repeat, ladder=ladder, **fields)
    return compiled(metrics=[document]).metrics[0]


def category(name, size, *epsilons, **parameters):
    """Return a constant category of so many symbols."""
    mechanism = {"name": name, "domain_size": size, **parameters}
    labels = [f"v{number}" for number in range(size - 1)]
    return constant(mechanism, epsilons or (1_000_000, 2_000_000), domain=labels)


@pytest.mark.parametrize("levels", [(1_000_000, 2_000_000), (500_000, 1_000_000, 4_000_000)])
def test_where_a_report_is_kept_or_drawn_anew_it_is_found_if_both_were_kept(levels):
    """No two devices have the same one of so many outputs by chance."""
    metric = category("subset", 65, *levels, subset_size=12)
    # From the last level to the last that is sent.
    both = float(Fraction(metric.mechanism.chain.keeps[-1], 1 << 64)) ** 2
    spread = (both * (1 - both) / DEVICES) ** 0.5
    assert recognized(metric) == pytest.approx(both, abs=4 * spread)


def test_more_bits_and_stronger_reports_tell_more():
    widths = [recognized(category("sue", size)) for size in (8, 64, 512)]
    assert widths == sorted(widths)
    assert widths[0] < 0.02
    assert widths[-1] > 0.9
    sent = [recognized(category("oue", 64, sent, 4_000_000)) for sent in (500_000, 3_500_000)]
    assert sent[0] < 0.02 < sent[1]


@pytest.mark.parametrize("name", ["sue", "oue", "subset"])
def test_reports_of_other_responses_are_found_no_better_than_by_a_guess(monkeypatch, name):
    metric = category(name, 64, **({"subset_size": 12} if name == "subset" else {}))
    kind = type(metric.mechanism)
    real, source = kind.weaker, SeededSource(7)

    def of_another(self, last, given):
        return real(self, self.draw_last(0, bytes(16), bytes(16), source), given)

    assert recognized(metric) > 20 * GUESS
    monkeypatch.setattr(kind, "weaker", of_another)
    assert recognized(metric) < 5 * GUESS


def test_the_weights_are_those_of_the_likelihood():
    """Counting equal bits instead finds fewer where a set bit is rare, as it is in oue."""
    metric = category("oue", 256, 2_000_000, 4_000_000)
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
    much, little = category("sue", 128), category("grr", 4)
    assert recognized(much) == recognized(much)
    (line,) = warnings([little, much])
    assert f"in {recognized(much):.1%} of trials" in line
    assert recognized(little) < MUCH
    assert warnings([little]) == []


NUMBER = {"domain": None, "outside": "clip", "range": [0.0, 1.0]}
PLAIN = {"domain": None, "outside": None}


@pytest.mark.parametrize(
    ("kind", "fields", "mechanism"),
    [
        ("boolean", PLAIN, {"name": "grr", "domain_size": 2}),
        ("number", NUMBER, {"name": "duchi", "missing": False}),
        ("string", PLAIN, {"name": "rappor", "bits": 256, "hashes": 2, "cohorts": 1}),
    ],
)
def test_it_can_be_said_of_every_type(kind, fields, mechanism):
    assert (recognized(constant(mechanism, type=kind, **fields)) > 0.5) is (kind == "string")
