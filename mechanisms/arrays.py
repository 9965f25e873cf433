"""Arrays by the type of their entries, for signatures: imported by type checkers alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    #: Random words; and, ``(n, 2)``, ids as little-endian halves.
    Words = NDArray[np.uint64]
    #: Payloads.
    Octets = NDArray[np.uint8]
