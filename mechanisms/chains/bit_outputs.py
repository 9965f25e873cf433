"""Outputs of chains that are vectors of bits, and how these are packed and counted."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property

from mechanisms.arrays import Bools, Bytes, Floats, Ints, np
from mechanisms.chains.chain import Chain


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
