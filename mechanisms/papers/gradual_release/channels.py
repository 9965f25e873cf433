"""Relaxation between any finite mechanisms, where there is one.

A weaker channel can be relaxed to a stronger one if and only if it is a degradation of it: C1 =
C2 T for a stochastic T that does not see the value. Then o2 is drawn with
Pr(o2 | o1, x) = C2[x, o2] T[o2, o1] / C1[x, o1], and all reports together cost what the last one
does: their probability is Cn[x, on] times a product of T's, and x is in the first factor alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from mechanisms.channel import Channel
from mechanisms.degradation import degradation, forward_kernel
from mechanisms.errors import ParameterError, UnrelatedRungsError
from mechanisms.randomness import Source
from mechanisms.sampling import choose

#: Rows of floats may miss a sum of one by so much.
_ROW_ERROR = Fraction(1, 10**9)


@dataclass(frozen=True)
class ChannelLadder:
    """Channels over the same values, each relaxed to the next.

    Exact rationals throughout, with no rounding at all; for channels of some tens of values.

    Parameters
    ----------
    channels : tuple of Channel
        Weakest first; see :func:`channel_of` for channels given as numbers.

    Raises
    ------
    ParameterError
        There are no channels, or they have different numbers of inputs.
    UnrelatedRungsError
        A channel is no degradation of the next one, so that no relaxation exists; the message
        says which.

    Privacy
    -------
    Any two values are neighbours. The reports up to a level together cost what that level costs
    alone, :meth:`certified`. :meth:`relax` and :meth:`draw` have the same law.

    References
    ----------
    D. Blackwell, "Equivalent Comparisons of Experiments", Annals of Mathematical Statistics 24(2),
    1953. Algorithm 1 of M. Pan, arXiv:2401.13952, is the case of randomized response.

    Examples
    --------
    >>> from mechanisms.testing import SeededSource
    >>> weak = channel_of([[0.55, 0.45], [0.35, 0.65]])
    >>> strong = channel_of([[0.75, 0.25], [0.25, 0.75]])
    >>> ladder = ChannelLadder((weak, strong))
    >>> ladder.steps[0].rows[0]
    (Fraction(13, 20), Fraction(7, 20))
    >>> ladder.relax(0, 1, 1, SeededSource(1)) in (0, 1)
    True
    >>> ChannelLadder((strong, weak))
    Traceback (most recent call last):
    mechanisms.errors.UnrelatedRungsError: channel 0 cannot be relaxed to channel 1: it is no \
degradation of it, so that some reports of the stronger would have to see the value again
    """

    channels: tuple[Channel, ...]

    def __post_init__(self) -> None:
        if not self.channels:
            raise ParameterError("a ladder needs at least one channel")
        _ = self.steps

    @cached_property
    def steps(self) -> tuple[Channel, ...]:
        """The degradations: ``steps[k]`` makes a report of channel k of one of channel k + 1."""
        steps = []
        for number, (weak, strong) in enumerate(pairwise(self.channels)):
            try:
                steps.append(degradation(weak, strong))
            except UnrelatedRungsError:
                raise UnrelatedRungsError(
                    f"channel {number} cannot be relaxed to channel {number + 1}: it is no "
                    "degradation of it, so that some reports of the stronger would have to see "
                    "the value again"
                ) from None
        return tuple(steps)

    @property
    def levels(self) -> int:
        """The number of channels."""
        return len(self.channels)

    def certified(self, level: int) -> int:
        """Return what all reports up to a level cost together, in micro-epsilon, rounded up.

        Raises
        ------
        ParameterError
            A report of that level tells values apart with certainty.
        """
        return self.channels[level].certified

    def draw(self, value: int, source: Source) -> list[int]:
        """Draw a whole chain backward; return its reports, weakest first."""
        last = self.channels[-1]
        if not 0 <= value < last.inputs:
            raise ParameterError(f"a value must lie in [0, {last.inputs})")
        out = [choose(_weights(last.rows[value]), source)]
        for step in reversed(self.steps):
            out.append(choose(_weights(step.rows[out[-1]]), source))
        return out[::-1]

    def kernel(self, level: int) -> tuple[tuple[tuple[Fraction, ...], ...], ...]:
        """Return the law of the report of ``level`` given value and previous report.

        Returns
        -------
        nested tuple
            ``kernel[x][o1][o2]``; all zero where ``o1`` is impossible for ``x``.
        """
        self._check(level)
        return forward_kernel(self.channels[level], self.steps[level - 1])

    def relax(self, value: int, previous: int, level: int, source: Source) -> int:
        """Draw the report of ``level`` given the value and the report of the level below.

        Raises
        ------
        ParameterError
            The value, the previous report or the level is none of the ladder, or the previous
            report is impossible for the value.
        """
        self._check(level)
        strong, step = self.channels[level], self.steps[level - 1]
        if not (0 <= value < strong.inputs and 0 <= previous < step.outputs):
            raise ParameterError(
                f"a value must lie in [0, {strong.inputs}), a report in [0, {step.outputs})"
            )
        joint = [
            likely * row[previous]
            for likely, row in zip(strong.rows[value], step.rows, strict=True)
        ]
        if not any(joint):
            raise ParameterError("the previous report is impossible for the value")
        return choose(_weights(joint), source)

    def _check(self, level: int) -> None:
        if not 1 <= level < self.levels:
            raise ParameterError(f"level must lie in [1, {self.levels}), not {level}")


def channel_of(rows: Sequence[Sequence[float | Fraction]]) -> Channel:
    """Return a channel from numbers; floats are the decimals that they print as.

    Rows whose sum misses one by less than 1e-9 are divided by it.

    Raises
    ------
    ParameterError
        A number is not finite or negative, or a row's sum is off.

    Examples
    --------
    >>> channel_of([[0.1, 0.9]]).rows
    ((Fraction(1, 10), Fraction(9, 10)),)
    """
    exact = []
    for number, row in enumerate(rows):
        try:
            entries = [x if isinstance(x, Fraction) else Fraction(repr(float(x))) for x in row]
        except ValueError:
            raise ParameterError(f"row {number} of a channel has an entry that is none") from None
        total = sum(entries, Fraction(0))
        if not abs(total - 1) <= _ROW_ERROR:
            raise ParameterError(f"row {number} of a channel sums to {float(total)}, not to 1")
        exact.append(tuple(entry / total for entry in entries))
    return Channel(tuple(exact))


def _weights(probabilities: Sequence[Fraction]) -> dict[int, int]:
    scale = math.lcm(*(entry.denominator for entry in probabilities))
    return {index: int(entry * scale) for index, entry in enumerate(probabilities) if entry}
