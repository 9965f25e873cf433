"""What one report adds to an estimate: its noise, and how far a forged one reaches.

Exact probabilities, by the standard library alone: for checking and choosing in a plan. What is
estimated from counts is the business of :mod:`mechanisms`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from mechanisms.ladders import Ladder
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
    if not isinstance(mechanism, Ladder):
        return mechanism.noise(level)
    return _NOISES.get(mechanism.name, _of_rung)(mechanism, level)


def _of_rung(mechanism: Any, level: int) -> Noise:
    return Noise.of(*mechanism.exact(level)[0])


def _of_release(mechanism: Any, level: int) -> Noise:
    """Of the item that a device has selected; what it selects is a matter of its counts."""
    return Noise.of(*mechanism.chain.releases[level])


_NOISES: Mapping[str, Callable[[Any, int], Noise]] = {
    "permute_and_flip": _of_release,
}
