"""Binary encodings of numbers and vectors: sign and magnitude, and offset binary."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import ArrayLike, NDArray

#: Bits of an encoded number, at most: magnitudes and grids stay exact in floats.
MAX_ENCODED_BITS = 52


@dataclass(frozen=True)
class SignMagnitude:
    """One sign bit, m integer bits and l − m − 1 fraction bits.

    Parameters
    ----------
    bits : int
        In [2, 52], the number l of bits.
    integer_bits : int
        In [0, bits − 1], the number m of bits before the point.

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Notes
    -----
    Bit 0 is one for numbers that are not negative; bit i ≥ 1 is ⌊2^(i−m) |x|⌋ mod 2, of weight
    2^(m−i). Magnitudes are clipped to ``limit`` and rounded toward zero.

    References
    ----------
    "Bit-aware Randomized Response for Local Differential Privacy in Federated
    Learning" (BitRand), submitted to ICLR 2022, equation 1 and figure 1.

    Examples
    --------
    >>> encoding = SignMagnitude(bits=6, integer_bits=2)
    >>> bits = encoding.encode([2.5, -1.125])
    >>> bits.tolist()
    [[1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1]]
    >>> encoding.decode(bits).tolist()
    [2.5, -1.125]
    """

    bits: int
    integer_bits: int

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= MAX_ENCODED_BITS:
            raise ParameterError(f"bits must lie in [2, {MAX_ENCODED_BITS}], not {self.bits}")
        if not 0 <= self.integer_bits < self.bits:
            raise ParameterError(
                f"integer_bits must lie in [0, {self.bits - 1}], not {self.integer_bits}"
            )

    @property
    def step(self) -> float:
        """The weight of the last bit."""
        return 2.0 ** (self.integer_bits - self.bits + 1)

    @property
    def limit(self) -> float:
        """The largest magnitude."""
        return 2.0**self.integer_bits - self.step

    def encode(self, values: ArrayLike) -> NDArray[np.uint8]:
        """Return the bits of finite numbers: shape (...) in, (..., bits) ``uint8`` out."""
        import numpy as np

        given = _finite(values)
        magnitudes = np.minimum(np.abs(given), self.limit)
        points = np.floor(magnitudes / self.step).astype(np.int64)
        shifts = np.arange(self.bits - 2, -1, -1)
        out = np.empty((*given.shape, self.bits), dtype=np.uint8)
        out[..., 0] = given >= 0
        out[..., 1:] = points[..., None] >> shifts & 1
        return out

    def decode(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Return the numbers of bits: shape (..., bits) in, (...) ``float64`` out.

        Bits need not be 0 or 1: decoding unbiased estimates of independent bits gives an unbiased
        estimate of the number, since no bit occurs twice in a product.
        """
        import numpy as np

        given = _rows(bits, self.bits)
        weights = 2.0 ** (self.integer_bits - np.arange(1, self.bits))
        decoded: NDArray[np.float64] = (2 * given[..., 0] - 1) * (given[..., 1:] @ weights)
        return decoded


@dataclass(frozen=True)
class OffsetBinary:
    """The 2**l points of a range, from the lowest to the highest, as binary numbers.

    Parameters
    ----------
    bits : int
        In [1, 52], the number l of bits.
    low, high : float
        The range, finite and increasing; by default [-1, 1].

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Notes
    -----
    A number is the weighted mean of ``low`` and ``high`` with the sum of w_i b_i for weight, where
    w_i = 2^(l−i)/(2^l−1): every bit shifts it by w_i (high − low), whatever the others are.
    Numbers are clipped to the range and go to the nearest point, ties to the even one.

    Examples
    --------
    >>> encoding = OffsetBinary(bits=3)
    >>> encoding.encode([-1.0, 0.9, 1.0]).tolist()
    [[0, 0, 0], [1, 1, 1], [1, 1, 1]]
    >>> encoding.decode([[1, 0, 0]]).round(4).tolist()
    [0.1429]
    """

    bits: int
    low: float = -1.0
    high: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.bits <= MAX_ENCODED_BITS:
            raise ParameterError(f"bits must lie in [1, {MAX_ENCODED_BITS}], not {self.bits}")
        if not -float("inf") < self.low < self.high < float("inf"):
            raise ParameterError(
                f"range must be finite and increasing, not [{self.low}, {self.high}]"
            )

    @property
    def step(self) -> float:
        """The distance of two neighbouring points."""
        return (self.high - self.low) / (2.0**self.bits - 1)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight w_i of each bit, most significant first; they sum to one."""
        return tuple(2.0 ** (self.bits - i) / (2.0**self.bits - 1) for i in range(1, self.bits + 1))

    def encode(self, values: ArrayLike) -> NDArray[np.uint8]:
        """Return the bits of finite numbers: shape (...) in, (..., bits) ``uint8`` out."""
        import numpy as np

        given = np.clip(_finite(values), self.low, self.high)
        share = (given - self.low) / (self.high - self.low)
        points = np.rint(share * (2.0**self.bits - 1)).astype(np.int64)
        shifts = np.arange(self.bits - 1, -1, -1)
        return (points[..., None] >> shifts & 1).astype(np.uint8)

    def decode(self, bits: ArrayLike) -> NDArray[np.float64]:
        """Return the numbers of bits: shape (..., bits) in, (...) ``float64`` out.

        Decoding unbiased estimates of bits gives an unbiased estimate of the number.
        """
        import numpy as np

        share = _rows(bits, self.bits) @ np.array(self.weights)
        decoded: NDArray[np.float64] = self.low + (self.high - self.low) * share
        return decoded


def _finite(values: ArrayLike) -> NDArray[np.float64]:
    import numpy as np

    given = np.asarray(values, dtype=np.float64)
    if not np.isfinite(given).all():
        raise ParameterError("numbers must be finite")
    return given


def _rows(bits: ArrayLike, length: int) -> NDArray[np.float64]:
    import numpy as np

    given = np.asarray(bits, dtype=np.float64)
    if given.ndim == 0 or given.shape[-1] != length:
        raise ParameterError(f"bits must have shape (..., {length}), not {given.shape}")
    return given
