"""What the reports of a metric tell, in words, and how far a forged one moves an estimate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sotto.plan.compiled import CompiledMetric, CompiledPlan

#: Of how many reports the detection floors in a plan's description are.
REPORTS = 10_000


def told(metric: CompiledMetric) -> str:
    """Return what the reports of a metric tell, and with how many what share is noticed."""
    words = _TOLD.get(metric.mechanism.name) or _OF_TYPE.get(metric.type, "shares of {symbols}")
    text = words.format(
        symbols=f"{len(metric.labels)} symbols",
        question=metric.question,
        named=_named_at_most(metric),
        **metric.spec,
    )
    floor = detection_floor(metric, REPORTS)
    if floor is not None:
        text += f"; {REPORTS:,} reports tell a share of {100 * floor:.2g} % from none"
    if metric.permanent:
        text += "; one value for the device's life, whose permanent response is never sent"
    return text


def _named_at_most(metric: CompiledMetric) -> float | None:
    """Return how likely permute-and-flip names an item that leads by all that is counted."""
    from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder

    mechanism = metric.mechanism
    if not isinstance(mechanism, PermuteAndFlipLadder):
        return None
    alone = (mechanism.clip, *[0] * (len(metric.labels) - 1))
    p, q = map(float, mechanism.chain.releases[metric.sent - 1])
    return q + (p - q) * float(mechanism.law(alone)[0])


#: Where the mechanism says more than the type does.
_TOLD = {
    "threshold": "mean, quantiles and distribution",
    "square_wave": "mean; quantiles and distribution, biased toward a smooth one",
    "sampled_bit": "mean, and the share of each of {bits} bits",
    "sampled_bits": "mean, and the share of each of {bits} bits, {count} bits a report",
    "split_bits": "mean, and the share of each of {bits} bits",
    "brr": "shares of {symbols}, the most likely ones where reports do not tell values apart, and "
    "biased there; without bias, the shares of those that they do, and bounds of the mean",
    "rappor": "shares of candidate strings, and what they leave unexplained",
    "permute_and_flip": "what share of devices name each of {symbols} as their most frequent, by "
    "chance the less often the closer others come, and at most {named:.0%} of the time; at most "
    "{clip} of each are counted",
    "top_response": "of what share of devices each of {symbols} is the most frequent; at most "
    "{clip} of each are counted",
    "sampled_hybrid": "mean of each of {dimensions} coordinates, {sampled} of them a report",
    "sampled_vector": "mean of each of {dimensions} coordinates, {sampled} of them a report",
}
_OF_TYPE = {"number": "mean", "survey": "share of yes to {question!r}"}


def detection_floor(metric: CompiledMetric, reports: int) -> float | None:
    """Return the least true share told from none by so many reports of the last rung sent.

    None where the estimates are no shares, or none of which it can be said.
    """
    from mechanisms.estimate import ShareNoise
    from sotto.design.noise import noise_of

    said = noise_of(metric.mechanism, metric.sent - 1)
    if said is None or metric.type not in ("category", "boolean", "ordinal", "survey"):
        return None
    slope = said.yes - said.no
    return ShareNoise(reports, reports * said.no, ((reports, slope),), said.step).detection_floor


def influence(metric: CompiledMetric, level: int) -> float | None:
    """Return how far one forged report among n moves an estimate, times n.

    A report that claims a symbol counts (1 - q) / (p - q), or if that is more, one that denies it
    moves it by p / (p - q); shares lie in [0, 1], and so do
    numbers once scaled. Where all bits of a number are sent, they can lie together, each by its
    weight. Whoever forges a report also chooses its coins, and so which of a vector's coordinates
    it is about. The mean of numbers that can be missing is divided by the share that is present,
    and so is what it is moved by. None where an estimate is no sum over reports, and for strings:
    the regression takes what is not set for evidence too, and weighs it by the other candidates.
    """
    from mechanisms.noise import Noise
    from sotto.design.noise import noise_of

    spec = metric.spec
    if metric.type == "string":
        return None
    if metric.mechanism.name == "split_bits" and isinstance(bits := spec["bits"], int):
        weights = [2.0 ** (bits - 1 - bit) / (2.0**bits - 1) for bit in range(bits)]
        pairs = metric.mechanism.exact(level)
        return sum(w * Noise.of(*pq).lie for w, pq in zip(weights, pairs, strict=False))
    said = noise_of(metric.mechanism, level)
    if said is None:
        return None
    dimensions, sampled = spec.get("dimensions", 1), spec.get("sampled", 1)
    assert isinstance(dimensions, int)
    assert isinstance(sampled, int)
    return said.lie * dimensions / sampled


def least_reports(plan: CompiledPlan) -> list[str]:
    """Return what the plan's ``minimum_reports`` means, in lines."""
    least = plan.minimum_reports
    if least == 1:
        return [
            "minimum_reports 1: nothing is withheld. A window of one report is published, and who",
            "reads the results then sees what that device sent.",
        ]
    few = [
        f"{metric.name} {-(-least // most):,}"
        for metric in plan.metrics
        if (most := metric.limit * plan.periods_in(metric)) > 1
    ]
    line = f"minimum_reports {least:,}: an estimate of fewer reports is withheld."
    if not few:
        return [line]
    return [
        f"{line} A device can send several",
        f"in a window, so that as few devices as these can reach it: {', '.join(few)}.",
    ]
