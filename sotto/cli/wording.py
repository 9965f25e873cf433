"""What the reports of a metric tell, in words, and how far a forged one moves an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sotto.compiled import CompiledMetric

#: Of how many reports the detection floors in a plan's description are.
REPORTS = 10_000


def told(metric: CompiledMetric) -> str:
    """Return what the reports of a metric tell, and with how many what share is noticed."""
    words = _TOLD.get(metric.mechanism.name, _of_type(metric))
    text = words.format(
        symbols=len(metric.labels), question=metric.question, unit=metric.unit, **metric.spec
    )
    floor = detection_floor(metric, REPORTS)
    if floor is not None:
        text += f"; {REPORTS:,} reports tell a share of {100 * floor:.2g} % from none"
    if metric.permanent:
        text += "; one value for the device's life, whose permanent response is never sent"
    return text


#: Where the mechanism says more than the type does.
_TOLD = {
    "threshold": "mean, quantiles and distribution",
    "sampled_bit": "mean, and the share of each of {bits} bits",
    "sampled_bits": "mean, and the share of each of {bits} bits, {count} bits a report",
    "split_bits": "mean, and the share of each of {bits} bits",
    "rappor": "shares of candidate strings, and what they leave unexplained",
    "sampled_vector": "mean of each of {dimensions} coordinates, {sampled} of them a report",
}


def _of_type(metric: CompiledMetric) -> str:
    if metric.type == "survey":
        return "share of yes to {question!r}"
    if metric.type == "number":
        return "mean"
    return "shares of {symbols} symbols"


def detection_floor(metric: CompiledMetric, reports: int) -> float | None:
    """Return the least true share told from none by so many reports of the last rung sent.

    None where the estimates are no shares, or none of which it can be said.
    """
    from mechanisms.estimate import ShareNoise

    pair = _yes(metric, metric.sent - 1)
    if pair is None or metric.type not in ("category", "boolean", "ordinal", "survey"):
        return None
    p, q = pair
    slope, step = (1 - p - q) / (p - q), 1 / (p - q)
    base = reports * q * (1 - q) / (p - q) ** 2
    return ShareNoise(reports, base, ((reports, slope),), step).detection_floor


def influence(metric: CompiledMetric, level: int) -> float | None:
    """Return how far one forged report among n moves an estimate, times n.

    A report that claims a symbol counts (1 - q) / (p - q). Where all bits of a number are sent,
    they can lie together, each by its weight. Whoever forges a report also chooses its coins, and
    so which of a vector's coordinates it is about. None where an estimate is no sum over reports.
    """
    if metric.mechanism.name == "split_bits":
        lies = [_lie(float(p), float(q)) for p, q in metric.mechanism.rungs(level)]
        return sum(w * lie for w, lie in zip(_weights(metric.spec["bits"]), lies, strict=False))
    pair = _yes(metric, level)
    if pair is None:
        return None
    dimensions, sampled = (metric.spec.get(name, 1) for name in ("dimensions", "sampled"))
    assert isinstance(dimensions, int)
    assert isinstance(sampled, int)
    return _lie(*pair) * dimensions / sampled


def _lie(p: float, q: float) -> float:
    return (1 - q) / (p - q)


def _weights(bits: object) -> Sequence[float]:
    """Return the weights of the bits of a number, most significant first."""
    assert isinstance(bits, int)
    return [2.0 ** (bits - 1 - bit) / (2.0**bits - 1) for bit in range(bits)]


def _yes(metric: CompiledMetric, level: int) -> tuple[float, float] | None:
    """Return with what probability a report says yes where that is true, and where it is not."""
    p, q = metric.mechanism.rungs(level)[0]
    return float(p), float(q)
