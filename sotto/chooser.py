"""The best certified mechanism for a type, a domain and a ladder, where a plan names none."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

from mechanisms.errors import ParameterError
from mechanisms.ladders import build
from sotto.errors import PlanError

#: Up to here the random threshold has the least worst-case variance of all mechanisms for
#: numbers (the crossover with the hybrid mechanism is at epsilon 1.901).
THRESHOLD_LIMIT = 1_900_000


class Choice(NamedTuple):
    """A mechanism's name and parameters, and why it was chosen."""

    spec: dict[str, str | int | bool]
    why: str


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
