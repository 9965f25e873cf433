"""How well two reports of a constant metric can be recognized as of one device.

All that a device ever reports of a constant metric is drawn from one permanent response. Reports
drawn from one response resemble each other more than those drawn from two, also where both are of
the same value; a response with many possible outputs is all but unique.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mechanisms.base import Mechanism
    from sotto.plan.compiled import CompiledMetric

#: Among so many devices one is looked for, each of them in turn.
DEVICES = 1000
#: A plan is warned of where the right one is found more often: a guess is right in 1 of 1000.
MUCH = 0.01
_NO_ID = bytes(16)
#: For what is too small for the difference of two floats.
_TINY = 1e-300
#: The seed of the simulation, so that a plan always gets the same figure.
_SEED = 19


def recognized(metric: CompiledMetric) -> float:
    """Return how often a report of a constant metric picks its device's of another period.

    So many devices have the same value and a permanent response each, and send two reports, both
    at the strongest level that leaves a device. The second that is likeliest to be drawn from the
    same response as a given first one is picked. The part of trials in which that is the right one
    is returned, from a simulation with a fixed seed; where bits have laws of their own their mean
    is taken, so that who takes each for itself picks better.
    """
    from mechanisms.testing import SeededSource

    mechanism, source = metric.mechanism, SeededSource(_SEED)
    symbol = metric.encode(_any_value(metric))
    first: list[int] = []
    second: list[int] = []
    for _ in range(DEVICES):
        response = mechanism.draw_last(symbol, _NO_ID, _NO_ID, source)
        for reports in (first, second):
            payload = mechanism.weaker(response, source)[-1]
            reports.append(int.from_bytes(payload, "little"))
    if mechanism.chain.independent_bits:
        return _by_bits(first, second, *_weights(mechanism, metric.sent))
    # Other payloads are kept or drawn anew, so that the same one is the likeliest.
    number = Counter(second)
    same = [one for one, two in zip(first, second, strict=True) if one == two]
    return sum(1 / number[one] for one in same) / DEVICES


def warnings(metrics: Sequence[CompiledMetric]) -> list[str]:
    """Return a line for each constant metric that makes devices recognizable."""
    return [
        f"metric {metric.name!r}: a report picks that of the same device in another period out of "
        f"those of {DEVICES} devices in {found:.1%} of trials, so that its pseudonyms can be "
        f"linked (fewer values, or sent levels much weaker than the last, make that rarer)"
        for metric in metrics
        if metric.kind == "constant"
        for found in (recognized(metric),)
        if found > MUCH
    ]


def _any_value(metric: CompiledMetric) -> object:
    if metric.domain is not None:
        return metric.edges[0] if metric.edges else metric.domain[0]
    if metric.range is not None:
        return metric.range[0]
    return "" if metric.type == "string" else False


def _weights(mechanism: Mechanism, sent: int) -> tuple[float, float]:
    """Return how the logarithm of the likelihood ratio weighs common bits, and all that are set.

    The weights of one bit that the value leaves at 0: it is set in the response, which is then sent
    twice.
    """
    permanent, seen = (
        sum(q for _, q in laws) / len(laws)
        for laws in map(mechanism.probabilities, (sent, sent - 1))
    )
    flip = (seen - permanent) / (1 - 2 * permanent)
    both = permanent * (1 - flip) ** 2 + (1 - permanent) * flip**2
    one, none = seen - both, 1 - 2 * seen + both
    common = log(max(both, _TINY) / seen**2)
    apart = log(max(one, _TINY) / (seen * (1 - seen)))
    neither = log(max(none, _TINY) / (1 - seen) ** 2)
    return common - 2 * apart + neither, apart - neither


def _by_bits(first: list[int], second: list[int], common: float, single: float) -> float:
    found = 0.0
    rest = [single * two.bit_count() for two in second]
    for right, one in enumerate(first):
        scores = [
            common * (one & two).bit_count() + other
            for two, other in zip(second, rest, strict=True)
        ]
        best = max(scores)
        if scores[right] == best:
            found += 1 / scores.count(best)
    return found / len(first)
