"""What the reports of a metric tell, in words, and how far a forged one moves an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from fractions import Fraction

    from mechanisms.ladders import LadderedMechanism
    from sotto.compiled import CompiledMetric

#: Of how many reports the detection floors in a plan's description are.
REPORTS = 10_000


class Said(NamedTuple):
    """What one report says to a question about its device, whose true answer is 0 or 1.

    Parameters
    ----------
    no, yes : float
        Variance of its unbiased contribution where the answer is 0, and where it is 1.
    step : float
        The largest difference between two contributions.
    lie : float
        The largest distance of a contribution from the true answer.
    """

    no: float
    yes: float
    step: float
    lie: float

    @classmethod
    def of(cls, p: float, q: float) -> Said:
        """Return what is said by a yes that has probability p if it is true, and q if not."""
        gap = p - q
        return cls(q * (1 - q) / gap**2, p * (1 - p) / gap**2, 1 / gap, (1 - q) / gap)


def told(metric: CompiledMetric) -> str:
    """Return what the reports of a metric tell, and with how many what share is noticed."""
    words = _TOLD.get(metric.mechanism.name) or _OF_TYPE.get(metric.type, "shares of {symbols}")
    text = words.format(
        symbols=f"{len(metric.labels)} symbols", question=metric.question, **metric.spec
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
    "square_wave": "mean; quantiles and distribution, biased toward a smooth one",
    "sampled_bit": "mean, and the share of each of {bits} bits",
    "sampled_bits": "mean, and the share of each of {bits} bits, {count} bits a report",
    "split_bits": "mean, and the share of each of {bits} bits",
    "rappor": "shares of candidate strings, and what they leave unexplained",
    "sampled_vector": "mean of each of {dimensions} coordinates, {sampled} of them a report",
}
_OF_TYPE = {"number": "mean", "survey": "share of yes to {question!r}"}


def detection_floor(metric: CompiledMetric, reports: int) -> float | None:
    """Return the least true share told from none by so many reports of the last rung sent.

    None where the estimates are no shares, or none of which it can be said.
    """
    from mechanisms.estimate import ShareNoise

    said = _said(metric, metric.sent - 1)
    if said is None or metric.type not in ("category", "boolean", "ordinal", "survey"):
        return None
    slope = said.yes - said.no
    return ShareNoise(reports, reports * said.no, ((reports, slope),), said.step).detection_floor


def influence(metric: CompiledMetric, level: int) -> float | None:
    """Return how far one forged report among n moves an estimate, times n.

    A report that claims a symbol counts (1 - q) / (p - q); shares lie in [0, 1], and so do
    numbers once scaled. Where all bits of a number are sent, they can lie together, each by its
    weight. Whoever forges a report also chooses its coins, and so which of a vector's coordinates
    it is about. None where an estimate is no sum over reports.
    """
    spec = metric.spec
    if metric.mechanism.name == "split_bits" and isinstance(bits := spec["bits"], int):
        weights = [2.0 ** (bits - 1 - bit) / (2.0**bits - 1) for bit in range(bits)]
        pairs = metric.mechanism.rungs(level)
        return sum(w * Said.of(*map(float, pq)).lie for w, pq in zip(weights, pairs, strict=False))
    said = _said(metric, level)
    if said is None:
        return None
    dimensions, sampled = spec.get("dimensions", 1), spec.get("sampled", 1)
    assert isinstance(dimensions, int)
    assert isinstance(sampled, int)
    return said.lie * dimensions / sampled


def _said(metric: CompiledMetric, level: int) -> Said | None:
    mechanism = metric.mechanism
    if metric.type == "survey":
        return _surveyed(mechanism, level)
    if mechanism.name in ("duchi", "piecewise", "hybrid", "square_wave"):
        return _gridded(mechanism, level)
    pair = support(mechanism, level)
    return None if pair is None else Said.of(*map(float, pair))


def _surveyed(mechanism: LadderedMechanism, level: int) -> Said:
    from mechanisms.surveys.estimates import contribution
    from mechanisms.surveys.ladders import SurveyLadder

    assert isinstance(mechanism, SurveyLadder)
    part = contribution(mechanism.rows(level), mechanism.answers)
    low, high = min(part.scores), max(part.scores)
    return Said(part.no, part.yes, high - low, max(high, 1 - low))


def _gridded(mechanism: LadderedMechanism, level: int) -> Said:
    """Return what is said of a number in [0, 1]; its variances are of no use here."""
    from mechanisms.numbers.contributions import contributions
    from mechanisms.numbers.duchi import DuchiLadder
    from mechanisms.numbers.gridded import GridLadder

    assert isinstance(mechanism, DuchiLadder | GridLadder)
    values = contributions(mechanism.shape, mechanism.laws[level]).value
    most = float(max(map(abs, values)))
    return Said(most, most, 2 * most, most + 0.5)


def support(mechanism: LadderedMechanism, level: int) -> tuple[Fraction, Fraction] | None:
    """Return with what probability a report says yes to what is true, and to what is not."""
    p, q = mechanism.rungs(level)[0]
    return p, q
