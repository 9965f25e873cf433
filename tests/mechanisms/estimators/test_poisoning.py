"""The laws that checks compare with, exactly; and what the checks leave alone."""

from __future__ import annotations

import itertools
from collections import defaultdict

import numpy as np
import pytest
from small import CASES, chain_law, encodings, level_law

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.chains.packed import PackedChain
from mechanisms.errors import ParameterError
from mechanisms.estimators.poisoning import alarms, findings, pair_columns
from mechanisms.items import Context
from mechanisms.number.gridded import HybridMechanism
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource
from mechanisms.vector.sampled_vector import SampledVector

THREE = {
    name: case.build()
    for name, case in CASES.items()
    if name.endswith("three") and not name.startswith(("split", "flips", "top"))
}


#: Some places of a Hadamard matrix are in, or out of, every output set; a grid has inputs that no
#: value of these becomes.
LOOSE = {"hadamard3-three", "hadamard4-three", "vector-grid-three"}


def repeated(laws, lower, upper, newest):
    """The chance of two equal outputs, and that of all, by the output of a level."""
    found = defaultdict(lambda: [0, 0])
    for law in laws:
        for outputs, chance in law.items():
            found[outputs[newest]][0] += chance * (outputs[lower] == outputs[upper])
            found[outputs[newest]][1] += chance
    return found


@pytest.mark.parametrize("name", THREE)
def test_laws_are_those_of_the_chain(name):
    """Every pair of levels, every cell: the bounds hold for all inputs, and are met."""
    chain, inputs = THREE[name].chain, encodings(THREE[name])
    joint = [chain_law(chain, each) for each in inputs]
    for lower, upper in itertools.combinations(range(3), 2):
        same = repeated(joint, lower, upper, upper)
        kept = [float(equal / whole) for equal, whole in same.values() if whole]
        low, high = chain.repeats(lower, upper)
        assert min(kept) == pytest.approx(low, rel=1e-9)
        assert max(kept) == pytest.approx(high, rel=1e-9)
    for lower, upper, newest in [(0, 1, 1), (0, 1, 2), (0, 2, 2), (1, 2, 2)]:
        given = repeated(joint, lower, upper, newest)
        known = chain.kept(lower, upper, newest)
        for output, (equal, whole) in given.items():
            law = chain.repeats(lower, upper)[0] if known is None else known[output]
            assert not whole or float(equal / whole) == pytest.approx(law, rel=1e-9)
    for level in range(3):
        shares = np.array([_hits(chain, level_law(law, level)) for law in joint])
        low, high = chain.limits(level)
        assert (shares >= low * (1 - 1e-9)).all()
        assert (shares <= high * (1 + 1e-9)).all()
        if name not in LOOSE:
            assert shares.min(axis=0) == pytest.approx(low, rel=1e-9)
            assert shares.max(axis=0) == pytest.approx(high, rel=1e-9)


def _hits(chain, law):
    """Return the mean of each hit of a report, of which there may be several answers."""
    total = 0.0
    for (output,), chance in law.items():
        payload = np.frombuffer(
            int(output).to_bytes(chain.payload_width, "little"), dtype=np.uint8
        ).reshape(1, -1)
        answers = chain.answers if isinstance(chain, PackedChain) else 1
        places = np.zeros((1, answers) if answers > 1 else 1, dtype=np.int64)
        hits, reports = chain.hits(chain.count(payload, places, 1)[0])
        total = total + float(chance) * hits / reports
    return total


def test_coins_have_their_law():
    for name, mechanism in THREE.items():
        if mechanism.strata == 1:
            continue
        n = 40_000
        ids = SeededSource(5).words(2 * n).reshape(n, 2)
        strata = mechanism.strata_of(ids, ids).reshape(-1)
        seen = np.bincount(strata, minlength=mechanism.strata) / strata.size
        law = mechanism.coin_law()
        assert law.sum() == pytest.approx(1)
        assert np.abs(seen - law).max() < 6.5 * 0.5 / np.sqrt(n), name


GRR = GeneralizedRandomizedResponse((0.5, 1.0, 2.0), 4)
NOTHING = np.zeros((3, 4), dtype=np.int64)


def pairs(number, equal):
    found = np.zeros((3, 6), dtype=np.int64)
    found[1, :2] = found[2, 2:4] = number, equal
    return found


def test_repeated_answers_are_found_at_the_stated_share():
    """1.8 % of 100,000 devices that repeat answers at the levels 0.5, 1 and 2, on average."""
    kept = [GRR.chain.repeats(0, 1)[0], GRR.chain.repeats(1, 2)[0]]
    honest, caught = pairs(100_000, 0), pairs(100_000, 0)
    for row, column, share in ((1, 1, kept[0]), (2, 3, kept[1])):
        honest[row, column] = round(100_000 * share)
        caught[row, column] = round(100_000 * (share + 0.0183 * (1 - share)))
    assert not [*alarms(GRR, NOTHING, honest, Context())]
    [found] = alarms(GRR, NOTHING, caught, Context())
    assert (found.kind, found.n) == ("levels", 200_000)
    assert found.expected < found.threshold <= found.statistic
    assert found.p_value <= 1e-9
    assert "repeat answers" in found.message


@pytest.mark.parametrize("number", [10, 100, 999])
def test_a_tag_that_different_payloads_share_is_no_alarm(number):
    """Some two of 999 pairs of filters share a tag of 32 bits with a probability of 2e-7."""
    rappor = Rappor((0.5, 1.0, 2.0), bits=128, hashes=2, cohorts=16)
    nothing = np.zeros((3, rappor.count_length), dtype=np.int64)
    one, two = np.zeros((2, 3, 6), dtype=np.int64)
    one[1, :2], two[1, :2] = (number, 1), (number, 2)
    assert number * 2.0**-32 > 1e-9
    assert [*alarms(rappor, nothing, one, Context())] == []
    assert [each.kind for each in alarms(rappor, nothing, two, Context())] == ["levels"]


HYBRID = HybridMechanism((0.5, 1.0, 2.0), points=17, missing=False)


@pytest.mark.parametrize(
    ("attack", "kinds"),
    [("none", []), ("repeat", ["levels"]), ("cancel", ["levels", "cells"]), ("highest", ["cells"])],
)
def test_what_depends_on_the_report_is_known_of_the_reports_there_are(attack, kinds):
    """20,000 numbers, of which one in ten is forged; one in five has no weakest level."""
    n, bad, source = 20_000, 2_000, SeededSource(31)
    values = np.random.default_rng(31).beta(2, 5, n)
    ids = source.words(2 * n).reshape(n, 2)
    payloads = HYBRID.randomize(values, ids, ids, source)
    forged = payloads[:bad]
    if attack == "repeat":
        forged[:] = forged[:, -1:]
    elif attack == "cancel":
        # Equal too often at one pair of levels, too seldom at the other.
        forged[:, 0], forged[:, 2] = forged[:, 1], (forged[:, 1] + 1) % HYBRID.chain.size
    elif attack == "highest":
        last = int(np.argmax(HYBRID.chain.matrix(2)[-1]))
        forged[:, :2, 0] = [HYBRID.chain.weaker(last, source) for _ in range(bad)]
        forged[:, 2] = last
    same = (payloads[:, 1:] == payloads[:, :-1])[..., 0]
    whole = np.arange(n) % 5 > 0
    seen = np.zeros((3, 6), dtype=np.int64)
    seen[1, :2] = whole.sum(), (same[:, 0] & whole).sum()
    seen[2, 2:4] = n, same[:, 1].sum()
    counts = HYBRID.tally(payloads[:, -1])
    assert [each.kind for each in alarms(HYBRID, counts, seen, Context())] == kinds


def test_few_reports_are_left_alone():
    assert [*alarms(GRR, NOTHING, pairs(10, 10), Context())] == []
    full = np.array([[0] * 4, [0] * 4, [0, 0, 0, 900]])
    kinds = [each.kind for each in alarms(GRR, full, pairs(400, 400), Context())]
    assert kinds == ["levels", "cells"]
    assert [*findings(GRR, full, pairs(400, 400), Context(least=901))] == []
    # 800 pairs are of 400 chains, each of which has two.
    assert [*findings(GRR, NOTHING, pairs(400, 400), Context(least=401))] == []


@pytest.mark.parametrize(("others", "seen"), [(0, True), (1, False), (19, False), (20, True)])
def test_an_answer_about_a_coordinate_is_left_alone_beside_few_others_about_it(others, seen):
    """The mean of the coordinate joins both; what is left of it beside the alarm is the others."""
    vector = SampledVector(1.0, dimensions=4, sampled=1, bits=2)
    table = np.full((1, 8, 2), 50, dtype=np.int64)
    table[0, 0] = 0, 100
    table[0, 1] = others, 0
    pairs, context = np.zeros((1, pair_columns(1)), dtype=np.int64), Context(least=20)
    found = {each.kind for each in alarms(vector, table.reshape(1, -1), pairs, context)}
    assert ("cells" in found) is seen


def test_reports_that_depend_on_each_other_weigh_less():
    """All reports of a pseudonym have one cohort; those of a permanent response its noise."""
    rappor = Rappor((1.0,), bits=8, hashes=1, cohorts=4)
    table = np.zeros((1, 4, 9), dtype=np.int64)
    table[0, :, 8] = (400, 200, 200, 200)
    table[0, :, :8] = table[0, :, 8:] * 3 // 4
    none = np.zeros((1, 2), dtype=np.int64)

    def found(limit, together):
        context = Context(limit=limit)
        listed = findings(rappor, table.reshape(1, -1), none, context, together)
        return {each.kind: each for each in listed}

    alone, dependent = found(1, 1), found(8, 8)
    for kind in ("coins", "bits", "cells"):
        assert alone[kind].p_value < dependent[kind].p_value
    assert alone["coins"].p_value < 1e-9 < dependent["coins"].p_value


@pytest.mark.parametrize("together", [1, 2, 13, 52])
def test_the_same_answers_sent_again_are_no_more_evidence(together):
    """An impossible mixture is seen alone, and as often as a permanent response may be sent."""
    counts = np.zeros((3, HYBRID.count_length), dtype=np.int64)
    shares = HYBRID.chain.matrix(2).mean(axis=0)
    counts[2] = np.round(10_000 * shares * (1 + 0.3 * np.cos(np.arange(len(shares)))))
    none = np.zeros((3, 6), dtype=np.int64)
    (alone,) = findings(HYBRID, counts, none, Context())
    (again,) = findings(HYBRID, together * counts, none, Context(), together)
    assert 1e-30 < alone.p_value < 1e-3
    assert again.p_value == pytest.approx(alone.p_value, rel=0.01)
    assert again.threshold == pytest.approx(alone.threshold * together, rel=0.01)


def test_what_are_no_pairs_is_refused():
    for bad in (np.zeros((3, 4)), -pairs(1, 1)):
        with pytest.raises(ParameterError, match="pairs must be"):
            list(findings(GRR, NOTHING, bad, Context()))
    with pytest.raises(ParameterError, match="together"):
        list(findings(GRR, NOTHING, pairs(1, 1), Context(), 0))
