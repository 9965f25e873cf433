"""The state of forward relaxation: its law, its refusals, and what they prevent."""

from __future__ import annotations

from typing import Any

import pytest
from small import SPECS, head_law, joint_law
from statistical import check_counts

from mechanisms.registry import build
from mechanisms.testing import SeededSource
from papers.gradual_release.state import RelaxationState, RelaxationStateError

SEED = 20260303
LADDER = [500_000, 1_000_000, 2_000_000]
ID = bytes(range(16))


def state_of(name: str, symbol: Any, source: SeededSource) -> RelaxationState:
    return RelaxationState(build(SPECS[name], LADDER, "m"), symbol, ID, ID, source)


@pytest.mark.parametrize(
    ("name", "value", "other"),
    [
        ("grr2", 1, 0),
        ("oue2", 1, 0),
        ("brr4", 3, 0),
        ("hadamard3", 2, 0),
        ("sampled", 0.4, 1.0),
        ("split-missing", 0.4, None),
        ("bits-missing", 0.4, None),
        ("wave", 0.4, None),
        ("top", (2, 0, 1), (0, 2, 1)),
    ],
)
def test_reports_follow_the_law_of_a_chain(name: str, value: Any, other: Any) -> None:
    source, n = SeededSource(SEED), 1000
    mechanism = build(SPECS[name], LADDER, "m")
    law = joint_law(mechanism, value, ID)
    seen: dict[tuple[int, ...], int] = dict.fromkeys(law, 0)
    for _ in range(n):
        state = RelaxationState(mechanism, value, ID, ID, source)
        for _ in range(2):
            state.relax(value, state.outputs[-1], source)
        seen[tuple(int.from_bytes(each, "little") for each in state.outputs)] += 1
    check_counts(list(seen.values()), list(law.values()), label=f"{name} seed {SEED}")
    wrong = head_law(joint_law(mechanism, other, ID), 3)
    with pytest.raises(AssertionError):
        check_counts(list(seen.values()), [wrong[key] for key in seen])


@pytest.mark.parametrize(
    ("spec", "value"),
    [
        ({"name": "grr", "domain_size": 5000}, 5),
        ({"name": "subset", "domain_size": 100, "subset_size": 27}, 7),
        ({"name": "split_bits", "bits": 32, "missing": True}, 0.3),
        ({"name": "sampled_vector", "dimensions": 40, "sampled": 20, "bits": 8}, (0.3,) * 40),
    ],
)
def test_outputs_may_be_too_many_to_enumerate(spec: dict[str, Any], value: Any) -> None:
    source, mechanism = SeededSource(SEED), build(spec, LADDER, "m")
    state = RelaxationState(mechanism, value, ID, ID, source)
    for _ in range(2):
        assert mechanism.output_of(state.relax(value, state.outputs[-1], source)) >= 0


def test_what_changes_is_refused_and_changes_nothing() -> None:
    source = SeededSource(SEED)
    state = state_of("grr5", 3, source)
    [first] = state.outputs
    for symbol, previous, words in (
        (2, first, "the value"),
        (None, first, "the value"),
        (3, bytes([(first[0] + 1) % 5]), "previous report"),
        (3, first + b"\0", "previous report"),
    ):
        with pytest.raises(RelaxationStateError, match=words):
            state.relax(symbol, previous, source)
    assert state.outputs == (first,)
    for _ in range(2):
        state.relax(3, state.outputs[-1], source)
    with pytest.raises(RelaxationStateError, match="no level 3"):
        state.relax(3, state.outputs[-1], source)


def test_no_message_holds_the_value() -> None:
    state = state_of("rappor", b"secret", SeededSource(1))
    with pytest.raises(RelaxationStateError) as caught:
        state.relax(b"another", state.outputs[-1], SeededSource(1))
    assert "secret" not in str(caught.value)
    assert "another" not in str(caught.value)
    assert "secret" not in repr(vars(state))
