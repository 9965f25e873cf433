"""BitRand: randomized response to all bits of a vector, and to its label, as published.

References
----------
"Bit-aware Randomized Response for Local Differential Privacy in Federated Learning" (BitRand),
submitted to ICLR 2022, equations 1 to 3, Theorems 2 and 3, Algorithm 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bools, Bytes, Floats
from mechanisms.audit.cases import Case, Views, unit
from mechanisms.audit.guessing import score_key
from mechanisms.errors import check_at_least, check_positive
from mechanisms.randomness import Source


@dataclass(frozen=True)
class SignMagnitude:
    """A sign bit, m = ``integer_bits`` in [0, l − 1], and l − m − 1 fraction bits, of l in [2, 52].

    Bit 0 is one for numbers that are not negative; bit i ≥ 1 is ⌊2^(i−m) |x|⌋ mod 2, of weight
    2^(m−i). Magnitudes are clipped to ``limit`` and rounded toward zero.

    >>> encoding = SignMagnitude(bits=6, integer_bits=2)
    >>> bits = encoding.encode([2.5, -1.125])
    >>> bits.tolist()
    [[1, 1, 0, 1, 0, 0], [0, 0, 1, 0, 0, 1]]
    >>> encoding.decode(bits).tolist()
    [2.5, -1.125]
    """

    bits: int
    integer_bits: int

    @property
    def step(self) -> float:
        """The weight of the last bit."""
        return 2.0 ** (self.integer_bits - self.bits + 1)

    @property
    def limit(self) -> float:
        """The largest magnitude."""
        return 2.0**self.integer_bits - self.step

    def encode(self, values: ArrayLike) -> Bytes:
        """Return the bits of finite numbers: shape (...) in, (..., bits) ``uint8`` out."""
        given = np.asarray(values, dtype=np.float64)
        magnitudes = np.minimum(np.abs(given), self.limit)
        points = np.floor(magnitudes / self.step).astype(np.int64)
        shifts = np.arange(self.bits - 2, -1, -1)
        out = np.empty((*given.shape, self.bits), dtype=np.uint8)
        out[..., 0] = given >= 0
        out[..., 1:] = points[..., None] >> shifts & 1
        return out

    def decode(self, bits: ArrayLike) -> Floats:
        """Return the numbers of bits: shape (..., bits) in, (...) ``float64`` out.

        Bits need not be 0 or 1: decoding unbiased estimates of independent bits gives an unbiased
        estimate of the number, since no bit occurs twice in a product.
        """
        given = np.asarray(bits, dtype=np.float64)
        weights = 2.0 ** (self.integer_bits - np.arange(1, self.bits))
        return (2 * given[..., 0] - 1) * (given[..., 1:] @ weights)


def log_alpha(epsilon: float, features: int, bits: int) -> float:
    """Return the logarithm of the largest α that the paper's Theorem 2 allows.

    α = sqrt((ε + r l) / (2 r Σ_i exp(2 ε i / l))), i from 0 to l − 1, with r features of l bits and
    a nominal ε in (0, 700].
    """
    check_positive(epsilon, 700)
    check_at_least("features", features, 1)
    check_at_least("bits", bits, 1)
    top = 2 * epsilon * (bits - 1) / bits
    total = math.fsum(math.exp(2 * epsilon * i / bits - top) for i in range(bits))
    return (math.log((epsilon + features * bits) / (2 * features)) - math.log(total) - top) / 2


def frr_losses(epsilon: float, features: int, bits: int) -> list[float]:
    """Return ln(q_i/p_i) = ln α + i ε/l of each bit of a feature; positive where bits invert."""
    start = log_alpha(epsilon, features, bits)
    return [start + i * epsilon / bits for i in range(bits)]


def frr_keeping(epsilon: float, features: int, bits: int) -> list[float]:
    """Return p_i, the probability that bit i of a feature is reported as it is."""
    return [1 / (1 + math.exp(loss)) for loss in frr_losses(epsilon, features, bits)]


def frr_epsilon(epsilon: float, features: int, bits: int) -> float:
    """Return what f-RR really costs: r Σ_i |ln(p_i/q_i)|, the worst case, attained."""
    return features * math.fsum(map(abs, frr_losses(epsilon, features, bits)))


@dataclass(frozen=True)
class FeatureRandomizedResponse:
    """f-RR of BitRand, as published: not ε-LDP. All bits of a vector by randomized response.

    ``epsilon``, in (0, 700], is what the paper calls the privacy budget, of the whole vector, and
    not what the mechanism costs: see ``certified_epsilon``. There are r = ``features``, in the bits
    of :class:`SignMagnitude`.

    Privacy
    -------
    Any two vectors are neighbours. Bits are independent and all of them can change, so that the
    loss is r Σ_i |ln(p_i/q_i)|: 4311 for the nominal 1 at r = 1000, l = 10. The proof of Theorem 2
    bounds the logarithm of the reciprocal ratio from above, and an expectation in the place of the
    worst output; its condition is met by every α down to 0, which is no noise at all.
    No plan can choose this mechanism.

    Utility
    -------
    A debiased bit has variance p q/(p−q)². A bit with q > ½ (``inverted_bits``) is reported
    inverted more often than not, which decoding as published takes as it comes.

    Examples
    --------
    >>> frr = FeatureRandomizedResponse(epsilon=1.0, features=1, bits=10, integer_bits=5)
    >>> frr.epsilon, round(frr.certified_epsilon, 4), frr.inverted_bits
    (1.0, 3.9304, (9,))
    """

    epsilon: float
    features: int
    bits: int
    integer_bits: int

    @property
    def encoding(self) -> SignMagnitude:
        """How a feature becomes bits."""
        return SignMagnitude(self.bits, self.integer_bits)

    @property
    def probabilities(self) -> tuple[float, ...]:
        """p_i, by the place of a bit within its feature; q_i = 1 − p_i."""
        return tuple(frr_keeping(self.epsilon, self.features, self.bits))

    @property
    def inverted_bits(self) -> tuple[int, ...]:
        """The places of bits that are reported inverted more often than not."""
        losses = frr_losses(self.epsilon, self.features, self.bits)
        return tuple(place for place, loss in enumerate(losses) if loss > 0)

    @property
    def certified_epsilon(self) -> float:
        """The worst-case loss of a vector."""
        return frr_epsilon(self.epsilon, self.features, self.bits)

    def randomize(self, values: ArrayLike, source: Source) -> Bytes:
        """Randomize ``(n, features)`` numbers, clipped: ``(n, features, bits)`` ``uint8``."""
        bits = self.encoding.encode(values)
        bits ^= unit(bits.size, source).reshape(bits.shape) >= self.probabilities
        return bits

    def decode(self, reports: Bytes) -> Floats:
        """Return randomized bits as numbers, as published: biased. ``(n, features)``."""
        return self.encoding.decode(reports)

    def debiased(self, reports: Bytes) -> Floats:
        """Return unbiased estimates of the encoded numbers, ``(n, features)``.

        Infinite or NaN where a bit is reported by a fair coin.
        """
        flip = 1 - np.array(self.probabilities)
        return self.encoding.decode((reports - flip) / (1 - 2 * flip))


def label_keeping(epsilon: float, labels: int) -> tuple[float, float]:
    """Return the probability that label-RR reports the true of C ``labels``, and each other one.

    e^β/(1+e^β) and 1/((1+e^β)(C−1)) with the largest β of Theorem 3, ε − ln(C−1): this is exactly
    :class:`~mechanisms.category.grr.GeneralizedRandomizedResponse`, and exactly ε-LDP for the
    label; the features are another matter.
    """
    check_at_least("epsilon", epsilon, 0)
    small = math.exp(-epsilon)
    return 1 / (1 + (labels - 1) * small), small / (1 + (labels - 1) * small)


def claims() -> list[Case]:
    """Return the claims of Theorem 2, for a number and for a vector of a thousand."""
    published = [FeatureRandomizedResponse(1.0, features, 10, 5) for features in (1, 1000)]
    return [
        Case(
            f"f-RR, 10 bits, r = {frr.features}",
            "BitRand, Theorem 2",
            frr.epsilon,
            frr.certified_epsilon,
            partial(_reports, frr),
            "the proof bounds the reciprocal ratio",
            max(1, frr.features // 10),
        )
        for frr in published
    ]


def _reports(frr: FeatureRandomizedResponse, secrets: Bools, source: Source) -> Views:
    """Return what reports one of two vectors of which all bits differ."""
    # How much a bit of 1 speaks for the second vector: ln(p/q) where it is set there.
    losses = np.array(frr_losses(frr.epsilon, frr.features, frr.bits))
    ends = np.array([0.0, -frr.encoding.limit])
    signs = 2.0 * frr.encoding.encode(ends[1:])[0] - 1
    scores, block = np.empty(len(secrets)), max(1, 2**22 // (frr.features * frr.bits))
    for start in range(0, len(secrets), block):
        part = secrets[start : start + block].astype(np.int64)
        values = np.repeat(ends[part][:, None], frr.features, axis=1)
        bits = frr.randomize(values, source)
        scores[start : start + block] = -((2.0 * bits - 1) * signs * losses).sum(axis=(1, 2))
    return {"what is likelier": score_key(np.sign(scores)), "all bits": score_key(scores)}
