"""The interface of every chain, and how its outputs are packed and counted: symbols, or bits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Any, Bools, Bytes, Floats, Ints, np
from mechanisms.errors import ParameterError
from mechanisms.levels import Probabilities
from mechanisms.randomness import Source

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar

#: Possible encodings of a value with integer weights; more than one where it is rounded at random.
Prior = Sequence[tuple[int, int]]


class Chain(ABC):
    """The outputs of one value at every level, as integers; each drawn from the next stronger.

    Level 0 is the weakest. A chain is drawn from an *input*: a symbol or a vector of bits, as the
    mechanism encodes the value. All integers that decide are held by the chain, so that its exact
    probabilities can be computed from them.
    """

    #: Whether an output is a vector of bits, each randomized on its own.
    independent_bits: ClassVar[bool] = False

    @property
    @abstractmethod
    def levels(self) -> int:
        """The number of levels."""

    @property
    @abstractmethod
    def payload_width(self) -> int:
        """Bytes of a payload."""

    @property
    @abstractmethod
    def cells(self) -> int:
        """The length of a count vector."""

    @abstractmethod
    def contains(self, output: int) -> bool:
        """Return whether an integer is a possible output."""

    @abstractmethod
    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        """Return the exact probabilities of a level: one pair, or one a bit where bits differ."""

    @abstractmethod
    def ratio(self, level: int) -> Fraction:
        """Return the largest likelihood ratio of a level, exactly."""

    def realised_ratio(self, level: int) -> Fraction:
        """Return the same from the sampler's integers alone; here for chains that keep no more."""
        return self.ratio(level)

    @abstractmethod
    def law(self, value: int, level: int) -> dict[int, Fraction]:
        """Return the probability of every output of a level, from the sampler's integers alone."""

    @abstractmethod
    def step(self, output: int, level: int) -> dict[int, Fraction]:
        """Return the law of the output of ``level`` given the one above, as :meth:`law` does."""

    @abstractmethod
    def draw(self, value: int, source: Source) -> list[int]:
        """Draw a chain backward from an input; return its outputs, weakest level first."""

    @abstractmethod
    def weaker(self, last: int, source: Source) -> list[int]:
        """Draw the outputs of all levels but the last, weakest first, from that of the last."""

    @abstractmethod
    def payloads(self, values: Any, source: Source) -> Bytes:
        """Draw chains for ``n`` inputs: ``(n, levels, payload_width)`` ``uint8``."""

    @abstractmethod
    def valid(self, payloads: Bytes) -> Bools:
        """Return which of ``(n, payload_width)`` payloads are possible outputs."""

    @abstractmethod
    def count(self, payloads: Bytes, places: Ints, n_places: int) -> Ints:
        """Count valid payloads by place: ``(n_places, cells)`` ``int64``."""

    @abstractmethod
    def log_ratios(self, one: Any, other: Any, reports: Bytes, level: int) -> Floats:
        """Return how much likelier, as a logarithm, inputs ``other`` make reports than ``one``."""

    # For alarms: what honest devices send, whatever their values.

    @abstractmethod
    def repeats(self, lower: int, upper: int) -> tuple[float, float]:
        """Return the smallest and largest probability that the outputs of two levels are equal.

        Given the output of the ``upper`` level, whichever it is: the same for most chains.
        """

    def kept(self, lower: int, upper: int, newest: int) -> Floats | None:
        """Return the same given each output of a level that is not below ``upper``: ``(k,)``.

        None where that is :meth:`repeats`, whichever the output is; as here.
        """
        return None

    @abstractmethod
    def hits(self, table: Ints) -> tuple[Ints, Ints]:
        """Return what ``(..., cells)`` counts say: ``(..., k)`` hits and ``(...,)`` of how many.

        The bits that are set; of symbols the answers that are each of them.
        """

    @abstractmethod
    def limits(self, level: int) -> tuple[Floats, Floats]:
        """Return the smallest and largest probability of each hit, over all inputs: ``(k,)``."""

    def mixed(self, level: int) -> Floats | None:
        """Return the probability of each hit by input, ``(inputs, k)``, or None.

        None where every share of hits within :meth:`limits` is that of some values.
        """
        return None


class SymbolOutputs(Chain):
    """A chain over outputs ``0`` to ``size - 1``, each packed as one integer."""

    @cached_property
    @abstractmethod
    def size(self) -> int:
        """The number of outputs."""

    @cached_property
    @abstractmethod
    def exact(self) -> tuple[Probabilities, ...]:
        """The exact probabilities of every level."""

    @cached_property
    def payload_width(self) -> int:
        """Bytes of a payload: 1, 2 or 4."""
        return 1 if self.size <= 1 << 8 else 2 if self.size <= 1 << 16 else 4

    @property
    def cells(self) -> int:
        return self.size

    @abstractmethod
    def randomize(self, symbols: Ints, source: Source) -> Ints:
        """Draw chains for ``(n,)`` symbols: ``(n, levels)``, weakest level first."""

    def exact_at(self, level: int) -> tuple[Probabilities, ...]:
        return (self.exact[level],)

    def ratio(self, level: int) -> Fraction:
        p, q = self.exact[level]
        return p / q

    def contains(self, output: int) -> bool:
        return 0 <= output < self.size

    def payloads(self, values: Ints, source: Source) -> Bytes:
        drawn = self.randomize(values, source)
        packed = np.ascontiguousarray(drawn.astype(f"<u{self.payload_width}"))
        return packed.view(np.uint8).reshape(*drawn.shape, self.payload_width)

    def symbols(self, payloads: Bytes) -> Ints:
        """Return the symbols in ``(..., payload_width)`` payloads."""
        packed = np.ascontiguousarray(payloads).view(f"<u{self.payload_width}")
        return packed.reshape(payloads.shape[:-1]).astype(np.int64)

    def valid(self, payloads: Bytes) -> Bools:
        return self.symbols(payloads) < self.size

    def count(self, payloads: Bytes, places: Ints, n_places: int) -> Ints:
        from mechanisms.estimators.counting import grouped_counts

        return grouped_counts(self.symbols(payloads), places, n_places, self.size)

    def hits(self, table: Ints) -> tuple[Ints, Ints]:
        return table, table.sum(axis=-1)

    def limits(self, level: int) -> tuple[Floats, Floats]:
        [(p, q)] = self.exact_at(level)
        return np.full(self.cells, float(q)), np.full(self.cells, float(p))


class BitOutputs(Chain):
    """A chain over vectors of ``width`` bits; a count vector ends with the number of reports."""

    @cached_property
    @abstractmethod
    def width(self) -> int:
        """The number of bits."""

    @cached_property
    def payload_width(self) -> int:
        return -(-self.width // 8)

    @property
    def cells(self) -> int:
        """The sums of the bits, and the number of reports."""
        return self.width + 1

    @property
    def words(self) -> int:
        """64-bit words of a vector."""
        return -(-self.width // 64)

    def contains(self, output: int) -> bool:
        return not output >> self.width

    @cached_property
    def last_byte(self) -> int:
        """The bits of a payload's last byte that are in use."""
        return 0xFF >> (-self.width % 8)

    def valid(self, payloads: Bytes) -> Bools:
        clear: Bools = (payloads[:, -1] & (0xFF ^ self.last_byte)) == 0
        return clear

    def count(self, payloads: Bytes, places: Ints, n_places: int) -> Ints:
        from mechanisms.estimators.counting import grouped_bit_sums

        counts = np.empty((n_places, self.width + 1), dtype=np.int64)
        counts[:, :-1] = grouped_bit_sums(payloads, places, n_places)[:, : self.width]
        counts[:, -1] = np.bincount(places, minlength=n_places)
        return counts

    def hits(self, table: Ints) -> tuple[Ints, Ints]:
        return table[..., :-1], table[..., -1]

    def limits(self, level: int) -> tuple[Floats, Floats]:
        pairs = np.array(self.exact_at(level), dtype=np.float64)
        low, high = np.broadcast_to(pairs.T[::-1], (2, self.width))
        return low, high


def bit_of(reports: Bytes, bit: int) -> Bools:
    """Return whether a bit of each packed report is set."""
    found: Bools = (reports[:, bit >> 3] >> (bit & 7) & 1) == 1
    return found


def spread(one: Fraction, other: Fraction) -> Fraction:
    """Return the larger ratio of two probabilities; refuse a zero, which tells inputs apart."""
    if not min(one, other) > 0:
        raise ParameterError("an output tells inputs apart with certainty")
    return max(one / other, other / one)
