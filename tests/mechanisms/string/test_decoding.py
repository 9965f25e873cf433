"""Decoding of strings: what is planted is found, what is absent is not, and how often."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from replicas import replicate
from scipy import stats
from statistical import check_at_least, check_normal

from mechanisms import coins
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.registry import build
from mechanisms.string.decoding import StringEstimates, _benjamini_hochberg

SEED = 20241104
BITS, HASHES, COHORTS = 128, 2, 16
CANDIDATES = [f"port {i}" for i in range(105)]
#: Ten of the candidates are there; the last three strings are not listed.
SHARES = np.array([0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.04, 0.03, 0.03, 0.02, 0.1, 0.06, 0.04])


def rappor(
    ladder: list[int], bits: int = BITS, hashes: int = HASHES, cohorts: int = COHORTS
) -> Mechanism:
    spec = {"name": "rappor", "bits": bits, "hashes": hashes, "cohorts": cohorts}
    return build(spec, ladder, "port")


def filters(strings: list[str]) -> NDArray[np.bool_]:
    """Return the Bloom filters of strings, shape (strings, cohorts, bits)."""
    out = np.zeros((len(strings), COHORTS, BITS), dtype=bool)
    for i, string in enumerate(strings):
        for cohort in range(COHORTS):
            positions = coins.bloom_positions(string.encode(), cohort, HASHES, BITS)
            out[i, cohort, list(positions)] = True
    return out


def collections(
    mechanism: Mechanism, n: int, repeats: int, unlisted: bool, cluster: int = 1
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield counts, drawn by their exact law, and the true shares of all strings.

    Levels depend on strings; every repeat has other unlisted strings, or none; every pseudonym
    has ``cluster`` reports.
    """
    rng = np.random.default_rng(SEED)
    listed = filters(CANDIDATES[:10])
    for repeat in range(repeats):
        sets = np.concatenate((listed, filters([f"{i} not listed {repeat}" for i in range(3)])))
        true = np.round(SHARES * n).astype(int) // cluster * cluster
        if not unlisted:
            true[10:] = 0
        cells = np.zeros((mechanism.levels, COHORTS, BITS + 1), dtype=np.int64)
        for level in range(mechanism.levels):
            p, q = mechanism.probabilities(level)[0]
            at = true // mechanism.levels // cluster
            if level == mechanism.levels - 1:
                at = true // cluster - at * level
            even = np.full(COHORTS, 1 / COHORTS)
            reports = cluster * np.stack([rng.multinomial(number, even) for number in at])
            set_ = np.einsum("sc,scj->cj", reports, sets)
            clear = reports.sum(axis=0)[:, None] - set_
            cells[level, :, :-1] = rng.binomial(set_, p) + rng.binomial(clear, q)
            cells[level, :, -1] = reports.sum(axis=0)
        shares = np.zeros(len(CANDIDATES) + 1)
        shares[:10] = true[:10] / true.sum()
        shares[-1] = true[10:].sum() / true.sum()
        yield cells.reshape(mechanism.levels, -1), shares


def test_planted_strings_are_found_through_the_whole_mechanism() -> None:
    mechanism = rappor([2_000_000, 6_000_000])
    strings = [b"oslo"] * 2500 + [b"rome"] * 1500 + ["åbo".encode()] * 1000
    [counts] = replicate(mechanism, strings, np.arange(5000) % 2, 1, SEED)
    result = mechanism.decode(counts, ["lima", "oslo", "rome", "åbo", "bonn"])
    found = {item.candidate: item.estimate for item in result.items if item.significant}
    assert set(found) == {"oslo", "rome", "åbo"}
    for name, share in (("oslo", 0.5), ("rome", 0.3), ("åbo", 0.2)):
        low, high = found[name].interval(1 - 1e-9)
        assert low <= share <= high
        assert found[name].reports_by_level == (2500, 2500)
    assert sum(result.display) == pytest.approx(min(1.0, 1 - result.unexplained.value))
    assert min(result.display) >= 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ladder", "n", "unlisted", "cluster"),
    [
        ([2_000_000], 10_000, False, 1),
        ([1_000_000, 2_000_000, 4_000_000], 30_000, True, 1),
        ([8_000_000], 300_000, True, 1),
        ([8_000_000], 300, False, 1),
        ([8_000_000], 60_000, False, 20),
    ],
)
def test_estimates_errors_and_the_family_wise_rate(
    ladder: list[int], n: int, unlisted: bool, cluster: int
) -> None:
    mechanism, repeats = rappor(ladder), 60
    values, errors, truth, false = [], [], [], 0
    for counts, shares in collections(mechanism, n, repeats, unlisted, cluster):
        result = mechanism.decode(counts, CANDIDATES, design_effect=cluster)
        found = [*(item.estimate for item in result.items), result.unexplained]
        values.append([e.value for e in found])
        errors.append([e.standard_error for e in found])
        truth.append(shares)
        false += any(item.significant for item in result.items[10:])
    label = f"{ladder} n {n} seed {SEED}"
    check_at_least(repeats - false, repeats, 0.95, label=label)
    off = np.array(values) - np.array(truth)
    covered = np.abs(off) <= 1.96 * np.array(errors)
    # Unlisted strings err for all candidates at once: coverage is on average over their hashes.
    assert covered[:, :-1].mean() > 0.93, label
    check_at_least(int(covered[:, -1].sum()), repeats, 0.93, label=label)
    # Candidates share what unlisted strings do to them; each alone is unbiased.
    stated = np.sqrt(np.square(errors).mean(axis=0) / repeats)
    check_normal(off.mean(axis=0), np.zeros(106), 1.1 * stated, label=label)


@pytest.mark.slow
def test_a_frequent_unlisted_string_makes_no_false_candidates() -> None:
    """It shares bits with some candidates; without residuals in the test they are significant."""
    mechanism = rappor([12_000_000])
    rng = np.random.default_rng(SEED)
    p, q = mechanism.probabilities(0)[0]
    false, plain = 0, 0
    for repeat in range(60):
        sets = filters([f"heavy {repeat}"])[0]
        reports = rng.multinomial(1_000_000, np.full(COHORTS, 1 / COHORTS))
        set_ = reports[:, None] * sets
        cells = np.zeros((1, COHORTS, BITS + 1), dtype=np.int64)
        cells[0, :, :-1] = rng.binomial(set_, p) + rng.binomial(reports[:, None] - set_, q)
        cells[0, :, -1] = reports
        result = mechanism.decode(cells.reshape(1, -1), CANDIDATES)
        false += any(item.significant for item in result.items)
        found = [item.estimate for item in result.items]
        plain += any(stats.norm.sf(e.value / e.standard_error) < 0.05 / 105 for e in found)
        low, high = result.unexplained.interval(1 - 1e-6)
        assert low <= 1 <= high
    check_at_least(60 - false, 60, 0.95, label=f"seed {SEED}")
    with pytest.raises(AssertionError):
        check_at_least(60 - plain, 60, 0.95)


def test_counts_that_are_not_debiased_are_caught() -> None:
    """The counts of one level, read as those of a stronger one, which flips less."""
    weak, strong = rappor([2_000_000]), rappor([2_600_000])
    [(counts, shares)] = collections(weak, 200_000, 1, False)

    right = weak.decode(counts, CANDIDATES)
    stated = np.array([item.estimate.standard_error for item in right.items])

    def values(result: StringEstimates) -> NDArray[np.float64]:
        return np.array([item.estimate.value for item in result.items])

    check_normal(values(right), shares[:-1], 1.1 * stated, label=f"seed {SEED}")
    with pytest.raises(AssertionError):
        check_normal(values(strong.decode(counts, CANDIDATES)), shares[:-1], 1.1 * stated)


def test_strings_that_filters_cannot_tell_apart_are_named() -> None:
    """Eight bits, one hash, one cohort: strings of the same bit are the same."""
    mechanism = rappor([9_000_000], bits=8, hashes=1, cohorts=1)
    names = [f"string {i}" for i in range(7)]
    bit = {s: coins.bloom_positions(s.encode(), 0, 1, 8)[0] for s in names}
    alike = [tuple(t for t in names if bit[t] == bit[s]) for s in names]
    assert {len(group) for group in alike} > {1}, "the test needs other strings"
    [counts] = replicate(mechanism, [s.encode() for s in names] * 300, 0, 1, SEED)
    result = mechanism.decode(counts, names)
    for item, group in zip(result.items, alike, strict=True):
        if len(group) > 1:
            assert item.confounded_with == group
            assert math.isinf(item.estimate.standard_error)
            assert (item.p_value, item.significant) == (1.0, False)
        else:
            assert item.confounded_with == ()
            assert item.significant
            low, high = item.estimate.interval(1 - 1e-9)
            assert low <= 1 / 7 <= high
    # Their sum is told, and so is what is unexplained.
    low, high = result.unexplained.interval(1 - 1e-9)
    assert low <= 0 <= high
    assert math.isfinite(result.unexplained.standard_error)


def test_cohorts_without_reports_and_no_reports_at_all() -> None:
    mechanism = rappor([9_000_000])
    [counts] = replicate(mechanism, [b"port 1"] * 5, 0, 1, SEED)
    result = mechanism.decode(counts, CANDIDATES[:3])
    assert result.items[1].estimate.n == 5
    assert result.items[1].estimate.value > result.items[0].estimate.value
    none = mechanism.decode(np.zeros_like(counts), CANDIDATES[:3])
    assert none.unexplained.interval() == (-math.inf, math.inf)
    assert none.display == (0.0, 0.0, 0.0)
    assert not any(item.significant for item in none.items)


def test_p_values_are_adjusted_by_holm() -> None:
    mechanism = rappor([2_000_000])
    [(counts, _)] = collections(mechanism, 10_000, 1, False)
    all_of_them = mechanism.decode(counts, CANDIDATES)
    strict = mechanism.decode(counts, CANDIDATES, error=1e-6)
    for one, other in zip(all_of_them.items, strict.items, strict=True):
        assert one.p_value == other.p_value
        assert one.significant == (one.p_value <= 0.05)
        assert other.significant == (one.p_value <= 1e-6)
    order = sorted(all_of_them.items, key=lambda i: -i.estimate.value / i.estimate.standard_error)
    p_values = [item.p_value for item in order]
    assert p_values[:3] == sorted(p_values[:3])


@pytest.mark.slow
def test_a_false_discovery_rate_finds_more_and_is_held() -> None:
    """At most a fifth of what is named is false on average; with ten true names, that is many."""
    mechanism, rate, repeats = rappor([1_000_000, 4_000_000]), 0.2, 30
    shares, found, strict = [], 0, 0
    for counts, _ in collections(mechanism, 5000, repeats, unlisted=True):
        by_rate = mechanism.decode(counts, CANDIDATES, false_discovery_rate=rate)
        named = [item.significant for item in by_rate.items]
        shares.append(sum(named[10:]) / max(sum(named), 1))
        found += sum(named[:10])
        assert by_rate.false_names == pytest.approx(rate * sum(named))
        by_error = mechanism.decode(counts, CANDIDATES)
        assert by_error.false_names is None
        strict += sum(item.significant for item in by_error.items[:10])
        # Whoever is named by the stricter rule is named by the other.
        assert all(
            loose.significant or not tight.significant
            for loose, tight in zip(by_rate.items, by_error.items, strict=True)
        )
    assert found > 1.3 * strict
    assert np.mean(shares) < rate


def test_p_values_are_adjusted_by_benjamini_and_hochberg() -> None:
    given = np.array([0.04, 0.001, 0.5, 0.03])
    expected = stats.false_discovery_control(given)
    np.testing.assert_allclose(_benjamini_hochberg(given), expected)
    assert _benjamini_hochberg(np.array([0.9])) == [0.9]


def test_what_does_not_fit_is_refused() -> None:
    mechanism = rappor([2_000_000])
    counts = np.ones((1, mechanism.count_length), dtype=int)
    for names in ([], ["a", "b", "a"]):
        with pytest.raises(ParameterError, match="candidates"):
            mechanism.decode(counts, names)
    with pytest.raises(ParameterError, match="error"):
        mechanism.decode(counts, ["a"], error=0)
    with pytest.raises(ParameterError, match="design_effect"):
        mechanism.decode(counts, ["a"], design_effect=math.nan)
    with pytest.raises(ParameterError, match="shape"):
        mechanism.decode(counts[:, :-1], ["a"])
