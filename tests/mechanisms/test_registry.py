"""Mechanisms that the registry builds or refuses, and the largest and smallest amounts it takes."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from small import SPECS, ids

from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.errors import ParameterError, SottoError, UnrelatedLevelsError
from mechanisms.registry import REGISTRY, build, modules


def test_coins_of_different_metrics_differ() -> None:
    spec: dict[str, object] = {"name": "threshold", "missing": False}
    one, other = (build(spec, [1_000_000], metric) for metric in ("one", "other"))
    assert (one.coins_of(ids(100)) != other.coins_of(ids(100))).any()  # type: ignore[attr-defined]


def test_every_module_is_imported_by_a_statement_that_packers_of_apps_follow() -> None:
    imported = {module.__name__ for module in modules().values()}
    assert {place.partition(":")[0] for place in REGISTRY.values()} == imported


GRR: dict[str, object] = {"name": "grr", "domain_size": 5}
RAPPOR: dict[str, object] = {"name": "rappor", "bits": 8, "hashes": 2, "cohorts": 1}


@pytest.mark.parametrize(
    ("spec", "ladder", "message"),
    [
        ({}, [1], f"mechanism must be one of {', '.join(REGISTRY)}, not None"),
        ({"name": "f-rr"}, [1], "not 'f-rr'"),
        ({"name": ["grr"]}, [1], "mechanism must be one of"),
        ({"name": "grr"}, [1], "domain_size must be of type int, not None"),
        ({"name": "grr", "domain_size": True}, [1], "domain_size must be of type int"),
        ({"name": "grr", "domain_size": 2.0}, [1], "domain_size must be of type int"),
        ({"name": "grr", "domain_size": math.nan}, [1], "domain_size must be of type int"),
        ({**GRR, "bits": 3, "a": 1}, [1], "takes domain_size, not a, bits"),
        ({"name": "hadamard", "domain_size": 4, "blocks": 0}, [10**6], "blocks must be chosen"),
        ({"name": "grr", "domain_size": 1}, [1], r"domain_size must lie in \[2, 1048576\], not 1"),
        ({"name": "grr", "domain_size": 2**20 + 1}, [1], "domain_size must lie in"),
        ({"name": "oue", "domain_size": 2**16 + 1}, [1], r"domain_size must lie in \[2, 65536\]"),
        ({"name": "threshold"}, [1], "missing must be of type bool"),
        ({"name": "sampled_bit", "bits": 33, "missing": True}, [1], r"bits must lie in \[1, 32\]"),
        ({"name": "split_bits", "bits": 0, "missing": True}, [1], r"bits must lie in \[1, 32\]"),
        ({**RAPPOR, "bits": 0}, [1], "bits must lie in"),
        ({**RAPPOR, "hashes": 9}, [1], r"hashes must lie in \[1, 8\], not 9"),
        ({**RAPPOR, "cohorts": 0}, [1], "cohorts must lie in"),
        (GRR, [], "a ladder has 1 to 8 levels, not 0"),
        (GRR, list(range(1, 10)), "a ladder has 1 to 8 levels, not 9"),
        (GRR, [1, 1], "level 2: epsilons must increase, 1e-06 follows 1e-06"),
        (GRR, [1, 3, 2], "level 3: epsilons must increase"),
        (GRR, [0, 1], r"level 1: epsilon 0.0 must be in \[1e-06, "),
        (GRR, [-5], "level 1: epsilon -5e-06 must be in"),
        (GRR, [1, 40_000_001], "level 2: epsilon 40.000001 must be in"),
        (GRR, [math.nan], "level 1: micro-epsilon must be an int"),
        (GRR, [1.0], "level 1: micro-epsilon must be an int"),
        (GRR, [True], "level 1: micro-epsilon must be an int"),
    ],
)
def test_what_cannot_be_built_is_refused(
    spec: dict[str, object], ladder: list[int], message: str
) -> None:
    with pytest.raises(ParameterError, match=message) as caught:
        build(spec, ladder, "metric")
    assert isinstance(caught.value, SottoError)
    assert isinstance(caught.value, ValueError)


def test_a_metric_is_named_by_a_string() -> None:
    with pytest.raises(ParameterError, match="metric"):
        build(GRR, [1], None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("epsilon", "message"),
    [
        (True, "epsilon must be a number, or a list of them, not True"),
        ([0.5, True], "epsilon must be a number"),
        ("1", "epsilon must be a number"),
        (b"ab", "epsilon must be a number"),
        (None, "epsilon must be a number"),
        ([1, None], "epsilon must be a number"),
        ({0.5, 1.0}, "epsilon must be a number"),
        ([], "a ladder has 1 to 8 levels, not 0"),
        (math.nan, "epsilon must lie in"),
        (-1, "epsilon must lie in"),
    ],
)
def test_an_epsilon_of_the_wrong_kind_is_refused(epsilon: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        GeneralizedRandomizedResponse(epsilon, 5)


SPECIFICATIONS = st.sampled_from(
    [
        *SPECS.values(),
        *({"name": "grr", "domain_size": size} for size in (7, 1000, 2**20)),
        *({"name": name, "domain_size": 100} for name in ("sue", "oue")),
        {"name": "local_hashing", "domain_size": 1000, "buckets": 101},
        {"name": "subset", "domain_size": 1024, "subset_size": 317},
        {"name": "hadamard", "domain_size": 64 * 2**14, "blocks": 32},
        {"name": "brr", "domain_size": 60, "subset_size": 23, "missing": True},
        {"name": "rappor", "bits": 200, "hashes": 8, "cohorts": 64},
        {"name": "sampled_bit", "bits": 32, "missing": True},
        {"name": "split_bits", "bits": 32, "missing": True},
    ]
)
AMOUNTS = st.one_of(st.integers(1, 100), st.integers(1, 10**7), st.integers(1, 4 * 10**7))


@given(SPECIFICATIONS, st.sets(AMOUNTS, min_size=1, max_size=8))
@settings(max_examples=150)
def test_every_ladder_that_is_accepted_is_honoured(
    spec: dict[str, object], amounts: set[int]
) -> None:
    ladder = sorted(amounts)
    try:
        mechanism = build(spec, ladder, "metric")
    except ParameterError as error:
        refusal = str(error)
    else:
        refusal = ""
    if refusal:
        event("refused")
        assert refusal.startswith("level ")
        return
    certified = [mechanism.certified(level) for level in range(mechanism.levels)]
    assert certified == sorted(set(certified))
    assert all(0 < have <= want for have, want in zip(certified, ladder, strict=True))


class TestLimits:
    """From one micro-epsilon to the largest amount that 64-bit thresholds honour."""

    LARGEST = (
        (GRR, 40),
        ({"name": "grr", "domain_size": 2**20}, 40),
        ({"name": "sue", "domain_size": 5}, 80),
        ({"name": "oue", "domain_size": 5}, 40),
        ({"name": "local_hashing", "domain_size": 2**20, "buckets": 3}, 40),
        ({"name": "subset", "domain_size": 1024, "subset_size": 1}, 40),
        ({"name": "subset", "domain_size": 1024, "subset_size": 512}, 40),
        ({"name": "hadamard", "domain_size": 2**20, "blocks": 1}, 40),
        ({"name": "hadamard", "domain_size": 2**20, "blocks": 2**20}, 40),
        ({"name": "brr", "domain_size": 9, "subset_size": 2, "missing": False}, 40),
        ({"name": "brr", "domain_size": 1024, "subset_size": 1, "missing": True}, 40),
        (RAPPOR, 160),
        ({"name": "rappor", "bits": 3, "hashes": 8, "cohorts": 1}, 120),
        ({"name": "threshold", "missing": True}, 40),
        ({"name": "sampled_bit", "bits": 32, "missing": False}, 40),
    )

    @pytest.mark.parametrize(("spec", "epsilon"), LARGEST)
    def test_the_largest_epsilon_is_nearly_reached_and_the_smallest_are_kept_apart(
        self, spec: dict[str, object], epsilon: int
    ) -> None:
        micro = epsilon * 1_000_000
        mechanism = build(spec, [1, 1_000_000, micro], "metric")
        assert micro * 0.999 <= mechanism.certified(2) <= micro
        assert mechanism.certified(1) in (999_999, 1_000_000)
        assert mechanism.certified(0) == 1
        few = build(spec, [1, 2, 3, 10], "metric")
        assert [few.certified(level) for level in range(4)] == [1, 2, 3, 10]
        with pytest.raises(ParameterError, match=r"must be in \[1e-06, "):
            build(spec, [micro + 1], "metric")

    def test_split_bits_end_where_their_first_bit_does(self) -> None:
        spec: dict[str, object] = {"name": "split_bits", "bits": 8, "missing": True}
        mechanism = build(spec, [1, 2, 250_000_000], "metric")
        assert [mechanism.certified(0), mechanism.certified(1)] == [1, 2]
        assert 249_000_000 < mechanism.certified(2) <= 250_000_000
        with pytest.raises(ParameterError, match="level 2"):
            build(spec, [1, 340_000_000], "metric")

    def test_rungs_closer_than_a_grain_are_refused_by_number(self) -> None:
        """At 40 a grain of 2**-64 is 0.013 of epsilon: no room for eight levels of a micro."""
        with pytest.raises(UnrelatedLevelsError, match=r"level [1-7]: 64-bit thresholds cannot"):
            build(GRR, list(range(39_999_993, 40_000_001)), "metric")


def test_the_same_is_built_once_and_a_number_of_another_type_is_still_refused() -> None:
    spec: dict[str, object] = {"name": "grr", "domain_size": 2}
    first = build(spec, [1_000_000], "metric")
    assert build(dict(reversed(spec.items())), [1_000_000], "metric") is first
    assert build(spec, [1_000_000], "another") == first
    for wrong in (2.0, "2"):
        with pytest.raises(ParameterError):
            build({**spec, "domain_size": wrong}, [1_000_000], "metric")
