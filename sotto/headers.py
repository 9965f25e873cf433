"""What the headers of many messages say, before anything else of them is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sotto.runs import records_at
from sotto.wire import HEADER, MAGIC, SIGNED_VERSION, VERSION

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: A header as one record of numpy.
LAYOUT = np.dtype(
    [
        ("magic", "S2"),
        ("version", "u1"),
        ("flags", "u1"),
        ("shard", "<u2"),
        ("runs", "<u2"),
        ("fingerprint", "<u8", (4,)),
    ]
)


def known_version(header: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which headers are of a version that can be read."""
    version = header["version"]
    known: NDArray[np.bool_] = (version == VERSION) | (version == SIGNED_VERSION)
    known &= header["flags"] == 0
    return known


def shards_said(
    data: NDArray[np.uint8], offsets: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the shard that each message says it is of.

    Parameters
    ----------
    data : (b,) uint8
    offsets, lengths : (m,) int64
        Where in it the messages are.

    Returns
    -------
    (m,) int64
        -1 where there is no header of a known version, so that the message is rejected whole.

    Examples
    --------
    >>> message = HEADER.pack(MAGIC, VERSION, 0, 7, 1, bytes(32)) + b"\\xff"
    >>> signed = HEADER.pack(MAGIC, SIGNED_VERSION, 0, 8, 1, bytes(32))
    >>> data = np.frombuffer(message + signed, dtype=np.uint8)
    >>> shards_said(data, np.array([0, 40, 41]), np.array([len(message), 1, 40])).tolist()
    [7, -1, 8]
    """
    said = np.full(len(offsets), -1, dtype=np.int64)
    long = np.flatnonzero(lengths >= HEADER.size)
    header = records_at(data, offsets[long], LAYOUT)
    known = (header["magic"] == MAGIC) & known_version(header)
    said[long[known]] = header["shard"][known]
    return said
