"""RAPPOR: strings as Bloom filters, by cohort, with one permanent response a bit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from math import isfinite

from mechanisms import coins
from mechanisms.arrays import Ints, Words, np
from mechanisms.base import NO_ID, Epsilon, Mechanism
from mechanisms.chains.bits import BitChain, changed_ratio, symmetric_bit
from mechanisms.errors import ParameterError, check_int
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.noise import Noise
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from numpy.typing import ArrayLike

    from mechanisms.items import Context, Item
    from mechanisms.planner.targets import Assumed, Precision
    from mechanisms.string.decoding import Filters, StringEstimates

#: A filter has at most so many bits.
MAX_BITS = 1 << 16
#: One SHA-256 gives so many positions.
MAX_HASHES = 8
#: A metric has at most so many cohorts.
MAX_COHORTS = 1 << 16
#: Names of strings that are tried for disjoint filters without a collision.
_TRIED = 64


@frozen
class Rappor(Mechanism):
    """The Bloom filter of a string, each bit flipped with the same probability (f/2).

    ``epsilon`` is at least 1e-6, and at most 40 a differing bit. A filter has k = ``bits`` up to
    2**16, set by h = ``hashes`` up to 8. Each of up to 2**16 ``cohorts`` hashes in its own way, so
    that strings that collide in one are told apart by others; the cohort is a public hash of the
    pseudonym and of ``metric``.

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
    >>> round(rappor.p, 4), rappor.certified()
    (0.7311, 4000000)
    """

    epsilon: Epsilon
    bits: int
    hashes: int
    cohorts: int = 1
    metric: str = ""

    name = "rappor"
    types = ("string",)
    coins = "pseudonym"
    gives = "shares of candidate strings, and what they leave unexplained"
    uncompared = "several strings set the same bit, and sums of each bit are kept by themselves"

    @classmethod
    def coinless(cls, spec: Mapping[str, object]) -> bool:
        return spec.get("cohorts") == 1

    def _check(self) -> None:
        check_int("bits", self.bits, 1, MAX_BITS)
        check_int("hashes", self.hashes, 1, MAX_HASHES)
        check_int("cohorts", self.cohorts, 1, MAX_COHORTS)

    @property
    def _decisions(self) -> int:
        return min(2 * self.hashes, self.bits)

    @cached_property
    def chain(self) -> BitChain:
        exponents = [Fraction(micro, self._decisions * MICRO) for micro in self.micros]
        return BitChain(self.bits, (symmetric_bit(exponents),))

    def _ratios(self) -> Sequence[Fraction]:
        return [ratio**self._decisions for ratio in self.chain.ladders[0].bit_ratios()]

    def realised_ratio(self, level: int) -> Fraction:
        [(p, q)] = self.chain.realised(level)
        return changed_ratio(p, q) ** self._decisions

    @property
    def f(self) -> float:
        """RAPPOR's parameter: the probability that a bit is replaced by a fair coin."""
        return 2 * self.q

    @cached_property
    def _domain(self) -> int:
        return coins.cohort_domain(self.metric)

    def cohort(self, pseudonym: bytes) -> int:
        """Return the cohort, in [0, cohorts), of a pseudonym."""
        return coins.hash_id(pseudonym, self._domain) % self.cohorts if self.cohorts > 1 else 0

    @property
    def strata(self) -> int:
        return self.cohorts

    @property
    def true_bits(self) -> tuple[int, int]:
        """Positions of a filter may coincide."""
        return 1, min(self.hashes, self.bits)

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints:
        hashes = coins.hash_ids(pseudonyms, self._domain)
        return (hashes % np.uint64(self.cohorts)).astype(np.int64)

    @property
    def groups(self) -> int:
        return self.cohorts

    def separable(self, answers: Ints) -> Ints:
        """Return the answers of each cohort: with many candidates, shares may tell all its bits."""
        return answers

    def filter_of(self, string: bytes, cohort: int) -> int:
        """Return the Bloom filter of a string in a cohort, bit j of the integer being bit j."""
        out = 0
        for position in coins.bloom_positions(string, cohort, self.hashes, self.bits):
            out |= 1 << position
        return out

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return self.filter_of(symbol, self.cohort(pseudonym))

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Words:
        if not isinstance(symbols, list | tuple) and np.ndim(symbols) != 1:
            raise ParameterError("strings must be one row")
        width = 8 * self.chain.words
        known: dict[tuple[bytes, int], bytes] = {}
        rows = []
        for key in zip(symbols, self.strata_of(chains, pseudonyms).tolist(), strict=True):
            packed = known.get(key)
            if packed is None:
                packed = known[key] = self.filter_of(*key).to_bytes(width, "little")
            rows.append(packed)
        flat = np.frombuffer(b"".join(rows), dtype="<u8").astype(np.uint64)
        return flat.reshape(len(rows), self.chain.words)

    @property
    def filters(self) -> Filters:
        from mechanisms.string.decoding import Filters

        return Filters(self.bits, self.hashes, self.cohorts)

    def decode(
        self,
        counts: ArrayLike,
        candidates: Sequence[str],
        *,
        error: float = 0.05,
        false_discovery_rate: float | None = None,
        design_effect: float = 1.0,
    ) -> StringEstimates:
        """Estimate the shares of candidate strings from counts as :meth:`accumulate` lays them out.

        See :func:`mechanisms.string.decoding.decode`.

        >>> from mechanisms.testing import SeededSource
        >>> rappor = Rappor(epsilon=8.0, bits=64, hashes=2, cohorts=4, metric="city")
        >>> ids = SeededSource(1).words(4000).reshape(2000, 2)
        >>> strings = [b"oslo"] * 1500 + [b"rome"] * 500
        >>> counts = rappor.tally(rappor.report(strings, SeededSource(2), ids), ids)
        >>> result = rappor.decode(counts, ["lima", "oslo", "rome"])
        >>> [item.candidate for item in result.items if item.significant]
        ['oslo', 'rome']
        """
        from mechanisms.estimators.frequency import count_table
        from mechanisms.string.decoding import decode

        cells = count_table(self, counts).reshape(self.levels, self.cohorts, self.bits + 1)
        return decode(
            cells,
            self.pairs(),
            self.filters,
            candidates,
            error=error,
            false_discovery_rate=false_discovery_rate,
            design_effect=design_effect,
        )

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        from dataclasses import replace

        from mechanisms.estimate import Estimate, nothing
        from mechanisms.items import Item

        gone = context.missing_string
        strings = list(dict.fromkeys([*context.candidates, *([gone] if context.missing else [])]))
        if not strings:
            cohorts = counts.reshape(len(counts), self.cohorts, -1)
            reports = tuple(cohorts[:, :, -1].sum(axis=1).tolist())
            yield Item("unexplained", "", Estimate(1.0, 0.0, sum(reports), reports))
            return
        # A pseudonym has at most so many reports in a window, all in one cohort.
        rate = context.false_discovery_rate
        found = self.decode(counts, strings, false_discovery_rate=rate, design_effect=context.limit)
        if context.candidates:
            # Without any, all that is not missing is unexplained.
            yield Item("unexplained", "", found.unexplained)
        if found.false_names is not None:
            names = replace(nothing(found.unexplained.reports_by_level), value=found.false_names)
            yield Item("false_names", "", names, unit="names")
        for each, display in zip(found.items, found.display, strict=True):
            what = ("missing", "") if each.candidate == gone else ("string", each.candidate)
            yield Item(
                *what,
                each.estimate,
                display=display,
                p_value=each.p_value,
                significant=each.significant,
                confounded_with=each.confounded_with,
            )

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        from mechanisms.planner.targets import Precision

        if not assumed.candidates:
            raise ParameterError("strings need candidates: how many there are, or which")
        from mechanisms.string.decoding import string_variances

        number = len(assumed.candidates)
        share = 1 / number if assumed.share is None else assumed.share
        shares = [share] + [(1 - share) / max(number - 1, 1)] * (number - 1)
        pair = self.probabilities(level)[0]
        unit = max(string_variances(self.filters, pair, assumed.candidates, shares)[:-1])
        if not isfinite(unit):
            raise ParameterError(
                f"{number} candidates cannot all be told apart by {self.cohorts} cohorts of "
                f"{self.bits} bits: fewer of them could, or more cohorts or bits"
            )
        data = f"{number} candidates and no other strings, the worst of them, "
        data += "all with equal shares" if assumed.share is None else f"one with {100 * share:g} %"
        return Precision("the share of a candidate string", data, lambda n: unit, floors=True)

    def noise(self, level: int) -> Noise | None:
        return Noise.of(*self.exact(level)[0])

    def reach(self, level: int) -> tuple[float, float] | None:
        """Return None: it depends on the candidates, and is stated with their estimates."""
        return None

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        count, cohort = self.output_of(payload).bit_count(), self.cohort(pseudonym) + 1
        return (
            f"a pattern of {self.bits} bits of which {count} are set, in cohort {cohort} of "
            f"{self.cohorts}"
        )

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        cohort, strings = self.cohort(NO_ID), dict[int, bytes]()
        for number in range(_TRIED):
            string = f"string {number}".encode()
            strings.setdefault(self.filter_of(string, cohort), string)
        if len(strings) == 1:
            return b"one", b"other"
        one, other = max(combinations(strings, 2), key=lambda pair: (pair[0] ^ pair[1]).bit_count())
        return strings[one], strings[other]

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        return [b"%016x" % source.bits(64) for _ in range(count)]
