"""Short names of the numpy arrays in signatures, by what their entries are."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Bools: TypeAlias = "NDArray[np.bool_]"
Bytes: TypeAlias = "NDArray[np.uint8]"
Floats: TypeAlias = "NDArray[np.float64]"
Ints: TypeAlias = "NDArray[np.int64]"
#: 64-bit words; of ids ``(n, 2)``, little-endian halves.
Words: TypeAlias = "NDArray[np.uint64]"
