"""Numbers in [0, 1] as public coins and grids see them.

The grid of an l-bit number has 2**l points, and a value between two of them goes to either with
the probability that keeps its mean.
"""

from __future__ import annotations

from numbers import Real

from mechanisms.arrays import Any, Bools, Floats, Ints, Words, np
from mechanisms.chains.chain import Prior
from mechanisms.errors import ParameterError
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source

#: A number has at most so many bits.
MAX_BITS = 32
#: Bins of the thresholds that are kept apart in counts: the 6 leading bits of the coin.
BINS = 64
#: The symbol of a missing value, where 0 and 1 are answers about one that is there.
MISSING = 2
#: Reports that a stratum is expected to have, at least, before its coins are split further.
EXPECTED_REPORTS = 20
#: Quantiles that are estimated, where none are named.
QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9)


def bit_weights(bits: int) -> Floats:
    """Return the weights of the bits in a value of [0, 1], most significant first."""
    return np.exp2(np.arange(bits - 1, -1, -1)) / (2.0**bits - 1)


def threshold_of(coin: int) -> float:
    """Return the threshold, in (0, 1], of a 64-bit coin."""
    return ((coin >> 11) + 0.5) * 2.0**-53


def thresholds_of(coins: Words) -> Floats:
    """Vectorised :func:`threshold_of`: ``(n,)`` in, ``(n,)`` ``float64`` out."""
    return ((coins >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def exponent_of(coin: int, bits: int) -> int:
    """Return the exponent e of the bit that a coin samples, of probability 2**e / (2**bits - 1)."""
    return (1 + coin % ((1 << bits) - 1)).bit_length() - 1


def exponents_of(coins: Words, bits: int) -> Ints:
    """Vectorised :func:`exponent_of`: ``(n,)`` in, ``(n,)`` ``int64`` out."""
    draws = coins % np.uint64((1 << bits) - 1) + np.uint64(1)
    return np.frexp(draws.astype(np.float64))[1].astype(np.int64) - 1


def split(u: float, steps: int) -> tuple[int, int]:
    """Return the point below ``u``, in [0, 1], and the grains, of 2**64, that go to the next one.

    There are ``steps`` between 0 and 1; if that is a power of two, the division loses nothing.
    """
    # Narrow numpy floats would be scaled in their own few digits.
    scaled = float(u) * steps
    below = int(scaled)
    return below, int((scaled - below) * 2.0**64)


def round_to_grid(u: float, steps: int, source: Source) -> int:
    """Return a point in [0, steps] whose mean is ``u * steps``."""
    below, grains = split(u, steps)
    return below + (source.bits(64) < grains) if grains else below


def neighbours(u: float, steps: int) -> Prior:
    """Return the points that :func:`round_to_grid` may return, with their weights."""
    below, grains = split(u, steps)
    return ((below, GRAINS - grains), (below + 1, grains)) if grains else ((below, 1),)


def rounds_to_grid(u: Floats, steps: int, source: Source) -> Ints:
    """Vectorised :func:`round_to_grid`: ``(n,)`` in [0, 1] in, ``(n,)`` ``int64`` out."""
    scaled = u * float(steps)
    below = np.floor(scaled)
    grains = ((scaled - below) * 2.0**64).astype(np.uint64)
    points = below.astype(np.int64)
    points += source.words(len(u)) < grains
    return points


def bit_prior(u: float, bits: int, exponent: int) -> Prior:
    """Return a bit of both grid points around a number in [0, 1], with their weights."""
    below, grains = split(u, (1 << bits) - 1)
    low, high = below >> exponent & 1, (below + 1) >> exponent & 1
    if low == high or not grains:
        return ((low, 1),)
    return ((low, GRAINS - grains), (high, grains))


def check_unit(u: float | None, missing: bool) -> None:
    """Refuse what is no number in [0, 1], and a missing value where none is allowed."""
    if u is None:
        if not missing:
            raise ParameterError("this mechanism has no symbol for a missing value")
    elif not (isinstance(u, Real) and 0 <= u <= 1):
        raise ParameterError("a number must be scaled to [0, 1]")


def unit_array(symbols: Any, missing: bool, axes: int = 1) -> tuple[Floats, Bools]:
    """Return ``(n,)`` numbers in [0, 1] as ``float64``, and which are missing (NaN or None).

    Refuses as :func:`check_unit`; no message contains a value.
    """
    given = np.asarray(symbols)
    if given.dtype == object and all(u is None or type(u) in (int, float) for u in given.flat):
        given = given.astype(np.float64)
    if given.dtype.kind not in "fiu":
        raise ParameterError(f"numbers must be real, not of type {given.dtype}")
    if given.ndim != axes:
        wanted = "one-dimensional" if axes == 1 else "rows of numbers"
        raise ParameterError(f"values must be {wanted}, not {given.ndim}-dimensional")
    u = given.astype(np.float64)
    gone = np.isnan(u)
    if not missing and gone.any():
        raise ParameterError("this mechanism has no symbol for a missing value")
    if not ((u[~gone] >= 0) & (u[~gone] <= 1)).all():
        raise ParameterError("numbers must be scaled to [0, 1]")
    return u, gone
