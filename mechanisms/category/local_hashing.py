"""Local hashing: randomized response over a few buckets to which a public coin maps the domain.

The hashes are linear. A value is the vector of its ``t`` digits to the base ``g``, a prime; the
coin is a vector of as many; the bucket is their inner product modulo ``g``. Two different values
differ in a digit, so that exactly one in g coins maps them to the same bucket: the family is
pairwise uniform, like an ideal hash, and yet finite. Reports are counted by coin and bucket, which
adds up and looks at no value; only the estimate walks through the domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property, lru_cache
from math import isqrt

from mechanisms.arrays import Any, Floats, Ints, Words, np
from mechanisms.base import ChainCoins, Epsilon
from mechanisms.category.oracle import FrequencyOracle, category, category_array
from mechanisms.chains.symbols import MAX_SYMBOLS, SymbolChain, symbol_chain
from mechanisms.errors import ParameterError, check_at_least, check_int, check_positive
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.noise import Noise, odds
from mechanisms.randomness import Source

#: Cells of a count vector, at most: a plan allows no more either.
MAX_CELLS = 1 << 24


@frozen
class LocalHashing(ChainCoins, FrequencyOracle):
    """Report the bucket of the category by randomized response; the hash is a public coin.

    ``epsilon`` lies in [1e-6, 40], ``domain_size``, the number m of categories, in [2, 2**20].
    ``buckets`` is a prime g; by default the one of least variance (see :func:`best_buckets`), which
    is optimized local hashing (OLH). With t digits so that g**t >= m, a count vector has g**(t + 1)
    cells, at most 2**24. ``metric`` separates the coins of different metrics.

    Privacy
    -------
    Any two categories are neighbours. Given the coin, a report is generalized randomized response
    over g buckets; the largest likelihood ratio is exactly p/q. The coin is a hash of the chain id,
    which is drawn before the value is looked at, and not protected.

    Relaxation
    ----------
    Always, with fixed buckets, as generalized randomized response; the coin stays with the chain.

    Utility
    -------
    A report supports the categories of its bucket: the true one with p = e^ε/(e^ε+g−1), each other
    with 1/g over coins and responses. The share of a category of true share π has variance
    [π p(1−p) + (1−π) (1/g)(1−1/g)] / (n (p−1/g)²): (e^ε+g−1)² / (n (g−1) (e^ε−1)²) for a rare one.
    The coin is 64 bits modulo g**t, so that no hash is likelier than another by more than one part
    in 2**40; the bias that this leaves is far below any standard error.

    Use
    ---
    For large domains: the error of optimized unary encoding at a payload of a byte or two.
    Generalized randomized response is better for domains of fewer than about 3e^ε+2 categories.

    References
    ----------
    T. Wang, J. Blocki, N. Li, S. Jha, "Locally Differentially Private Protocols for Frequency
    Estimation", USENIX Security 2017, section 4.4, eq. 10. J. L. Carter, M. N. Wegman, "Universal
    Classes of Hash Functions", Journal of Computer and System Sciences 18(2), 1979.

    Examples
    --------
    >>> olh = LocalHashing(epsilon=2.0, domain_size=1000)
    >>> olh.buckets, olh.hashes, olh.certified()
    (7, 2401, 2000000)
    """

    epsilon: Epsilon
    domain_size: int
    buckets: int = 0
    metric: str = ""

    name = "local_hashing"
    symbolic = True

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"buckets": best_buckets(micro / MICRO, given["domain_size"])}

    def _check(self) -> None:
        check_int("domain_size", self.domain_size, 2, MAX_SYMBOLS)
        if not (2 <= self.buckets <= MAX_CELLS and is_prime(self.buckets)):
            raise ParameterError(f"buckets must be a prime in [2, {MAX_CELLS}], not {self.buckets}")
        cells = self.buckets ** (self.digits + 1)
        if not cells <= MAX_CELLS:
            raise ParameterError(
                f"buckets must be fewer for a domain_size of {self.domain_size}: {self.buckets} of "
                f"them take {cells} counts, at most {MAX_CELLS} are allowed"
            )

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(self.buckets, self.micros)

    @cached_property
    def digits(self) -> int:
        """The digits t of a category to the base g."""
        return digits(self.domain_size, self.buckets)

    @cached_property
    def hashes(self) -> int:
        """The number of hashes, g**t."""
        return int(self.buckets**self.digits)

    def hash_of(self, chain: bytes) -> int:
        """Return the number of a chain's hash."""
        return self.coin(chain) % self.hashes

    @property
    def strata(self) -> int:
        return self.hashes

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        return (self.coins_of(chains) % np.uint64(self.hashes)).astype(np.int64)

    @property
    def groups(self) -> int:
        return (self.hashes - 1) // (self.buckets - 1)

    @cached_property
    def _lines(self) -> Ints:
        """Return the hashes but that to one bucket, by line: ``(lines, buckets - 1)``."""
        g, numbers = self.buckets, np.arange(1, self.hashes)
        inverse = np.array([pow(each, -1, g) if each else 0 for each in range(g)])
        # The multiple of each hash whose first digit that is not 0 is 1.
        factor, same = np.zeros_like(numbers), np.zeros_like(numbers)
        for place in reversed(range(self.digits)):
            digit = numbers // g**place % g
            factor = np.where(factor == 0, inverse[digit], factor)
            same = same * g + digit * factor % g
        return (1 + np.argsort(same, kind="stable")).reshape(-1, g - 1)

    def separable(self, answers: Ints) -> Ints:
        """Return the answers of each line of hashes: of those that are multiples of one another.

        A combination of shares gives the values v weights a(v). It depends on the reports of a hash
        s where the sum of a(v) over the values of a bucket differs between buckets; that is, where
        the Fourier transform of a is not zero at some multiple of s other than 0. So it depends on
        all hashes of a line or on none, and a combination for a single line exists where every
        vector of digits is a value. The hash 0 maps all values to one bucket. So its reports say
        nothing about values, and it is in no line.
        """
        found: Ints = answers[..., self._lines].sum(axis=-1)
        return found

    def bucket(self, symbol: Any, hash_number: Any) -> Any:
        """Return the bucket of a category under a hash; of arrays, of each under its own."""
        g, total = self.buckets, 0
        for _ in range(self.digits):
            total += symbol % g * (hash_number % g)
            symbol, hash_number = symbol // g, hash_number // g
        return total % g

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        found: int = self.bucket(category(symbol, self.domain_size), self.hash_of(chain))
        return found

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Ints:
        given = category_array(symbols, self.domain_size)
        found: Ints = self.bucket(given, self.strata_of(chains, pseudonyms))
        return found

    def supports(self, table: Ints) -> tuple[Ints, Ints]:
        ones = [hits(counts, self.domain_size, self.buckets) for counts in table]
        return np.array(ones), table.sum(axis=1)

    def supported(self, category: int, output: int, chain: bytes) -> bool:
        return bool(self.bucket(category, self.hash_of(chain)) == output)

    def support_pairs(self) -> Floats:
        pairs = super().support_pairs()
        pairs[:, 1] = 1 / self.buckets
        return pairs

    def bounded_cells(self, table: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        ones, reports, low, high = super().bounded_cells(table)
        return ones, reports, low * 0 + 1 / self.buckets, high

    def noise(self, level: int) -> Noise | None:
        """Return that of a report, which supports a given other category by chance."""
        return Noise.of(self.exact(level)[0].p, Fraction(1, self.buckets))


@lru_cache(64)
def best_buckets(epsilon: float, domain_size: int) -> int:
    """Return the number of buckets of least variance of those that can be counted (eq. 9 and 10).

    The prime next to e^ε + 1, ε that of the last level, or the largest that the domain allows.

    >>> [best_buckets(epsilon, 1000) for epsilon in (0.1, 1.0, 2.0, 4.0)]
    [2, 3, 7, 53]
    """
    check_int("domain_size", domain_size, 2, MAX_SYMBOLS)
    check_positive(epsilon)
    # A table of one digit has g**2 cells.
    primes = [g for g in range(2, int(MAX_CELLS**0.5)) if is_prime(g)]
    allowed = [g for g in primes if g ** (digits(domain_size, g) + 1) <= MAX_CELLS]
    return min(allowed, key=lambda g: hashing_variance(epsilon, g))


def hashing_variance(epsilon: float, buckets: int) -> float:
    """Return n times the variance of the share of a rare category."""
    check_at_least("buckets", buckets, 2)
    scale = 1 + buckets * odds(epsilon)
    return scale * scale / (buckets - 1)


def hits(counts: Ints, m: int, g: int) -> Ints:
    """Return for each of ``m`` values how many reports are in its bucket, under their own hashes.

    ``counts``, ``(g**t * g,)``, are by hash, then bucket, t the digits of ``m - 1``. With ω a
    primitive g-th root of unity and N[s, y] the reports of bucket y under hash s, the hits are Σ_k
    Σ_s ω^(k s·v) Σ_y N[s, y] ω^(−k y) / g: Fourier transforms over buckets and over the digits of
    hashes, whose values at −k v are read off; exact up to 10**12 reports, by rounding.
    """
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
    return np.rint(total / g).astype(np.int64)


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
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))
