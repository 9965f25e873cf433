"""Linear hashes of digits: pairwise uniform, finite, and summed over a whole domain at once.

A value is the vector of its ``t`` digits to the base ``g``, a prime, and so is the number of a
hash; the bucket is their inner product modulo ``g``. Exactly one in g of the g**t hashes maps two
different values to the same bucket.
"""

from __future__ import annotations

from mechanisms.arrays import Ints

#: Side of a table of inner products, at most, beyond which the digits are cut in pieces.
_TABLE_SIDE = 256


def bucket(value: int, number: int, g: int) -> int:
    """Return the bucket of a value under a hash.

    >>> bucket(5, 7, 3)
    1
    """
    total = 0
    while value:
        value, digit = divmod(value, g)
        number, factor = divmod(number, g)
        total += digit * factor
    return total % g


def buckets_of(values: Ints, numbers: Ints, g: int, t: int) -> Ints:
    """Return the buckets of ``(n,)`` values of ``t`` digits, each under its own hash."""
    import numpy as np

    # Inner products of so many digits at once are read from a table.
    width = 1
    while g ** (width + 1) <= _TABLE_SIDE and width < t:
        width += 1
    side = g**width
    table = _inner_products(g, width) if side <= _TABLE_SIDE else None
    total = np.zeros(len(values), dtype=np.int64)
    for _ in range(-(-t // width)):
        values, own = np.divmod(values, side)
        numbers, factor = np.divmod(numbers, side)
        total += own * factor if table is None else table[own * side + factor]
    return total % g


def hits(counts: Ints, m: int, g: int) -> Ints:
    """Return for each of ``m`` values how many reports are in its bucket, under their own hashes.

    ``counts``, ``(g**t * g,)``, are by hash, then bucket, t the digits of ``m - 1``. With ω a
    primitive g-th root of unity and N[s, y] the reports of bucket y under hash s, the hits are Σ_k
    Σ_s ω^(k s·v) Σ_y N[s, y] ω^(−k y) / g: Fourier transforms over buckets and over the digits of
    hashes, whose values at −k v are read off; exact up to 10**12 reports, by rounding.

    >>> import numpy as np
    >>> hits(np.array([5, 0, 2, 1]), 2, 2)
    array([7, 6])
    """
    import numpy as np

    t = digits(m, g)
    places = np.array(np.unravel_index(np.arange(m), (g,) * t))
    scale = g ** np.arange(t - 1, -1, -1)
    spectrum = np.fft.rfft(counts.reshape(-1, g), axis=1)
    total = np.full(m, float(counts.sum()))
    for k in range(1, spectrum.shape[1]):
        moved = np.fft.fftn(spectrum[:, k].reshape((g,) * t)).reshape(-1)
        found = moved[scale @ (-k * places % g)].real
        # The frequencies k and g − k are conjugate.
        total += found if 2 * k == g else 2 * found
    whole: Ints = np.rint(total / g).astype(np.int64)
    return whole


def digits(domain_size: int, buckets: int) -> int:
    """Return how many digits to the base ``buckets`` tell all categories apart."""
    count, reach = 1, buckets
    while reach < domain_size:
        count, reach = count + 1, reach * buckets
    return count


def is_prime(number: int) -> bool:
    """Return whether a number is a prime, by trial division.

    >>> [n for n in range(20) if is_prime(n)]
    [2, 3, 5, 7, 11, 13, 17, 19]
    """
    if number < 2:
        return False
    divisor = 2
    while divisor * divisor <= number:
        if number % divisor == 0:
            return False
        divisor += 1
    return True


def _inner_products(base: int, width: int) -> Ints:
    """Return the inner products of all pairs of vectors of ``width`` digits, flat."""
    import numpy as np

    vectors = np.array(np.unravel_index(np.arange(base**width), (base,) * width))
    return (vectors.T @ vectors).reshape(-1)
