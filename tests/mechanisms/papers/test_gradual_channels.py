"""Relaxation of any channels: its law, what it costs, and when there is none."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sources import exact_law
from statistical import check_counts

from mechanisms.channel import Channel, bit_channel
from mechanisms.errors import ParameterError, UnrelatedRungsError
from mechanisms.exact import loss_micro
from mechanisms.papers.gradual_release.channels import ChannelLadder, channel_of
from mechanisms.testing import SeededSource

SEED = 20260304


def row(draw: st.DrawFn, size: int) -> tuple[Fraction, ...]:
    weights = [draw(st.integers(1, 9)) for _ in range(size)]
    return tuple(Fraction(weight, sum(weights)) for weight in weights)


@st.composite
def ladders(draw: st.DrawFn) -> ChannelLadder:
    """Three channels, each made of the next, over two or three values, all reports possible."""
    inputs = draw(st.integers(2, 3))
    sizes = [draw(st.integers(2, 3)) for _ in range(3)]
    channels = [Channel(tuple(row(draw, sizes[2]) for _ in range(inputs)))]
    for inner, outer in ((sizes[2], sizes[1]), (sizes[1], sizes[0])):
        channels.insert(0, channels[0].then(Channel(tuple(row(draw, outer) for _ in range(inner)))))
    return ChannelLadder(tuple(channels))


@given(ladders())
@settings(max_examples=40)
def test_forward_chains_cost_what_the_last_report_does(ladder: ChannelLadder) -> None:
    """And every report has the law of its channel; enumerated."""
    sizes = [range(channel.outputs) for channel in ladder.channels]
    kernels = [ladder.kernel(level) for level in (1, 2)]
    laws = []
    for x in range(ladder.channels[0].inputs):
        laws.append(
            {
                (a, b, c): ladder.channels[0].rows[x][a] * kernels[0][x][a][b] * kernels[1][x][b][c]
                for a, b, c in itertools.product(*sizes)
            }
        )
    for x, law in enumerate(laws):
        for level, channel in enumerate(ladder.channels):
            for output in range(channel.outputs):
                total = sum(share for outs, share in law.items() if outs[level] == output)
                assert total == channel.rows[x][output]
    ratios = [
        max(column) / min(column)
        for column in ([law[outs] for law in laws] for outs in laws[0])
        if min(column) > 0
    ]
    assert loss_micro(max(ratios)) <= ladder.certified(2)


def test_draws_follow_their_laws() -> None:
    weak, strong = (
        bit_channel(Fraction(5, 8), Fraction(3, 8)),
        bit_channel(Fraction(3, 4), Fraction(1, 4)),
    )
    ladder = ChannelLadder((weak, strong))
    step = ladder.steps[0].rows
    assert step == ((Fraction(3, 4), Fraction(1, 4)), (Fraction(1, 4), Fraction(3, 4)))
    law = exact_law(lambda source: tuple(ladder.draw(1, source)))
    for outputs, share in law.items():
        assert share == strong.rows[1][outputs[1]] * step[outputs[1]][outputs[0]]
    # What is drawn by rejection takes any number of bits, so that it is sampled.
    source, n = SeededSource(SEED), 20_000
    for x, before in itertools.product((0, 1), repeat=2):
        seen = Counter(ladder.relax(x, before, 1, source) for _ in range(n))
        expected = ladder.kernel(1)[x][before]
        check_counts([seen[0], seen[1]], expected, label=f"seed {SEED}")
        if x == before:
            with pytest.raises(AssertionError):
                check_counts([seen[1], seen[0]], expected)


def test_where_there_is_no_relaxation_the_channels_are_named() -> None:
    low, high = (bit_channel(Fraction(p, 10), 1 - Fraction(p, 10)) for p in (6, 9))
    with pytest.raises(UnrelatedRungsError, match="channel 1 cannot be relaxed to channel 2"):
        ChannelLadder((low, high, low))
    assert ChannelLadder((low, low, high)).levels == 3


def test_what_does_not_fit_is_refused() -> None:
    ladder = ChannelLadder((bit_channel(Fraction(1, 2), Fraction(1, 2)),))
    assert (ladder.levels, ladder.certified(0)) == (1, 0)
    two = ChannelLadder((channel_of([[0.5, 0.5], [0.5, 0.5]]), channel_of([[1, 0], [0, 1]])))
    for call in (
        lambda: ChannelLadder(()),
        lambda: ladder.relax(0, 0, 1, SeededSource(1)),
        lambda: ladder.kernel(1),
        lambda: two.kernel(0),
        lambda: two.draw(2, SeededSource(1)),
        lambda: two.draw(-1, SeededSource(1)),
        lambda: two.relax(0, 2, 1, SeededSource(1)),
        lambda: two.certified(1),
        lambda: channel_of([[0.5, 0.6]]),
        lambda: channel_of([[1.5, -0.5]]),
        lambda: channel_of([[math.nan, 1.0]]),
        lambda: channel_of([[math.inf, 1.0]]),
        lambda: channel_of([[0.5, 0.5], [1.0]]),
    ):
        with pytest.raises(ParameterError):
            call()


def test_a_report_that_is_impossible_for_the_value_is_refused() -> None:
    sure = channel_of([[1, 0], [0, 1]])
    ladder = ChannelLadder((sure, sure))
    assert ladder.relax(1, 1, 1, SeededSource(1)) == 1
    with pytest.raises(ParameterError, match="impossible"):
        ladder.relax(1, 0, 1, SeededSource(1))
