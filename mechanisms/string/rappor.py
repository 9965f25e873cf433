"""RAPPOR: strings as Bloom filters, by cohort, with one permanent response a bit."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from math import exp, expm1, log1p
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.category.unary import MAX_WIDTH
from mechanisms.chains.bits import BitChain, symmetric_bit
from mechanisms.chains.chain import Prior
from mechanisms.errors import ParameterError, check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.ladders import VectorLadder
from mechanisms.levels import certify, check_ladder
from mechanisms.randomness import Source
from mechanisms.single import CoinMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    from mechanisms.string.decoding import StringEstimates

#: One SHA-256 gives so many positions.
MAX_HASHES = 8
#: A metric has at most so many cohorts.
MAX_COHORTS = 1 << 16


@frozen
class Rappor(CoinMechanism):
    """The Bloom filter of a string, each bit flipped with the same probability (f/2).

    Parameters
    ----------
    epsilon : float
        At least 1e-6; at most 40 a differing bit, the nominal amount.
    bits : int
        In [1, 2**16], the length k of a filter.
    hashes : int
        In [1, 8], the number h of hashes.
    cohorts : int
        In [1, 2**16]; each hashes in its own way, so that strings that collide in one are told
        apart by others. The cohort is a public hash of the pseudonym.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Privacy
    -------
    Any two strings are neighbours, of unbounded length. Their filters differ in at most
    min(2h, k) bits, and the certified loss is that of so many bits. The cohort is public.

    Relaxation
    ----------
    Always: each bit is relaxed as binary randomized response.

    Utility
    -------
    A bit's sum, debiased, has variance q(1−q) / (p−q)² a report, given the values: with epsilon
    over 2h bits that is 1/(4 sinh²(ε/4h)). A candidate's share is a least-squares sum of bits.

    Use
    ---
    For strings that are not known when the plan is made. With a list of them, a mechanism for
    categories has far less noise.

    References
    ----------
    Ú. Erlingsson, V. Pihur, A. Korolova, "RAPPOR: Randomized Aggregatable Privacy-Preserving
    Ordinal Response", CCS 2014, section 3.1 (the permanent randomized response alone).

    Examples
    --------
    >>> rappor = Rappor(epsilon=4.0, bits=128, hashes=2, cohorts=16)
    >>> round(rappor.p, 4), rappor.certified
    (0.7311, 4000000)
    """

    bits: int
    hashes: int
    cohorts: int = 1

    def _build(self, micro: int) -> RapporLadder:
        return rappor_ladder(self.bits, self.hashes, self.cohorts, [micro], "")

    @property
    def f(self) -> float:
        """RAPPOR's parameter: the probability that a bit is replaced by a fair coin."""
        return 2 * self.q

    def estimate(self, counts: ArrayLike, candidates: Sequence[str]) -> StringEstimates:
        """Estimate the shares of candidates; see :func:`mechanisms.string.decoding.decode`."""
        import numpy as np

        from mechanisms.string.decoding import decode

        return decode(self.ladder, np.asarray(counts)[np.newaxis], candidates)


@frozen
class RapporLadder(VectorLadder):
    """Bloom filters of ``bits`` bits with ``hashes`` hashes, relaxed along a ladder."""

    name = "rappor"

    hashes: int
    cohorts: int

    @property
    def bits(self) -> int:
        """The length of a filter."""
        return self.chain.width

    @property
    def slots(self) -> int:
        """Each cohort is counted apart."""
        return self.cohorts

    @cached_property
    def _domain(self) -> int:
        return coins.cohort_domain(self.metric)

    def cohort(self, pseudonym: bytes) -> int:
        """Return the cohort, in [0, cohorts), of a pseudonym."""
        return coins.hash_id(pseudonym, self._domain) % self.cohorts if self.cohorts > 1 else 0

    def slots_of(self, pseudonyms: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the cohort of each pseudonym."""
        import numpy as np

        hashes = coins.hash_ids(pseudonyms, self._domain)
        return (hashes % np.uint64(self.cohorts)).astype(np.int64)

    def filter_of(self, string: bytes, cohort: int) -> int:
        """Return the Bloom filter of a string in a cohort, bit j of the integer being bit j."""
        out = 0
        for position in coins.bloom_positions(string, cohort, self.hashes, self.chain.width):
            out |= 1 << position
        return out

    def encode(self, symbol: Any, pseudonym: bytes, source: Source) -> int:
        """Return the Bloom filter of a string (UTF-8) in the cohort of the pseudonym."""
        return self.filter_of(symbol, self.cohort(pseudonym))

    def prior(self, symbol: Any, pseudonym: bytes) -> Prior:
        """Return the Bloom filter, with weight one."""
        return ((self.filter_of(symbol, self.cohort(pseudonym)), 1),)

    def encode_many(
        self, symbols: Any, pseudonyms: NDArray[np.uint64], source: Source
    ) -> NDArray[np.uint64]:
        """Return packed Bloom filters; equal strings of a cohort are hashed once."""
        import numpy as np

        width = 8 * self.lanes
        known: dict[tuple[bytes, int], bytes] = {}
        rows = []
        for key in zip(symbols, self.slots_of(pseudonyms).tolist(), strict=True):
            packed = known.get(key)
            if packed is None:
                packed = known[key] = self.filter_of(*key).to_bytes(width, "little")
            rows.append(packed)
        flat = np.frombuffer(b"".join(rows), dtype="<u8").astype(np.uint64)
        return flat.reshape(len(rows), self.lanes)


def rappor_ladder(
    bits: int, hashes: int, cohorts: int, ladder: Sequence[int], metric: str
) -> RapporLadder:
    """Build a ladder of Bloom filters, certified at min(2 hashes, bits) differing bits."""
    check_int("bits", bits, 1, MAX_WIDTH)
    check_int("hashes", hashes, 1, MAX_HASHES)
    check_int("cohorts", cohorts, 1, MAX_COHORTS)
    differing = min(2 * hashes, bits)
    rungs = check_ladder(ladder, differing)
    bit = symmetric_bit([Fraction(micro, differing * MICRO) for micro in rungs])
    ratios = [ratio**differing for ratio in bit.bit_ratios()]
    return RapporLadder(metric, certify(rungs, ratios), BitChain(bits, (bit,)), hashes, cohorts)


def differing_bits_epsilon(differing: int, f: float) -> float:
    """Return the epsilon of filters that differ in so many bits, f as RAPPOR defines it.

    The worst case over all strings is 2 * hashes bits.

    Examples
    --------
    >>> round(differing_bits_epsilon(4, 0.5), 4)
    4.3944
    """
    if not 0 < f < 1:
        raise ParameterError(f"f must lie in (0, 1), not {f}")
    return differing * log1p(2 * (1 - f) / f)


def expected_differing_bits(bits: int, hashes: int) -> float:
    """Return how many bits differ on average between the filters of two strings.

    Examples
    --------
    >>> round(expected_differing_bits(128, 2), 2)
    3.92
    """
    if not (bits >= 1 and hashes >= 0):
        raise ParameterError(f"bits must be positive and hashes not negative: {bits}, {hashes}")
    if bits == 1:
        return 0.0
    exponent = hashes * log1p(-1 / bits)
    return 2 * bits * exp(exponent) * -expm1(exponent)
