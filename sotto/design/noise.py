"""What one report adds to an estimate: its noise, and how far a forged one reaches.

Exact probabilities, by the standard library alone: for checking and choosing in a plan. What is
estimated from counts is the business of :mod:`mechanisms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from mechanisms.noise import Noise

if TYPE_CHECKING:
    from mechanisms.base import Mechanism


def noise_of(mechanism: Mechanism, level: int) -> Noise | None:
    """Return the noise of a level, or None where an estimate is no sum over reports.

    Parameters
    ----------
    mechanism : Mechanism
        Of split bits, that of the most significant bit.
    level : int

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> olh = build({"name": "local_hashing", "domain_size": 9, "buckets": 3}, [1_000_000], "x")
    >>> round(noise_of(olh, 0).no, 4)
    3.7701
    """
    return mechanism.noise(level)
