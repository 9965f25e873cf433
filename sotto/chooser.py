"""The best certified mechanism for a type, a domain and a ladder, where a plan names none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from mechanisms.errors import ParameterError
from mechanisms.ladders import REGISTRY, build
from mechanisms.vectors.optimum import optimal_sampled
from mechanisms.vectors.sampled_vector import MAX_DIMENSIONS, MAX_SAMPLED
from sotto.errors import PlanError
from sotto.metrictypes import Parameter

#: Up to here the random threshold has the least worst-case variance of all mechanisms for
#: numbers (the crossover with the hybrid mechanism is at epsilon 1.901).
THRESHOLD_LIMIT = 1_900_000


class Choice(NamedTuple):
    """A mechanism's name and parameters, and why it was chosen."""

    spec: dict[str, Parameter]
    why: str


def spec_of(name: str, given: Mapping[str, Parameter]) -> dict[str, Parameter]:
    """Return a mechanism with its parameters, of those that are known.

    Parameters
    ----------
    name : str
        In the registry.
    given : mapping
        What the metric tells, and what is written. Parameters that no mechanism's are stay, so
        that they are refused.

    Examples
    --------
    >>> spec_of("grr", {"domain_size": 5, "missing": False})
    {'name': 'grr', 'domain_size': 5}
    """
    fields = REGISTRY[name].fields
    known = {**DEFAULTS.get(name, {}), **given}
    derived = {"domain_size", "missing", "clip", "dimensions"}
    return {
        "name": name,
        **{key: value for key, value in known.items() if key in fields or key not in derived},
    }


def choose(kind: str, given: Mapping[str, Parameter], ladder: Sequence[int], metric: str) -> Choice:
    """Choose a mechanism for a metric.

    Parameters
    ----------
    kind : str
        Its type.
    given : mapping
        What it tells of its mechanism's parameters.
    ladder : sequence of int
        Nominal micro-epsilon, weakest first.
    metric : str
        Its name.
    """
    if kind == "number":
        return choose_number(bool(given["missing"]), ladder)
    if kind == "vector":
        return choose_vector(given, ladder)
    if kind in ("category", "boolean"):
        size = given["domain_size"]
        assert isinstance(size, int)
        try:
            return choose_category(size, ladder, metric)
        except PlanError:
            # Which rung or size it is about is said by the checks, as if grr had been asked for.
            return Choice(spec_of("grr", given), "")
    name, why = _ONLY[kind]
    return Choice(spec_of(name, given), why)


#: The mechanisms of types that have a best one whatever the ladder.
_ONLY = {
    "string": ("rappor", "the mechanism for strings that are not known in advance"),
    "ordinal": ("grr", "the only one for an ordinal"),
    "survey": ("grr", ""),
}
#: Parameters that need not be written.
DEFAULTS: Mapping[str, Mapping[str, Parameter]] = {}


def choose_category(domain_size: int, ladder: Sequence[int], metric: str) -> Choice:
    """Choose between generalized randomized response and the two unary encodings.

    Parameters
    ----------
    domain_size : int
        Number of symbols, ``other`` and ``missing`` included.
    ladder : sequence of int
        Nominal micro-epsilon, weakest first.
    metric : str

    Raises
    ------
    PlanError
        None of them can honour the ladder.

    Notes
    -----
    What counts is the variance at the last rung, summed over symbols (see :func:`variance`),
    from the realised probabilities.

    Examples
    --------
    >>> choose_category(5, [500_000, 2_000_000], "carrier").spec["name"]
    'grr'
    >>> choose_category(200, [500_000, 2_000_000], "airport").spec["name"]
    'oue'
    """
    found: list[tuple[Fraction, str]] = []
    problems = []
    for name in ("grr", "oue", "sue"):
        try:
            mechanism = build({"name": name, "domain_size": domain_size}, ladder, metric)
        except ParameterError as error:
            problems.append(str(error))
            continue
        (rung,) = mechanism.rungs(len(ladder) - 1)
        found.append((variance(rung.p, rung.q, domain_size), name))
    if not found:
        raise PlanError("; ".join(dict.fromkeys(problems)))
    found.sort(key=lambda item: item[0])
    each = ", ".join(f"{name} {float(value):.4g}" for value, name in found)
    return Choice(
        {"name": found[0][1], "domain_size": domain_size},
        f"least variance at the last rung (n times the sum over symbols: {each})",
    )


def variance(p: Fraction, q: Fraction, domain_size: int) -> Fraction:
    """Return n times the variance of the estimated shares, summed over all symbols.

    A symbol of share f has ``(f p (1 - p) + (1 - f) q (1 - q)) / (p - q)**2``; shares add up to
    one, so that the sum is the same whatever the distribution.

    References
    ----------
    T. Wang et al., "Locally Differentially Private Protocols for Frequency Estimation", USENIX
    Security 2017, equation 4 with the population fixed.

    Examples
    --------
    >>> variance(Fraction(3, 4), Fraction(1, 4), 2)
    Fraction(3, 2)
    """
    return (p * (1 - p) + (domain_size - 1) * q * (1 - q)) / (p - q) ** 2


def choose_number(missing: bool, ladder: Sequence[int]) -> Choice:
    """Choose the mechanism for a number: the random threshold, and say how good that is."""
    why = "least worst-case variance up to epsilon 1.9, and the whole distribution besides"
    if ladder and ladder[-1] > THRESHOLD_LIMIT:
        why = (
            "least variance of the mechanisms there are; its last rung is above epsilon 1.9, from "
            "which on a continuous report would vary less"
        )
    return Choice({"name": "threshold", "missing": missing}, why)


def choose_vector(given: Mapping[str, Parameter], ladder: Sequence[int]) -> Choice:
    """Choose how many coordinates of a vector a report is about, each at an equal share.

    Examples
    --------
    >>> choose_vector({"dimensions": 16}, [1_000_000, 8_000_000]).spec["sampled"]
    3
    """
    dimensions = given["dimensions"]
    if not (isinstance(dimensions, int) and 1 <= dimensions <= MAX_DIMENSIONS and ladder):
        return Choice(spec_of("sampled_vector", {"sampled": 1, "bits": 0, **given}), "")
    best = optimal_sampled(dimensions, ladder[-1] / 1_000_000) if ladder[-1] > 0 else 1
    sampled = min(best, MAX_SAMPLED)
    return Choice(
        spec_of("sampled_vector", {"sampled": sampled, "bits": 0, **given}),
        f"least variance of the means at the last rung with {sampled} of {dimensions} coordinates "
        f"a report, each by a random threshold",
    )
