"""What the fleet has sent, and what of it was acknowledged: written down before and after.

The books are a file mapped into memory, so that they outlive a sender that is killed: what was
about to be sent counts as sent, what was not yet noted as acknowledged does not.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_NUMBERS = ("begun", "messages", "repeated", "reordered")


class Books:
    """Levels of every device, as bits.

    Parameters
    ----------
    path : Path
        Made, with zeros, if it does not exist.
    capacity : int
        Devices.

    Attributes
    ----------
    sent, acknowledged, given_up : (capacity,) uint8
        Bit r of a device is level r of its values. What is given up is not sent again.
    numbers : (k,) int64
        See :meth:`number`.
    """

    def __init__(self, path: Path, capacity: int) -> None:
        self.capacity = capacity
        head = 8 * len(_NUMBERS)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            os.ftruncate(descriptor, head + 3 * capacity)
            held = mmap.mmap(descriptor, head + 3 * capacity)
        finally:
            os.close(descriptor)
        self.numbers = np.frombuffer(held, dtype=np.int64, count=len(_NUMBERS))
        bits = np.frombuffer(held, dtype=np.uint8, offset=head).reshape(3, capacity)
        self.sent, self.acknowledged, self.given_up = bits

    def number(self, name: str) -> int:
        """Return how many devices have ``begun``, or how many ``messages`` were handed over.

        Of these ``repeated`` had been acknowledged before, and ``reordered`` came after a newer
        level of their values.
        """
        return int(self.numbers[_NUMBERS.index(name)])

    def add(self, name: str, more: int) -> None:
        """Raise a number."""
        self.numbers[_NUMBERS.index(name)] += more

    def copy(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Return what is sent and what is acknowledged now, of the devices that have begun."""
        acknowledged = self.acknowledged.copy()
        begun = self.number("begun")
        return self.sent[:begun].copy(), acknowledged[:begun]
