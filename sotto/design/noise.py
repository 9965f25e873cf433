"""What one report adds to an estimate: its noise, and how far a forged one reaches.

Exact probabilities, by the standard library alone: for checking and choosing in a plan. What is
estimated from counts is the business of :mod:`mechanisms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from mechanisms.registry import LadderedMechanism


class Noise(NamedTuple):
    """The unbiased contribution of one report to a share, or to a mean of numbers in [0, 1].

    Parameters
    ----------
    no, yes : float
        Its variance where the true answer is 0, and where it is 1.
    step : float
        The largest difference between two contributions.
    lie : float
        The largest distance of a contribution from a true answer.
    """

    no: float
    yes: float
    step: float
    lie: float

    @classmethod
    def of(cls, p: Fraction, q: Fraction) -> Noise:
        """Return that of a yes which has probability p where it is true, and q where it is not.

        Examples
        --------
        >>> Noise.of(Fraction(3, 4), Fraction(1, 4))
        Noise(no=0.75, yes=0.75, step=2.0, lie=1.5)
        """
        gap = p - q
        exact = (q * (1 - q) / gap**2, p * (1 - p) / gap**2, 1 / gap, max(1 - q, p) / gap)
        return cls(*map(float, exact))

    def total(self, categories: int) -> float:
        """Return n times the variance of the shares of so many categories, added up.

        A category of share f has ``f yes + (1 - f) no``; shares add up to one, so that the sum is
        the same whatever the distribution.

        References
        ----------
        T. Wang et al., "Locally Differentially Private Protocols for Frequency Estimation",
        USENIX Security 2017, equation 4 with the population fixed.

        Examples
        --------
        >>> Noise.of(Fraction(3, 4), Fraction(1, 4)).total(2)
        1.5
        """
        return self.yes + (categories - 1) * self.no


def noise_of(mechanism: LadderedMechanism, level: int) -> Noise | None:
    """Return the noise of a rung, or None where an estimate is no sum over reports.

    Parameters
    ----------
    mechanism : LadderedMechanism
        Of split bits, that of the most significant bit.
    level : int

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> olh = build({"name": "local_hashing", "domain_size": 9, "buckets": 3}, [1_000_000], "x")
    >>> round(noise_of(olh, 0).no, 4)
    3.7701
    """
    return _NOISES.get(mechanism.name, _of_rung)(mechanism, level)


def _of_rung(mechanism: Any, level: int) -> Noise:
    return Noise.of(*mechanism.rungs(level)[0])


def _of_release(mechanism: Any, level: int) -> Noise:
    """Of the item that a device has selected; what it selects is a matter of its counts."""
    return Noise.of(*mechanism.chain.releases[level])


def _of_hash(mechanism: Any, level: int) -> Noise:
    return Noise.of(mechanism.rungs(level)[0].p, Fraction(1, mechanism.buckets))


def _of_block(mechanism: Any, level: int) -> Noise:
    """Of Hadamard response, whose reports are about a block each; a no on average over the others.

    A report adds 1/(p - q) or -1/(p - q) to categories of its block, which is that of the true
    category with p + q and any other with 2 q.
    """
    p, q = mechanism.rungs(level)[0]
    gap, categories = p - q, mechanism.domain_size
    blocks = mechanism.chain.blocks
    size, larger = divmod(categories, blocks)
    sizes = [size + 1] * larger + [size] * (blocks - larger)
    together = Fraction(sum(each * (each - 1) for each in sizes), categories * (categories - 1))
    within = (together * (p + q) + (1 - together) * 2 * q) / gap**2
    exact = (within, (p + q) / gap**2 - 1, 2 / gap, 1 + 1 / gap)
    return Noise(*map(float, exact))


def _of_survey(mechanism: Any, level: int) -> Noise:
    from mechanisms.survey.estimates import contribution

    part = contribution(mechanism.rows(level), mechanism.answers)
    low, high = min(part.scores), max(part.scores)
    return Noise(part.no, part.yes, high - low, max(high, 1 - low))


def _of_grid(mechanism: Any, level: int) -> Noise:
    """Of a number on a grid: the largest variance that a bounded contribution can have."""
    from mechanisms.number.contributions import contributions

    values = contributions(mechanism.shape, mechanism.laws[level]).value
    most = float(max(map(abs, values)))
    return Noise(most**2, most**2, 2 * most, most + 0.5)


def _of_coordinate(mechanism: Any, level: int) -> Noise:
    return _of_grid(mechanism.grid, level)


def _none(mechanism: Any, level: int) -> None:
    return None


_NOISES: Mapping[str, Callable[[Any, int], Noise | None]] = {
    "local_hashing": _of_hash,
    "hadamard": _of_block,
    "permute_and_flip": _of_release,
    **dict.fromkeys(("warner", "simmons", "christofides"), _of_survey),
    **dict.fromkeys(("duchi", "piecewise", "hybrid", "square_wave"), _of_grid),
    "sampled_hybrid": _of_coordinate,
    "brr": _none,
}
