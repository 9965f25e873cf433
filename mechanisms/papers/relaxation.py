"""Relaxation in closed form and floating point: for tables, benchmarks and people.

What is drawn and certified is integers (:mod:`mechanisms.chains.symbols`,
:mod:`mechanisms.chains.bits`); these
are the same probabilities of the ideal mechanisms, in a form that loses nothing from epsilon 1e-12
to 700. Written naively they lose to 2e-7 at epsilon 1e-9 and overflow at 710.

References
----------
M. Pan, "Randomized Response with Gradual Release of Privacy Budget", arXiv:2401.13952, equations
50 and 54.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, expm1

from mechanisms.errors import ParameterError, UnrelatedRungsError

#: Probabilities given as floats may miss what they stand for by so much.
_ROUNDING = Fraction(1, 10**12)


@dataclass(frozen=True)
class RelaxationProbabilities:
    """The law of the stronger report of generalized randomized response given the weaker one.

    The first letter says what the weaker report was, the second what the stronger one is:
    ``a`` the true value, ``b`` the weaker report where it was not the true value, ``c`` any
    other single value.
    """

    p_aa: float
    p_ba: float
    p_bb: float
    p_ac: float
    p_bc: float


@dataclass(frozen=True)
class DegradationProbabilities:
    """The law of the weaker report given the stronger one: the same, or each other value."""

    same: float
    other: float


def relaxation(domain_size: int, epsilon1: float, epsilon2: float) -> RelaxationProbabilities:
    """Return how generalized randomized response is relaxed from ``epsilon1`` to ``epsilon2``.

    Parameters
    ----------
    domain_size : int, at least 2
    epsilon1, epsilon2 : float
        0 < epsilon1 <= epsilon2 <= 700.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Examples
    --------
    >>> round(relaxation(3, 0.1, 0.5).p_aa, 6)
    0.584433
    """
    _check(domain_size, epsilon1, epsilon2)
    if epsilon1 == epsilon2:
        return RelaxationProbabilities(1.0, 0.0, 1.0, 0.0, 0.0)
    down, both = exp(-epsilon2), exp(-(epsilon1 + epsilon2))
    whole = -expm1(-epsilon2) * (1 + (domain_size - 1) * down)
    p_aa = _kept(domain_size, epsilon1, epsilon2) / whole
    p_ba = -expm1(epsilon1 - epsilon2) / whole
    p_bb = exp(epsilon1 - epsilon2) * p_aa
    return RelaxationProbabilities(p_aa, p_ba, p_bb, both * p_ba, down * p_ba)


def degradation_probabilities(
    domain_size: int, epsilon1: float, epsilon2: float
) -> DegradationProbabilities:
    """Return the T of C1 = C2 T between two levels of generalized randomized response.

    Two values also describe every bit of optimized unary encoding, which is flipped with the
    probability ``other``; of symmetric unary encoding at half the epsilons.

    Parameters, errors: as :func:`relaxation`.

    Examples
    --------
    >>> round(degradation_probabilities(2, 1.0, 2.0).other, 6)
    0.196612
    """
    _check(domain_size, epsilon1, epsilon2)
    if epsilon1 == epsilon2:
        return DegradationProbabilities(1.0, 0.0)
    whole = -expm1(-epsilon2) * (1 + (domain_size - 1) * exp(-epsilon1))
    same = _kept(domain_size, epsilon1, epsilon2) / whole
    other = exp(-epsilon1) * -expm1(epsilon1 - epsilon2) / whole
    return DegradationProbabilities(same, other)


def keep_probability(domain_size: int, subset_size: int, epsilon1: float, epsilon2: float) -> float:
    """Return the weight ρ of the identity in T = ρ I + (1 − ρ) uniform.

    Holds for every channel that answers with one of ``subset_size`` fixed values near the true
    one, e^ε times as often as with any other: generalized randomized response (1), bipartite
    randomized response and subset selection with sets that do not depend on epsilon.

    Parameters
    ----------
    domain_size : int, at least 2
    subset_size : int in [1, domain_size)
    epsilon1, epsilon2 : float
        0 < epsilon1 <= epsilon2 <= 700.

    Examples
    --------
    >>> round(keep_probability(8, 3, 0.5, 2.0), 6)
    0.277339
    """
    _check(domain_size, epsilon1, epsilon2)
    if not 1 <= subset_size < domain_size:
        raise ParameterError(f"subset_size must lie in [1, {domain_size}), not {subset_size}")
    rest = domain_size - subset_size
    weak = -expm1(-epsilon1) / (subset_size + rest * exp(-epsilon1))
    strong = -expm1(-epsilon2) / (subset_size + rest * exp(-epsilon2))
    return weak / strong


def chain_probability(
    domain_size: int, epsilons: Sequence[float], outputs: Sequence[int], value: int
) -> float:
    """Return the probability of a whole chain of generalized randomized responses.

    Parameters
    ----------
    domain_size : int, at least 2
    epsilons : sequence of float
        Increasing, in (0, 700].
    outputs : sequence of int in [0, domain_size)
        Weakest first.
    value : int in [0, domain_size)

    Examples
    --------
    >>> round(chain_probability(3, [0.1, 0.5, 1.0], [0, 1, 1], 1), 6)
    0.102415
    """
    if len(outputs) != len(epsilons) or not epsilons:
        raise ParameterError(f"{len(outputs)} outputs do not fit {len(epsilons)} epsilons")
    last = epsilons[-1]
    _check(domain_size, last, last)
    hit = 1 if outputs[-1] == value else exp(-last)
    probability = hit / (1 + (domain_size - 1) * exp(-last))
    for level in range(len(epsilons) - 1):
        step = degradation_probabilities(domain_size, epsilons[level], epsilons[level + 1])
        probability *= step.same if outputs[level] == outputs[level + 1] else step.other
    return probability


def chain_log_ratio(
    domain_size: int, epsilons: Sequence[float], outputs: Sequence[int], one: int, other: int
) -> float:
    """Return ln of how much likelier a chain is for one value than for another (Lemma 3.1).

    The last report alone decides; the ratio is finite even where both probabilities underflow.

    Parameters, errors: as :func:`chain_probability`.

    Examples
    --------
    >>> chain_log_ratio(3, [0.1, 0.5, 1.0], [0, 1, 1], 1, 0)
    1.0
    """
    if len(outputs) != len(epsilons) or not epsilons:
        raise ParameterError(f"{len(outputs)} outputs do not fit {len(epsilons)} epsilons")
    for weak, strong in zip(epsilons, [*epsilons[1:], epsilons[-1]], strict=True):
        _check(domain_size, weak, strong)
    return epsilons[-1] * ((outputs[-1] == one) - (outputs[-1] == other))


def bit_degradation(weak: tuple[float, float], strong: tuple[float, float]) -> tuple[float, float]:
    """Return the T of C1 = C2 T between two channels of one bit, whatever they are.

    With k = (p1 − p0)/(P1 − P0) and s = p0 − P0 k there is one if and only if s and s + k are
    probabilities. A T that misses that by less than 1e-12 is taken to be rounded.

    Parameters
    ----------
    weak, strong : (float, float)
        The probabilities (p1, p0) and (P1, P0) that a 1, and a 0, is reported as 1.

    Returns
    -------
    (float, float)
        The probability that a 0, and a 1, of the stronger report becomes a 1 of the weaker one.

    Raises
    ------
    ParameterError
        A number is no probability.
    UnrelatedRungsError
        The weaker channel is no degradation of the stronger one.

    Examples
    --------
    >>> bit_degradation((0.6, 0.4), (0.9, 0.1))
    (0.375, 0.625)
    """
    if not all(0 <= probability <= 1 for probability in (*weak, *strong)):
        raise ParameterError(f"probabilities must lie in [0, 1], not {weak}, {strong}")
    p1, p0, s1, s0 = (Fraction(probability) for probability in (*weak, *strong))
    keep = (p1 - p0) / (s1 - s0) if s1 != s0 else Fraction(0)
    zero = p0 - s0 * keep
    one = zero + keep
    related = s1 != s0 or abs(p1 - p0) <= _ROUNDING
    if not (related and all(-_ROUNDING <= t <= 1 + _ROUNDING for t in (zero, one))):
        raise UnrelatedRungsError(
            f"no relaxation from {weak} to {strong}: the weaker bit is no degradation of the "
            "stronger one"
        )
    none, sure = Fraction(0), Fraction(1)
    return float(min(max(zero, none), sure)), float(min(max(one, none), sure))


def _kept(domain_size: int, epsilon1: float, epsilon2: float) -> float:
    both = -expm1(-(epsilon1 + epsilon2))
    return both + (domain_size - 2) * exp(-epsilon2) * -expm1(-epsilon1)


def _check(domain_size: int, epsilon1: float, epsilon2: float) -> None:
    if not domain_size >= 2:
        raise ParameterError(f"domain_size must be at least 2, not {domain_size}")
    if not 0 < epsilon1 <= epsilon2 <= 700:
        raise ParameterError(
            f"epsilons must satisfy 0 < epsilon1 <= epsilon2 <= 700, not {epsilon1}, {epsilon2}"
        )
