"""What the headers of many messages say, before anything else of them is looked at."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from sotto.wire.format import SIGNED_VERSION, VERSION

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
