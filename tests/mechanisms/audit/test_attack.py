"""The attack: near the truth, never proved above it, and what catches a faulty sampler."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small import five_percent_off
from statistical import check_at_least

from mechanisms.audit import attack as attacks
from mechanisms.audit.cases import unit
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Auditor, Claim, examine, ladder_to
from mechanisms.audit.guessing import Attack, fair_bits, guess, key_of, score_key
from mechanisms.audit.reports import batch_sampler
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.registry import REGISTRY, build
from mechanisms.testing import SeededSource
from papers.gradual_release.formulas import relaxation

pytestmark = pytest.mark.slow

SEED = 20_250_611


def attack(mechanism: Mechanism, source: Any, *, sampler: Any = None, **options: Any) -> Attack:
    return attacks.attack(mechanism, batch_sampler(mechanism, sampler), source, **options)


CLAIMS = pytest.mark.parametrize("claim", LIBRARY, ids=lambda claim: claim.name)


def test_the_library_is_all_that_a_plan_can_name() -> None:
    claimed = sorted(claim.name for claim in LIBRARY)
    assert claimed == sorted(REGISTRY), "each has a claim in mechanisms/audit/claims.py"


@pytest.mark.parametrize(("name", "epsilon"), [("grr", 0.5), ("sue", 1.0), ("oue", 2.0)])
def test_an_attack_comes_near_the_truth(name: str, epsilon: float) -> None:
    """With 200,000 chains in all."""
    claim = next(claim for claim in LIBRARY if claim.name == name)
    found = attack(claim.build(ladder_to(epsilon)), SeededSource(SEED), trials=100_000)
    assert 0.95 * epsilon <= found.epsilon
    assert not found.exceeds(epsilon, FALSE_ALARM)


@CLAIMS
def test_no_mechanism_is_above_its_certificate(claim: Claim) -> None:
    mechanism = claim.build(ladder_to(1.0))
    found = examine(mechanism, auditor=Auditor(SeededSource(SEED), 20_000, runs=1000))
    assert found.problems == []
    assert found.batch.epsilon > 0.75


SOUND: dict[str, dict[str, Any]] = {
    "one byte": {"name": "grr", "domain_size": 3},
    "many bits": {"name": "oue", "domain_size": 128},
    "public coins": {"name": "local_hashing", "domain_size": 50, "buckets": 5},
}


@pytest.mark.parametrize("spec", SOUND.values(), ids=SOUND)
def test_bounds_cover_at_their_confidence(spec: dict[str, Any]) -> None:
    """However many views and pairs are tried; and no verdict is false."""
    mechanism = build(spec, [1_000_000], "m")
    source, runs = SeededSource(SEED), 300
    found = [attack(mechanism, source, trials=1_000) for _ in range(runs)]
    covered = sum(one.epsilon <= mechanism.certified(0) / MICRO for one in found)
    check_at_least(covered, runs, 0.95, label=f"seed {SEED}")
    assert not any(one.exceeds(1.0, FALSE_ALARM / runs) for one in found)


def test_numbers_have_their_ends_among_the_inputs() -> None:
    hybrid = build({"name": "hybrid", "points": 257, "missing": True}, [1_000_000], "m")
    assert {0.0, 1.0, None} < set(hybrid.some_inputs(10, SeededSource(SEED)))
    assert hybrid.some_inputs(300, SeededSource(SEED)) == [k / 256 for k in range(257)] + [None]


class TestFaultySamplers:
    """Every one is proved to lose more than is certified, at the rate of a verdict."""

    @staticmethod
    def caught(mechanism: Mechanism, sampler: Any, **options: Any) -> bool:
        found = attack(mechanism, SeededSource(SEED), sampler=sampler, **options)
        certified = mechanism.certified(mechanism.levels - 1) / MICRO
        return found.exceeds(certified, FALSE_ALARM / len(LIBRARY))

    @CLAIMS
    def test_a_rung_drawn_afresh(self, claim: Claim) -> None:
        mechanism = claim.build(ladder_to(1.0))

        def sampler(values: Any, chains: Any, names: Any, source: Any) -> Any:
            payloads = mechanism.randomize(values, chains, names, source)
            payloads[:, 0] = mechanism.randomize(values, chains, names, source)[:, 0]
            return payloads

        # All differing bits of both rungs rarely agree with one of two values.
        trials = 150_000 if claim.name in ("rappor", "split_bits") else 25_000
        assert self.caught(mechanism, sampler, trials=trials)

    @pytest.mark.parametrize(
        "name", ["grr", "threshold", "duchi", "local_hashing", "sue", "oue", "brr"]
    )
    def test_a_probability_off_by_five_percent(self, name: str) -> None:
        mechanism = self.named(name)
        faulty = five_percent_off(mechanism)
        assert self.caught(mechanism, faulty.randomize, trials=200_000)

    @pytest.mark.parametrize("name", ["grr", "oue", "brr"])
    def test_and_its_certificate_is_not_that_of_its_thresholds(self, name: str) -> None:
        faulty = five_percent_off(self.named(name))
        assert "its thresholds cost another amount than it says" in examine(faulty).problems
        assert "its thresholds cost more than the nominal amount" in examine(faulty).problems

    def test_a_number_rounded_anew_at_each_rung(self) -> None:
        epsilons = (1.0, 1.5, 2.0)
        mechanism = build(
            {"name": "duchi", "missing": False}, [int(e * MICRO) for e in epsilons], "m"
        )

        def sampler(values: Any, chains: Any, names: Any, source: Any) -> Any:
            n = len(values)
            bits = unit(n, source) < values
            reports = [bits ^ (unit(n, source) > 1 / (1 + np.exp(-epsilons[0])))]
            for low, high in itertools.pairwise(epsilons):
                law, bits = relaxation(2, low, high), unit(n, source) < values
                right = np.where(reports[-1] == bits, law.p_aa, law.p_ba)
                reports.append(bits ^ (unit(n, source) > right))
            return np.stack(reports, axis=1).astype(np.uint8)[:, :, None]

        # Outcomes 0, 1, 0 or 1, 0, 1 tell most of numbers that are not at the ends.
        pair = (0.0, 0.5)
        assert self.caught(mechanism, sampler, trials=200_000, pair=pair)
        honest = attack(mechanism, SeededSource(SEED), trials=20_000, pair=pair)
        assert not honest.exceeds(2.0, FALSE_ALARM)

    @staticmethod
    def named(name: str) -> Mechanism:
        return next(c for c in LIBRARY if c.name == name).build(ladder_to(1.0))


OTHERS: dict[str, dict[str, Any]] = {
    "one bucket a bit": {"name": "rappor", "bits": 3, "hashes": 4, "cohorts": 2},
    "one filter for all": {"name": "rappor", "bits": 1, "hashes": 1, "cohorts": 1},
    "wide subsets": {"name": "subset", "domain_size": 60, "subset_size": 20},
    "one block": {"name": "hadamard", "domain_size": 3, "blocks": 1},
    "a missing number": {"name": "split_bits", "bits": 3, "missing": True},
    "a missing bit": {"name": "sampled_bit", "bits": 4, "missing": True},
    "a missing input": {"name": "hybrid", "points": 9, "missing": True},
    "a missing point": {"name": "brr", "domain_size": 9, "subset_size": 2, "missing": True},
    "bits of vectors": {"name": "sampled_vector", "dimensions": 9, "sampled": 2, "bits": 4},
}


@pytest.mark.parametrize("spec", OTHERS.values(), ids=OTHERS)
def test_mechanisms_with_other_parameters(spec: dict[str, Any]) -> None:
    ladder = [500_000, 1_000_000, 3_000_000]
    auditor = Auditor(SeededSource(SEED), 5_000, runs=500)
    found = examine(build(spec, ladder, "m"), auditor=auditor)
    assert found.problems == []
    assert found.batch is not None
    told = spec["name"] != "rappor" or spec["bits"] > 1
    assert (found.batch.epsilon > 0.3 * ladder[-1] / MICRO) == told


def test_only_what_is_released_is_attacked() -> None:
    grr = build({"name": "grr", "domain_size": 4}, [500_000, 4_000_000], "m")
    found = attack(grr, SeededSource(SEED), trials=50_000, levels=1)
    assert 0.4 < found.epsilon < 0.55


def test_what_says_all_proves_what_so_many_can() -> None:
    source, n = SeededSource(SEED), 20_000
    secrets = fair_bits(n, source)
    found = guess({"the secret": secrets.astype(np.uint64)}, secrets, 0.95)
    assert found.right == found.guesses == 16_000
    assert 8.5 < found.epsilon < 8.7


def test_keys_tell_rows_apart() -> None:
    rows = np.array(list(itertools.product(range(-8, 8), repeat=3)), dtype=np.int64)
    assert len(np.unique(key_of(rows))) == len(rows)
    assert len(np.unique(score_key(np.linspace(-1, 1, 100_000)))) <= 512
    assert len(np.unique(score_key(np.array([0.5, 0.5, 0.25] * 1000)))) == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [({"trials": 9}, "trials"), ({"levels": 3}, "levels"), ({"levels": 0}, "levels")],
)
def test_parameters_that_are_none(options: dict[str, int], said: str) -> None:
    grr = build({"name": "grr", "domain_size": 4}, [500_000, 1_000_000], "m")
    call: Callable[..., object] = attack
    with pytest.raises(ParameterError, match=said):
        call(grr, SeededSource(SEED), **options)
