"""Numpy, loaded when it is first used, and arrays by the type of their entries.

A device loads the mechanisms with the standard library alone: what is for many values at once
takes ``np`` from here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["ArrayLike", "Bools", "Bytes", "Floats", "Ints", "NDArray", "Words", "np"]

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Bools = NDArray[np.bool_]
    #: Random words; and, ``(n, 2)``, ids as little-endian halves.
    Words = NDArray[np.uint64]
    #: Payloads.
    Bytes = NDArray[np.uint8]
else:
    ArrayLike = NDArray = Ints = Floats = Bools = Words = Bytes = Any

    class _Numpy:
        """Numpy's names, each looked up once."""

        def __getattr__(self, name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            import numpy

            found = getattr(numpy, name)
            setattr(self, name, found)
            return found

    np = _Numpy()
