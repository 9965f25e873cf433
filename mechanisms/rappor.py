"""RAPPOR: strings as Bloom filters, by cohort, with one permanent response a bit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms import coins
from mechanisms.bits import BitChain, symmetric_bit
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.laddered import Prior, VectorLadder
from mechanisms.randomness import Source
from mechanisms.rungs import certify, check_ladder
from mechanisms.unary import MAX_WIDTH

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: One SHA-256 gives so many positions.
MAX_HASHES = 8
#: A metric has at most so many cohorts.
MAX_COHORTS = 1 << 16


@dataclass(frozen=True)
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
        return coins.hash_id(pseudonym, self._domain) % self.cohorts

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
    if not 1 <= bits <= MAX_WIDTH:
        raise ParameterError(f"bits must lie in [1, {MAX_WIDTH}], not {bits}")
    if not 1 <= hashes <= MAX_HASHES:
        raise ParameterError(f"hashes must lie in [1, {MAX_HASHES}], not {hashes}")
    if not 1 <= cohorts <= MAX_COHORTS:
        raise ParameterError(f"cohorts must lie in [1, {MAX_COHORTS}], not {cohorts}")
    differing = min(2 * hashes, bits)
    rungs = check_ladder(ladder, differing)
    bit = symmetric_bit([Fraction(micro, differing * MICRO) for micro in rungs])
    ratios = [ratio**differing for ratio in bit.bit_ratios()]
    return RapporLadder(metric, certify(rungs, ratios), BitChain(bits, (bit,)), hashes, cohorts)
