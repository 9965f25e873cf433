"""One more forged report: no estimate moves further than it states, and the worst one does so."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from small import CASES, ids, values

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.category.hadamard import HadamardResponse
from mechanisms.category.local_hashing import LocalHashing
from mechanisms.category.unary import OptimizedUnaryEncoding
from mechanisms.estimate import forged as share_forged
from mechanisms.estimators.frequency import answer_ends
from mechanisms.items import Context
from mechanisms.number.gridded import DuchiOneBit, HybridMechanism
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource

pytestmark = pytest.mark.slow

THREE = {name: case for name, case in CASES.items() if "three" in name}
#: Reports of each level, far from a number at which more strata are told apart.
REPORTS = np.array([60, 90, 150])
#: Different reports that are tried at the weakest level, at most; a tenth at the others.
TRIED = 400
#: Estimates of strings are regressions, and state what a report does but for terms in 1/n².
MANY = 200


def context_of(mechanism):
    missing = getattr(mechanism, "missing", False)
    return Context(
        labels=tuple(f"value {x}" for x in range(getattr(mechanism, "domain_size", 0))),
        candidates=("string 0", "string 1"),
        missing=missing and mechanism.name != "rappor",
        range=(-2.0, 3.0),
    )


def items_of(mechanism, counts):
    found = mechanism.estimate(counts, context_of(mechanism))
    return {(each.kind, each.item): each.estimate for each in found}


def honest(mechanism):
    """Return counts of honest reports of three levels."""
    by_level = REPORTS * (MANY if mechanism.name == "rappor" else 1)
    n, levels = by_level.sum(), np.repeat(np.arange(3), by_level)
    drawn = mechanism.randomize(values(mechanism, n)[1], ids(n), ids(n), SeededSource(7))
    return mechanism.accumulate(drawn[np.arange(n), levels], ids(n), ids(n), levels, 3)


def forged(mechanism):
    """Return what reports add to counts: all payloads, with many coins, each sort once."""
    width, chain = mechanism.payload_width, mechanism.chain
    outputs = [each for each in range(256**width) if chain.contains(each)]
    payloads = np.array([list(each.to_bytes(width, "little")) for each in outputs], dtype=np.uint8)
    coins = ids(1 if mechanism.coins == "none" else 400, seed=3)
    payloads, coins = np.repeat(payloads, len(coins), axis=0), np.tile(coins, (len(outputs), 1))
    each = np.arange(len(coins))
    return np.unique(mechanism.accumulate(payloads, coins, coins, each, len(each)), axis=0)


@pytest.mark.parametrize("name", THREE)
def test_no_report_moves_an_estimate_further_than_stated_and_the_worst_does(name):
    mechanism = THREE[name].build()
    counts, reports = honest(mechanism), forged(mechanism)
    reports = np.random.default_rng(5).permutation(reports)[:TRIED]
    before = items_of(mechanism, counts)
    stated = {key: each.one_more() for key, each in before.items()}
    moved = {key: [] for key, each in stated.items() if each is not None}
    assert moved or mechanism.missing
    for level, part in enumerate((reports, *[reports[: TRIED // 10]] * 2)):
        for report in part:
            more = counts.copy()
            more[level] += report
            after = items_of(mechanism, more)
            for key, moves in moved.items():
                moves.append(after[key].value - before[key].value)
    slack = 2e-3 if mechanism.name == "rappor" else 1e-9
    for key, moves in moved.items():
        ends = -min(moves), max(moves)
        assert max(ends) > 1 / (counts.sum() + 1)
        assert ends == pytest.approx(stated[key], rel=slack), key


def test_quotients_and_most_likely_shares_state_nothing():
    for name in ("threshold-missing", "hybrid-missing", "brr4"):
        mechanism = THREE[f"{name}-three"].build()
        found = items_of(mechanism, honest(mechanism))
        stated = {kind for (kind, _), each in found.items() if each.one_more()}
        assert stated
        assert not stated & {"quantile", "bit", "mean" if mechanism.missing else "share"}, name


def test_what_forged_strings_do_is_that_of_the_worst_cohort_bits_and_truth():
    """By the slopes of the regression, and every filter that a true string may have."""
    rappor = Rappor((1.0, 2.0), bits=4, hashes=2, cohorts=3, metric="metric")
    n, levels, step = 3000, np.repeat([0, 1], 1500), 10**6
    strings = [b"string %d" % (at % 3) for at in range(n)]
    drawn = rappor.randomize(strings, ids(n), ids(n), SeededSource(7))[np.arange(n), levels]
    counts = rappor.accumulate(drawn, ids(n), ids(n), levels, 2) * step
    before = items_of(rappor, counts)["string", "string 0"]
    filters = [each for size in range(3) for each in itertools.combinations(range(4), size)]
    for level, (p, q) in enumerate(pair for (pair,) in map(rappor.probabilities, range(2))):
        over, under = [], []
        for cohort in range(3):
            slopes = []
            for bit in range(4):
                more = counts.copy()
                more[level, 5 * cohort + bit] += step
                slopes.append(items_of(rappor, more)["string", "string 0"].value - before.value)
            for true in filters:
                honest = [p if bit in true else q for bit in range(4)]
                moves = [(-a * e, a * (1 - e)) for a, e in zip(slopes, honest, strict=True)]
                over.append(sum(map(max, moves)) * n)
                under.append(-sum(map(min, moves)) * n)
        assert before.reach[level] == pytest.approx((max(over), max(under)), rel=1e-6)


@pytest.mark.parametrize(
    ("mechanism", "least", "most"),
    [
        (GeneralizedRandomizedResponse(1.0, 2), -0.5820, 1.5820),
        (GeneralizedRandomizedResponse(2.0, 2), -0.1565, 1.1565),
        (GeneralizedRandomizedResponse(1.0, 16), -0.5820, 9.7297),
        (OptimizedUnaryEncoding(2.0, 2), -0.3130, 2.3130),
        (LocalHashing(2.0, 16, buckets=7), -0.3493, 2.0956),
        (HadamardResponse(1.0, 16, blocks=4), -5.6558, 5.6558),
        (DuchiOneBit(1.0, missing=False), -0.5820, 1.5820),
        (HybridMechanism(2.0, points=65, missing=False), -0.6046, 1.6046),
    ],
)
def test_scores_are_those_of_the_table(mechanism, least, most):
    counts = np.ones((1, mechanism.count_length), dtype=np.int64)
    found = next(iter(mechanism.estimate(counts, Context(labels="a" * 16)))).estimate
    assert found.scores == pytest.approx((least, most), abs=5e-5)
    down, up = found.one_more()
    assert down * (found.n + 1) == pytest.approx(found.value - least, abs=5e-5)
    assert up * (found.n + 1) == pytest.approx(most - found.value, abs=5e-5)


def test_eight_buckets_of_local_hashing_have_the_scores_of_the_table():
    """They are no prime number, so that no plan can have them."""
    e = math.exp(2.0)
    pair = np.array([[e / (e + 7), 1 / 8]])
    assert answer_ends(pair) == pytest.approx((-0.3217, 2.2521), abs=5e-5)


def test_five_percent_forged_reports_of_oue_move_a_share_by_eleven_points():
    over, _ = share_forged(0.05, [1000], OptimizedUnaryEncoding(2.0, 4).reaches())
    assert over == pytest.approx(0.116, abs=5e-4)
