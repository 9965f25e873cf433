"""Subset selection and Hadamard response: exact laws, uniform draws, variances, refusals."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from replicas import replicate
from statistical import check_at_least, check_counts

from mechanisms.category.hadamard import HadamardResponse, best_blocks, response_variance
from mechanisms.category.subset_selection import SubsetSelection, best_subset_size
from mechanisms.chains.output_sets import block_order
from mechanisms.chains.subsets import SubsetChain, uniform_subset
from mechanisms.errors import ParameterError
from mechanisms.estimators.variance import share_variance
from mechanisms.testing import SeededSource

SEED = 57721566
RUNGS = (500_000, 1_000_000, 2_000_000)


def subset(m: int, k: int, *micros: int) -> SubsetSelection:
    return SubsetSelection([micro / 1e6 for micro in micros or RUNGS], m, k)


def hadamard(m: int, blocks: int, *micros: int) -> HadamardResponse:
    return HadamardResponse([micro / 1e6 for micro in micros or RUNGS], m, blocks)


SMALL: list[Any] = [
    *(subset(m, k) for m, k in [(2, 1), (5, 2), (6, 3), (7, 1)]),
    *(hadamard(m, blocks) for m, blocks in [(2, 1), (5, 1), (5, 2), (6, 4), (7, 4)]),
]
every_small = pytest.mark.parametrize("mechanism", SMALL, ids=lambda one: f"{one.name}-{one.chain}")


@every_small
def test_support_has_the_stated_probabilities(mechanism: Any) -> None:
    """A category is in a subset with these; a report of a block contributes them on average."""
    chain, m = mechanism.chain, mechanism.domain_size
    for level in range(len(RUNGS)):
        p, q = chain.exact[level]
        for x, j in itertools.product(range(m), repeat=2):
            supported = sum(
                chain.probability(x, out, level)
                for out in chain.outputs()
                if chain.supports(j, out)
            )
            if isinstance(chain, SubsetChain):
                assert supported == (p if x == j else q)
                continue
            block = sum(
                chain.probability(x, out, level)
                for out in chain.outputs()
                if out // chain.order == chain.place(j)[0]
            )
            assert 2 * supported - block == (p - q if x == j else 0)
            if x == j:
                assert block == p + q
            elif chain.place(x)[0] != chain.place(j)[0]:
                assert block == 2 * q


@every_small
def test_draws_are_uniform_within_their_kind(mechanism: Any) -> None:
    """Scalar and vectorised, supporting or not, and of all."""
    chain, n, source = mechanism.chain, 8000, SeededSource(SEED)
    outputs = list(chain.outputs())
    x = mechanism.domain_size - 1
    for supporting in (True, False):
        kind = [out for out in outputs if chain.supports(x, out) == supporting]
        scalar = Counter(chain.uniform_within(x, supporting, source) for _ in range(n))
        rows = chain.uniform_within_many(np.full(n, x), np.full(n, supporting), source)
        for seen in (scalar, Counter(integers(rows))):
            assert set(seen) <= set(kind)
            check_counts([seen[o] for o in kind], [Fraction(1, len(kind))] * len(kind), label=SEED)
    scalar = Counter(chain.uniform(source) for _ in range(n))
    for seen in (scalar, Counter(integers(chain.uniform_many(n, source)))):
        check_counts(
            [seen[o] for o in outputs], [Fraction(1, len(outputs))] * len(outputs), label=SEED
        )


class Edge(SeededSource):
    """Begins with words that the test has chosen."""

    def __init__(self, *first: int) -> None:
        super().__init__(SEED)
        self.first = list(first)

    def bits(self, n: int) -> int:
        return self.first.pop(0) if self.first and n == 64 else super().bits(n)

    def words(self, n: int) -> np.ndarray:
        return np.full(n, self.first.pop(0), np.uint64) if self.first else super().words(n)


@every_small
def test_words_at_the_edges(mechanism: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word at the threshold does not support the input; one at a keep is not kept."""
    chain, x = mechanism.chain, mechanism.domain_size - 1
    for before in (True, False):
        word, xs = chain.threshold - before, np.full(20, x)
        one = [chain.draw(x, Edge(word))[-1] for _ in range(20)]
        many = integers(chain.randomize(xs, Edge(word))[:, -1])
        assert {chain.supports(x, out) for out in (*one, *many)} == {before}
    last, replaced = chain.draw(x, SeededSource(SEED))[-1], list[int]()
    drawn = type(chain).uniform

    def uniform(self: Any, source: Any) -> Any:
        replaced.append(1)
        return drawn(self, source)

    kept = replace(chain, keeps=chain.keeps[-1:])
    monkeypatch.setattr(type(chain), "uniform", uniform)
    for before in (True, False):
        replaced.clear()
        kept.weaker(last, Edge(kept.keeps[0] - before))
        assert replaced == [1] * (not before)
    monkeypatch.setattr(type(chain), "uniform_within_many", lambda self, xs, *_: xs)

    def counted(self: Any, n: int, source: Any) -> Any:
        replaced.append(n)
        return np.zeros(n, dtype=np.int64)

    monkeypatch.setattr(type(chain), "uniform_many", counted)
    for before in (True, False):
        replaced.clear()
        kept.randomize(np.full(5, x), Edge(0, kept.keeps[0] - before))
        assert replaced == [0 if before else 5]


def integers(rows: np.ndarray) -> list[int]:
    if rows.ndim == 1:
        return rows.tolist()
    return [int.from_bytes(row.tobytes(), "little") for row in rows]


def test_keys_that_tie_are_drawn_again() -> None:
    """Keys of two bits, where half of all rows tie, still give uniform subsets."""

    class Coarse(SeededSource):
        def words(self, n: int) -> np.ndarray:
            mask = np.uint64(0xC000C000C000C000)
            return super().words(n) & mask

    chain, n = subset(5, 2).chain, 20_000
    outputs = list(chain.outputs())
    seen = Counter(integers(chain.uniform_many(n, Coarse(SEED))))
    check_counts([seen[o] for o in outputs], [Fraction(1, 10)] * 10, label=SEED)
    # Were the first of equal keys taken, the check would see it.
    keys = SeededSource(SEED).words(5 * n).reshape(n, 5) >> np.uint64(62)
    biased = np.sort(np.argsort(keys, axis=1, kind="stable")[:, :2], axis=1)
    wrong = Counter((1 << biased[:, 0] | 1 << biased[:, 1]).tolist())
    with pytest.raises(AssertionError):
        check_counts([wrong[o] for o in outputs], [Fraction(1, 10)] * 10)


def test_a_uniform_subset_of_numbers() -> None:
    seen = Counter(frozenset(uniform_subset(6, 3, SeededSource(seed))) for seed in range(20_000))
    assert len(seen) == math.comb(6, 3)
    check_counts(list(seen.values()), [Fraction(1, 20)] * 20, label="seeds 0 to 19999")
    assert uniform_subset(4, 4, SeededSource(1)) == {0, 1, 2, 3}
    assert uniform_subset(4, 0, SeededSource(1)) == set()


@pytest.mark.parametrize(("m", "blocks"), [(7, 1), (50, 4), (64, 64), (100, 8)])
def test_supports_are_those_of_a_walk_through_the_domain(m: int, blocks: int) -> None:
    mechanism = hadamard(m, blocks)
    chain = mechanism.chain
    table = np.random.default_rng(SEED).integers(0, 99, size=(3, mechanism.count_length))
    ones, reports = mechanism.supports(table)
    concerned = mechanism.concerned(table).reports
    assert reports.tolist() == table.sum(axis=1).tolist()
    for x in range(m):
        inside = [chain.supports(x, out) for out in range(chain.size)]
        block = [out // chain.order == chain.place(x)[0] for out in range(chain.size)]
        assert ones[:, x].tolist() == table[:, inside].sum(axis=1).tolist()
        assert concerned[:, x].tolist() == table[:, block].sum(axis=1).tolist()


def test_no_interval_is_empty_and_small_ones_cover() -> None:
    """Few reports, most blocks without any: still an error, and no interval of length zero."""
    mechanism = hadamard(60, 16, 3_000_000)
    truth = np.array([3] * 10 + [40] * 20)
    counts = replicate(mechanism, truth, 0, 120, SEED)
    covered = dict.fromkeys((3, 40, 59), 0)
    for table in counts:
        found = mechanism.frequencies(table)
        assert min(one.standard_error for one in found) > 0
        assert max(one.detection_floor or 0 for one in found) < 3
        for j in covered:
            low, high = found[j].interval()
            covered[j] += low <= np.mean(truth == j) <= high
    for j, times in covered.items():
        check_at_least(times, 120, 0.95, label=f"{j} {SEED}")


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 2.0, 4.0, 8.0])
def test_the_default_parameters_are_the_best(epsilon: float) -> None:
    m = 40

    def total(k: int) -> float:
        chain = subset(m, k, round(epsilon * 1e6)).chain
        p, q = (float(share) for share in chain.exact[0])
        return share_variance(p, q, 1.0) + (m - 1) * share_variance(p, q, 0.0)

    best = min(range(1, m // 2 + 1), key=total)
    assert total(best_subset_size(epsilon, m)) == pytest.approx(total(best), rel=1e-4)
    assert SubsetSelection(epsilon, m).subset_size == best_subset_size(epsilon, m)
    powers = [1, 2, 4, 8, 16, 32]
    least = min(powers, key=lambda blocks: response_variance(epsilon, blocks))
    assert HadamardResponse(epsilon, m).blocks == best_blocks(epsilon, m) == least
    [one] = hadamard(m, least, round(epsilon * 1e6)).chain.exact
    stated = 1 / least / float(one.p - one.q) ** 2
    assert response_variance(epsilon, least) == pytest.approx(stated, rel=1e-4)


def test_every_category_of_a_block_has_a_row_of_its_own() -> None:
    for m in range(2, 70):
        for blocks in (1, 2, 4, 8):
            if blocks <= m:
                chain = hadamard(m, blocks).chain
                places = [chain.place(x) for x in range(m)]
                assert len(set(places)) == m
                assert max(block for block, _ in places) < blocks
                assert {row for _, row in places} <= set(range(1, chain.order))
                assert block_order(m, blocks) == chain.order <= 4 * max(1, m // blocks)


@pytest.mark.parametrize(
    ("make", "arguments", "message"),
    [
        (subset, (1, 1), r"domain_size must lie in \[2, 1024\], not 1"),
        (subset, (1025, 1), "domain_size"),
        (subset, (9, 5), r"subset_size must lie in \[1, 4\], half of the domain, not 5"),
        (subset, (9, -1), "subset_size"),
        (hadamard, (1, 1), r"domain_size must lie in \[2, 1048576\], not 1"),
        (hadamard, (2**20 + 1, 1), "domain_size"),
        (hadamard, (9, 3), r"blocks must be a power of two in \[1, 9\], not 3"),
        (hadamard, (9, 16), "blocks"),
        (hadamard, (9, -1), "blocks"),
        (best_subset_size, (math.nan, 9), "epsilon"),
        (best_subset_size, (1.0, 1), "domain_size"),
        (best_blocks, (0.0, 9), "epsilon"),
        (best_blocks, (1.0, 1), "domain_size"),
    ],
)
def test_what_cannot_be_built_is_refused(make: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make(*arguments)
