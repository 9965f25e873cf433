"""Degradations of a level into the next weaker one, in integers over 2**64.

An output of the level above is moved, without another look at the value, in three ways. A cell goes
to one of the ends with some probability, to the upper end the likelier the higher the cell is: a
position becomes a bit of the same mean. Gone becomes one of the ends (a cell where there are no
ends), either alike, with some probability. Then the output is replaced, with some probability, by a
draw whose law gives every output what it lacks to come within the weaker amount. Both probabilities
are chosen for the least worst-case variance of the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

from mechanisms.errors import ParameterError, UnrelatedLevelsError
from mechanisms.exact import ceil_fraction, exp_micro
from mechanisms.frozen import NamedTuple
from mechanisms.levels import GRAINS
from mechanisms.number.laws import Law, Shape, worst_variance

#: Probabilities of moving are multiples of one over this.
_PARTS = 32
#: Rounding to 2**-64 moves a likelihood ratio by far less than this.
_MARGIN = 1 - Fraction(1, 1 << 50)
_COARSE = 1 << 40

#: How many of :data:`_PARTS` of the cells, and of gone, are moved.
Parts = tuple[int, int]


class Degradation(NamedTuple):
    """A degradation, in grains of 2**64.

    ``cell``, ``end`` and ``gone`` are what every output gives to each cell, to each end and to
    gone. A cell besides gives ``lift`` to each end, ``slope`` times its position more to the
    upper one and less to the lower one, positions being odd or even integers around zero; gone
    gives ``stray`` to each end, or cell. The rest stays.
    """

    cell: int
    end: int
    gone: int
    lift: int = 0
    slope: int = 0
    stray: int = 0


def kept(shape: Shape, step: Degradation) -> int:
    """Return the grains with which an end stays what it is."""
    noise = shape.cells * step.cell + 2 * shape.ends * step.end + shape.missing * step.gone
    return GRAINS - noise


def steps_below(
    shape: Shape, law: Law, ladder: Sequence[int]
) -> tuple[tuple[Degradation, ...], tuple[Law, ...]]:
    """Return the steps below the strongest level and the laws of all levels, weakest first."""
    steps: list[Degradation] = []
    laws = [law]
    for micro in reversed(ladder[:-1]):
        step = degrade(shape, laws[0], micro)
        steps.insert(0, step)
        laws.insert(0, after(shape, laws[0], step))
    return tuple(steps), tuple(laws)


def degrade(shape: Shape, law: Law, micro: int) -> Degradation:
    """Return the step to the level of a weaker amount, ``law`` being that of the level above."""
    bound = exp_micro(micro)[0]
    largest, smallest = law.worst(shape)
    if not bound * smallest < largest:
        raise UnrelatedLevelsError("64-bit thresholds cannot place a level below the one above it")
    rough, coarse = law.rounded(), Fraction(int(bound * _COARSE), _COARSE)

    def variance(parts: Parts) -> Fraction | None:
        step = _step(shape, rough, coarse, parts)
        found = step and after(shape, rough, step).rounded()
        if found is None or (shape.missing and not found.gone > found.here):
            return None
        # Otherwise the outputs say nothing about the number.
        told = found.inside > found.outside or found.high > found.low
        return worst_variance(shape, found) if told else None

    step = _step(shape, law, bound * _MARGIN, _search(shape, law, variance))
    if step is None:
        raise ParameterError("the epsilon is too small for these inputs and 64-bit thresholds")
    return step


def after(shape: Shape, law: Law, step: Degradation) -> Law:
    lift, slope, stray = (Fraction(each, GRAINS) for each in step[3:])
    noise = tuple(Fraction(each, GRAINS) for each in step[:3])
    return _moved(shape, law, Fraction(kept(shape, step), GRAINS), noise, lift, slope, stray)


def rows_of(shape: Shape, step: Degradation) -> tuple[tuple[int, ...], ...]:
    """Return the rows of a step, one an output of the level above; each sums to 2**64."""
    cells, stays = shape.cells, kept(shape, step)
    noise = [step.cell] * cells + [step.end] * (2 * shape.ends) + [step.gone] * shape.missing
    rows = []
    for output in range(shape.size):
        row = noise.copy()
        row[output] += stays
        if output < cells and step.lift:
            tilt = step.slope * (2 * output - (cells - 1))
            row[output] -= 2 * step.lift
            row[cells] += step.lift - tilt
            row[cells + 1] += step.lift + tilt
        rows.append(row)
    if step.stray:
        first = cells if shape.ends else 0
        for place in range(first, first + _places(shape)):
            rows[-1][place] += step.stray
        rows[-1][-1] -= _places(shape) * step.stray
    return tuple(tuple(row) for row in rows)


def _places(shape: Shape) -> int:
    return 2 if shape.ends else shape.cells


def _search(shape: Shape, law: Law, variance: Callable[[Parts], Fraction | None]) -> Parts:
    most = (_PARTS * (shape.ends and law.inside > 0), (_PARTS - 1) * shape.missing)
    tried: dict[Parts, Fraction | None] = {}

    def worse(parts: Parts) -> tuple[bool, Fraction]:
        if parts not in tried:
            tried[parts] = variance(parts)
        found = tried[parts]
        return found is None, found or Fraction(0)

    corners = {(cells, gone) for cells in (0, most[0]) for gone in (0, most[1] // 2)}
    best = min(sorted(corners | {(most[0] // 2, most[1] // 8)}), key=worse)
    stride = _PARTS // 4
    while stride:
        near = [
            (best[0] + right, best[1] + up)
            for right, up in ((0, 0), (stride, 0), (-stride, 0), (0, stride), (0, -stride))
            if 0 <= best[0] + right <= most[0] and 0 <= best[1] + up <= most[1]
        ]
        found = min(near, key=worse)
        stride, best = (stride // 2 if found == best else stride), found
    return best


def _step(shape: Shape, law: Law, bound: Fraction, parts: Parts) -> Degradation | None:
    """Return the step that moves parts of the cells and of gone, with the least noise then."""
    lifted, strayed = (Fraction(part, _PARTS) for part in parts)
    slope = lifted / 2 / max(shape.cells - 1, 1)
    moved = _moved(shape, law, 1, (0, 0, 0), lifted / 2, slope, strayed / _places(shape))
    needs = [largest - bound * smallest for largest, smallest in moved.columns(shape)]
    cell, end, gone = (max(need, Fraction(0)) for need in needs)
    total = shape.cells * cell + 2 * shape.ends * end + shape.missing * gone + bound - 1
    grains = [2 * ceil_fraction(GRAINS * need / total / 2) for need in (cell, end, gone)]
    step = Degradation(*grains)
    stays = kept(shape, step)
    if not stays > 0:
        return None
    lift = int(lifted * stays / 2)
    tilt, stray = lift // max(shape.cells - 1, 1), int(strayed * stays / _places(shape))
    return step._replace(lift=lift, slope=tilt, stray=stray)


def _moved(
    shape: Shape,
    law: Law,
    stays: Fraction | int,
    noise: Sequence[Fraction | int],
    lift: Fraction,
    slope: Fraction,
    stray: Fraction,
) -> Law:
    """Return the law after a step; its parts, of one, are named as those of Degradation."""
    cell, end, gone = noise
    excess = (law.inside - law.outside) * shape.width
    lifted = lift * (shape.cells * law.outside + excess)
    sloped = slope * excess * shape.steps
    cell_stays, gone_stays = stays - 2 * lift, stays - _places(shape) * stray
    to_cell, to_end = (0, stray) if shape.ends else (stray, 0)
    return Law(
        inside=law.inside * cell_stays + cell + law.here * to_cell,
        outside=law.outside * cell_stays + cell + law.here * to_cell,
        blank=law.blank * cell_stays + cell + law.gone * to_cell,
        high=law.high * stays + end + lifted + law.here * to_end + sloped,
        low=law.low * stays + end + lifted + law.here * to_end - sloped,
        middle=law.middle * stays + end + lift * shape.cells * law.blank + law.gone * to_end,
        gone=law.gone * gone_stays + gone,
        here=law.here * gone_stays + gone,
    )
