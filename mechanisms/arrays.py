"""Numpy, loaded when it is first used, and arrays by the type of their entries.

A device loads the mechanisms with the standard library alone: what is for many values at once
takes ``np`` from here, and what needs a name for any type ``Any``: importing ``typing`` takes a
tenth of what a command line tool pays for a recording.
"""

from __future__ import annotations

__all__ = ["Any", "ArrayLike", "Bools", "Bytes", "Floats", "Ints", "NDArray", "Words", "np"]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

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
    Any = ArrayLike = NDArray = Ints = Floats = Bools = Words = Bytes = object

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
