"""The state of forward relaxation: its law, its refusals, and what they prevent."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from small import SPECS, chain_law, head_law
from statistical import check_counts

from mechanisms.errors import ParameterError
from mechanisms.registry import build
from mechanisms.testing import SeededSource
from papers.gradual_release.state import RelaxationState, RelaxationStateError

SEED = 20260303
LADDER = [500_000, 1_000_000, 2_000_000]
ID = bytes(range(16))


def state_of(name: str, symbol: Any, source: SeededSource, level: int = 0) -> RelaxationState:
    return RelaxationState(build(SPECS[name], LADDER, "m"), symbol, ID, ID, source, level)


@pytest.mark.parametrize("jump", [False, True])
@pytest.mark.parametrize("name", ["grr2", "oue2"])
def test_reports_follow_the_law_of_a_chain(name: str, jump: bool) -> None:
    source, n = SeededSource(SEED), 6000
    mechanism = build(SPECS[name], LADDER, "m")
    encoded = 1 if name == "grr2" else 2
    law = chain_law(mechanism.chain, encoded)  # type: ignore[attr-defined]
    seen: dict[tuple[int, ...], int] = dict.fromkeys(law, 0)
    for _ in range(n):
        state = RelaxationState(mechanism, 1, ID, ID, source)
        if jump:
            state.relax(1, state.output, source, level=2)
        else:
            for _ in range(2):
                state.relax(1, state.output, source)
        seen[tuple(int.from_bytes(each, "little") for each in state.outputs)] += 1
    check_counts(list(seen.values()), list(law.values()), label=f"{name} seed {SEED}")
    wrong = head_law(chain_law(mechanism.chain, 0 if name == "grr2" else 1), 3)  # type: ignore[attr-defined]
    with pytest.raises(AssertionError):
        check_counts(list(seen.values()), [wrong[key] for key in seen])


def test_what_changes_is_refused_and_changes_nothing() -> None:
    source = SeededSource(SEED)
    state = state_of("grr5", 3, source)
    first = state.output
    other = bytes([(first[0] + 1) % 5])
    for arguments, words in (
        ((2, first), "the value"),
        ((None, first), "the value"),
        ((3, other), "previous report"),
        ((3, b""), "previous report"),
        ((3, first + b"\0"), "previous report"),
        ((3, first, 0), "not above"),
        ((3, first, -1), "not above"),
        ((3, first, 3), "no level 3"),
    ):
        symbol, previous, *level = arguments
        with pytest.raises(RelaxationStateError, match=words):
            state.relax(symbol, previous, source, *level)
    assert (state.level, state.outputs) == (0, (first,))
    second = state.relax(3, first, source)
    with pytest.raises(RelaxationStateError, match="previous report is not the last"):
        state.relax(3, other if second == first else first, source)
    with pytest.raises(RelaxationStateError, match="not above"):
        state.relax(3, second, source, 1)
    state.relax(3, second, source)
    with pytest.raises(RelaxationStateError, match="no level"):
        state.relax(3, state.output, source)
    assert (state.level, len(state.outputs), state.certified) == (2, 3, 2_000_000)


def test_no_message_holds_the_value() -> None:
    state = state_of("rappor", b"secret", SeededSource(1))
    with pytest.raises(RelaxationStateError) as caught:
        state.relax(b"another", state.output, SeededSource(1))
    assert "secret" not in str(caught.value)
    assert "another" not in str(caught.value)
    assert "secret" not in repr(vars(state))


@pytest.mark.parametrize("act", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_state_is_not_copied(act: Any) -> None:
    with pytest.raises(TypeError, match="draw a level twice"):
        act(state_of("grr2", 0, SeededSource(1)))


def _relax_in_child(state: RelaxationState, answers: Any) -> None:
    try:
        state.relax(0, state.output, SeededSource(1))
    except RelaxationStateError as error:
        answers.put(str(error))


@pytest.mark.real_randomness
def test_a_fork_of_the_process_cannot_go_on() -> None:
    context = multiprocessing.get_context("fork")
    state, answers = state_of("grr2", 0, SeededSource(1)), context.SimpleQueue()
    child = context.Process(target=_relax_in_child, args=(state, answers))
    child.start()
    child.join(600)
    assert child.exitcode == 0
    assert "process" in answers.get()


@pytest.mark.parametrize(
    ("name", "symbol", "same"),
    [
        ("grr5", 3, np.int64(3)),
        ("threshold", 0.25, np.float64(0.25)),
        ("threshold-missing", None, None),
        ("rappor", b"abc", b"abc"),
        ("split", 0.4, 0.4),
    ],
)
def test_values_that_are_equal_are_the_same(name: str, symbol: Any, same: Any) -> None:
    source = SeededSource(3)
    state = state_of(name, symbol, source)
    if isinstance(same, np.int64):
        same = int(same)
    state.relax(same, state.output, source)
    assert state.level == 1


def test_a_level_outside_the_ladder_is_refused() -> None:
    assert state_of("grr2", 0, SeededSource(1), 2).certified == 2_000_000
    for level in (-1, 3):
        with pytest.raises(ParameterError, match="level"):
            state_of("grr2", 0, SeededSource(1), level)
