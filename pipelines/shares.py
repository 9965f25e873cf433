"""Shares of a topic: which of several processes takes which partitions, and so which shards."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sotto.errors import ParameterError

_SHARE = re.compile(r"([1-9]\d{0,5})/([1-9]\d{0,5})", re.ASCII)


@dataclass(frozen=True)
class Share:
    """One of several equal shares of all shards.

    The partition of a shard is shard mod P. Where the number of shares divides P, partition mod
    ``of`` is shard mod ``of``: a shard is in the same share in every epoch of a topic.

    Parameters
    ----------
    number : int in [1, of]
    of : int
        How many shares there are.

    Examples
    --------
    >>> share = Share.parse("2/4")
    >>> [number for number in range(8) if share.takes(number)], str(share)
    ([1, 5], '2/4')
    """

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.of:
            raise ParameterError(f"share {self.number}/{self.of} must be one of 1/N to N/N")

    @classmethod
    def parse(cls, text: str) -> Share:
        """Return the share that is written so.

        Raises
        ------
        ParameterError
            It is none.
        """
        match = _SHARE.fullmatch(text)
        if match is None:
            raise ParameterError(f"share {text!r} must be K/N, such as 1/2")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def takes(self, partition: int) -> bool:
        """Tell whether a partition is of this share."""
        return partition % self.of == self.number - 1
