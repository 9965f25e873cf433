"""All bits of a number, the epsilon split over them so that the mean varies least.

The variance of a mean from split bits is the sum of w_i² f(ε_i), f(ε) = e^ε/(e^ε−1)². It is least
where w_i² |f′(ε_i)| is the same for all bits. With z = e^ε − 1 that condition,
|f′| = e^ε(e^ε+1)/(e^ε−1)³ = c, is the cubic c z³ = (z+1)(z+2) with one positive root, and the
product of all (1 + z_i) is e to the whole epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cached_property, lru_cache

from mechanisms.arrays import ArrayLike, Ints, Words, np
from mechanisms.base import Epsilon
from mechanisms.chains.bits import BitChain, symmetric_bit
from mechanisms.chains.chain import Prior
from mechanisms.errors import ParameterError, check_int
from mechanisms.exact import MICRO, decimal_context
from mechanisms.frozen import frozen
from mechanisms.levels import MAX_DECISION_EPSILON
from mechanisms.noise import Noise
from mechanisms.number import grid
from mechanisms.number.mechanism import NumberMechanism
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.items import Context
    from mechanisms.number.answers import NumericEstimates

_CONTEXT = decimal_context(34)
#: Shares are rounded down to multiples of 1e-24.
_PLACES = 24
_STEPS = 52
#: Newton's method ends when a step is relatively smaller; the next one would be its square.
_CLOSE = Decimal("1e-10")


@frozen
class SplitBits(NumberMechanism):
    """Report all bits of a number, epsilon split over them so that the mean varies least.

    ``bits`` lie in [1, 32], and the epsilon of the most significant one is at most 40. One more
    bit, which weighs as much as the first, says whether there is a value if values can be missing.

    Privacy
    -------
    Any two numbers, or a number and a missing value, are neighbours; all bits can differ, and the
    largest likelihood ratio is the product of theirs.

    Relaxation
    ----------
    Exact, every bit by a flip of its own that does not look at it.

    Utility
    -------
    On [-1, 1] a user's variance is 4 Σ w_i² f(ε_i), w_i = 2^(l−i)/(2^l−1) and
    f(ε) = e^ε/(e^ε−1)²: more than one-bit response for every l > 1 up to epsilon 2. For the means
    of bits, not for that of the number.

    Use
    ---
    For the means of all bits from every report. For the mean of the number itself, any of the
    others: the Hybrid Mechanism varies less at every epsilon.

    References
    ----------
    After "Bit-aware Randomized Response for Local Differential Privacy in Federated Learning"
    (BitRand), submitted to ICLR 2022, with a split of epsilon that is certified.

    Examples
    --------
    >>> [round(share, 4) for share in SplitBits(epsilon=1.0, bits=4).shares]
    [0.4392, 0.2767, 0.1743, 0.1098]
    """

    epsilon: Epsilon
    bits: int
    missing: bool = False

    name = "split_bits"
    gives = "mean, and the share of each of {bits} bits"
    uncompared = "a report has an answer about each bit, and sums of each are kept by themselves"

    def _check(self) -> None:
        check_int("bits", self.bits, 1, grid.MAX_BITS)
        for number, split in enumerate(self._shares, start=1):
            if not max(split) <= MAX_DECISION_EPSILON:
                raise ParameterError(
                    f"level {number}: the most significant bit would get more than "
                    f"{MAX_DECISION_EPSILON} of epsilon"
                )

    @property
    def _decisions(self) -> int:
        return self.bits + self.missing

    @cached_property
    def _shares(self) -> list[tuple[Fraction, ...]]:
        """The share of each bit by level; a presence bit weighs as much as the first."""
        weights = exact_weights(self.bits)
        weights = (*weights, weights[0]) if self.missing else weights
        return [split_epsilon(Fraction(micro, MICRO), weights) for micro in self.micros]

    @property
    def shares(self) -> tuple[float, ...]:
        """The nominal epsilon of each bit at the last level, most significant first."""
        return tuple(float(share) for share in self._shares[-1])

    @cached_property
    def chain(self) -> BitChain:
        columns = zip(*self._shares, strict=True)
        return BitChain(self._decisions, tuple(symmetric_bit(column) for column in columns))

    def _ratios(self) -> Sequence[Fraction]:
        by_bit = (bit.bit_ratios() for bit in self.chain.ladders)
        return [math.prod(ratios) for ratios in zip(*by_bit, strict=True)]

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return the bits of the number, rounded to the grid, most significant lowest."""
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return 0
        return self._arrange(grid.round_to_grid(symbol, self.resolution, source))

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        grid.check_unit(symbol, self.missing)
        if symbol is None:
            return ((0, 1),)
        points = grid.neighbours(symbol, self.resolution)
        return tuple((self._arrange(point), weight) for point, weight in points)

    def _arrange(self, point: int) -> int:
        reversed_bits = int(f"{point:0{self.bits}b}"[::-1], 2)
        return reversed_bits | 1 << self.bits if self.missing else reversed_bits

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Words:
        values, gone = grid.unit_array(symbols, self.missing)
        rounded = grid.rounds_to_grid(np.where(gone, 0.0, values), self.resolution, source)
        points = rounded.astype(np.uint64)
        out = np.zeros(len(points), dtype=np.uint64)
        for index in range(self.bits):
            bit = points >> np.uint64(self.bits - 1 - index) & np.uint64(1)
            out |= bit << np.uint64(index)
        if self.missing:
            out |= np.uint64(1 << self.bits)
            out[gone] = 0
        return out.reshape(-1, 1)

    def _numeric(
        self, table: Ints, low: float, high: float, quantiles: Sequence[float], strata: int
    ) -> NumericEstimates:
        from mechanisms.number.answers import split_estimates

        pairs = [self.pairs(bit) for bit in range(self._decisions)]
        return split_estimates(table, pairs, low, high, self.missing)

    def variance(self, level: int, values: ArrayLike | None = None, n: int = 1_000_000) -> float:
        from mechanisms.estimators.variance import split_bits_variance

        pairs = self.probabilities(level)
        # Half-way between two points the rounding adds most; the presence bit does where all are 1.
        found = split_bits_variance(pairs[: self.bits], [0.5] if values is None else values)
        if self.missing:
            p, q = pairs[-1]
            mean = 1.0 if values is None else float(np.asarray(values, dtype=np.float64).mean())
            found += mean**2 * p * (1 - p) / (p - q) ** 2
        return found

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        output = self.output_of(payload)
        if self.missing and not output >> self.bits:
            return "missing"
        point = int(f"{output & self.resolution:0{self.bits}b}"[::-1], 2)
        return f"about {context.number(point / self.resolution)}"

    @property
    def resolution(self) -> int:
        return (1 << self.bits) - 1

    def reach(self, level: int) -> tuple[float, float] | None:
        """Return that of bits that lie together, each by its weight."""
        weights = [2.0 ** (self.bits - 1 - bit) / (2.0**self.bits - 1) for bit in range(self.bits)]
        lies = [Noise.of(*pair) for pair in self.exact(level)][: self.bits]
        over = sum(weight * lie.over for weight, lie in zip(weights, lies, strict=True))
        return over, sum(weight * lie.under for weight, lie in zip(weights, lies, strict=True))

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        return (None if self.missing else 0.0), 1.0


@lru_cache(maxsize=1024)
def split_epsilon(epsilon: Fraction, weights: tuple[Fraction, ...]) -> tuple[Fraction, ...]:
    """Split a positive epsilon over bits so that the variance of their weighted sum is least.

    The shares, rounded down to 1e-24, sum to at most ``epsilon``. A larger epsilon gives every bit
    a larger share, so ladders of split bits are always related.

    >>> shares = split_epsilon(Fraction(1), (Fraction(8, 15), Fraction(4, 15)))
    >>> [round(float(share), 4) for share in shares]
    [0.6135, 0.3865]
    """
    if not epsilon > 0 or not all(weight > 0 for weight in weights):
        raise ParameterError("epsilon and weights must be positive")
    with localcontext(_CONTEXT):
        target = Decimal(epsilon.numerator) / Decimal(epsilon.denominator)
        squares = [Decimal(w.numerator**2) / Decimal(w.denominator**2) for w in weights]
        shares = _bisect(target, squares)
        scale = target / sum(shares)
        grains = [int((share * scale).scaleb(_PLACES)) for share in shares]
    return tuple(Fraction(max(grain - 1, 0), 10**_PLACES) for grain in grains)


def exact_weights(bits: int) -> tuple[Fraction, ...]:
    """Return the weights 2**(l-i)/(2**l-1) of an l-bit number's bits, most significant first."""
    whole = (1 << bits) - 1
    return tuple(Fraction(1 << (bits - 1 - index), whole) for index in range(bits))


def _bisect(target: Decimal, squares: Sequence[Decimal]) -> list[Decimal]:
    """Find the multiplier for which the shares sum to ``target``, by bisection of its log."""
    goal = target.exp()
    # With the same share for all, the smallest and the largest weight bracket the multiplier.
    even = _slope(target / len(squares))
    low, high = min(squares) * even, max(squares) * even
    roots = [_start(low / square) for square in squares]
    for _ in range(_STEPS):
        middle = (low * high).sqrt()
        roots = [_root(middle / s, root) for s, root in zip(squares, roots, strict=True)]
        product = Decimal(1)
        for root in roots:
            product *= 1 + root
        if product > goal:
            low = middle
        else:
            high = middle
    return [(1 + root).ln() for root in roots]


def _slope(epsilon: Decimal) -> Decimal:
    z = epsilon.exp() - 1
    return (z + 1) * (z + 2) / z**3


def _start(slope: Decimal) -> Decimal:
    """Return a z above the root for ``slope``: (z+1)(z+2) is at most 6 max(1, z)^2."""
    return max(6 / slope, (6 / slope) ** (Decimal(1) / 3))


def _root(slope: Decimal, start: Decimal) -> Decimal:
    """Return the z > 0 for which slope z^3 = (z+1)(z+2), by Newton's method."""
    # The cubic is convex wherever it rises: one step from there lands above the root, and from
    # above the root every step falls towards it.
    z = start
    while True:
        linear = slope * z - 1
        excess = (linear * z - 3) * z - 2
        incline = (3 * linear + 1) * z - 3
        if incline <= 0:
            z = _start(slope)
            continue
        step = excess / incline
        z -= step
        if abs(step) < z * _CLOSE:
            return z
