"""Hadamard response: report a place where the category's row of a Hadamard matrix is positive."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Floats, Ints, np
from mechanisms.base import Epsilon
from mechanisms.category.oracle import FrequencyOracle
from mechanisms.chains.output_sets import HadamardChain, block_order, walsh_hadamard
from mechanisms.chains.supporting import support_thresholds
from mechanisms.chains.symbols import MAX_SYMBOLS
from mechanisms.errors import ParameterError, check_int, check_positive
from mechanisms.exact import MICRO
from mechanisms.frozen import frozen
from mechanisms.noise import Noise, odds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from mechanisms.estimators.frequency import Concerned
    from mechanisms.experiments import Scores


@frozen
class HadamardResponse(FrequencyOracle):
    """Report one of the places where the row of the category is positive, or another place.

    The K places are cut into B blocks of b. A category has one block, its number modulo B, and in
    it one row of the Hadamard matrix of order b, never the constant one. Places where the row is
    positive, its *output set*, are e^ε times as likely as all others.

    ``epsilon`` lies in [1e-6, 40], ``domain_size``, the number m of categories, in [2, 2**20];
    ``blocks``, B, is a power of two, at most m, by default that of least variance, close to (e^ε −
    1)/2 (see :func:`best_blocks`).

    Privacy
    -------
    Any two categories are neighbours; the largest likelihood ratio is exactly p/q, with p and q
    the probabilities of the output set and of the rest of the category's block.

    Relaxation
    ----------
    Always, with fixed blocks: keep the place, or replace it by a uniform one.

    Utility
    -------
    An output set, half of a block, has probability p = e^ε/(e^ε+2B−1); the other half of the
    block, and every half of another, q = (1−p)/(2B−1). A report in the block of a category adds
    1/(p−q) to its count if its place is positive and −1/(p−q) if not; others add nothing on
    average, to any category but their own. The share has variance [P(block)/(p−q)² − π]/n, where
    P(block) is the share of reports in the block: 1/B on average over all categories, so that
    n times the variance is (e^ε+2B−1)² / (B (e^ε−1)²) for a rare one. That is the variance of
    unary encoding at small epsilon, and twice that at large ones.

    Use
    ---
    For large domains, where local hashing is not wanted because of its public coin: a symbol of
    at most log2(4m) bits, counts of as many cells, and estimates by fast transforms.

    References
    ----------
    J. Acharya, Z. Sun, H. Zhang, "Hadamard Response: Estimating Distributions Privately,
    Efficiently, and with Little Communication", AISTATS 2019, sections 3 and 4.

    Examples
    --------
    >>> hr = HadamardResponse(epsilon=3.0, domain_size=100)
    >>> hr.blocks, hr.count_length, round(hr.p, 4), round(hr.q, 4), hr.certified()
    (8, 128, 0.5725, 0.0285, 3000000)
    """

    epsilon: Epsilon
    domain_size: int
    blocks: int = 0

    name = "hadamard"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        return {"blocks": best_blocks(micro / MICRO, given["domain_size"])}

    def _check(self) -> None:
        size = self.domain_size
        check_int("domain_size", size, 2, MAX_SYMBOLS)
        if not (1 <= self.blocks <= size and self.blocks.bit_count() == 1):
            raise ParameterError(
                f"blocks must be a power of two in [1, {size}], not {self.blocks!r}"
            )

    @cached_property
    def chain(self) -> HadamardChain:
        thresholds = support_thresholds(Fraction(1, 2 * self.blocks), self.micros)
        order = block_order(self.domain_size, self.blocks)
        return HadamardChain(*thresholds, self.domain_size, self.blocks, order)

    def supports(self, table: Ints) -> tuple[Ints, Ints]:
        row, block = np.divmod(np.arange(self.domain_size), self.chain.blocks)
        blocks = walsh_hadamard(table.reshape(len(table), self.chain.blocks, -1))
        return (blocks[:, block, row + 1] + blocks[:, block, 0]) // 2, table.sum(axis=1)

    def supported(self, category: int, output: int, chain: bytes) -> bool:
        return self.chain.supports(category, output)

    def concerned(self, table: Ints) -> Concerned:
        """Only reports in the block of a category are about it: half of the others support it."""
        from mechanisms.estimators.frequency import Concerned

        sums = table.reshape(len(table), self.chain.blocks, -1).sum(axis=2)
        block = np.arange(self.domain_size) % self.chain.blocks
        p, q = super().support_pairs().T
        return Concerned(sums[:, block], p + q, 2 * q if self.chain.blocks > 1 else p + q)

    def support_pairs(self) -> Floats:
        """Return (1 + p − q)/2 and 1/2: a report in the block adds 1/(p − q) or −1/(p − q)."""
        p, q = super().support_pairs().T
        return np.column_stack([(1 + p - q) / 2, np.full(len(p), 0.5)])

    def scores(self, level: int) -> Scores:
        """Return those of a report in the block, and 0 of one that is in another block."""
        from mechanisms.experiments import Scores

        p, q = map(float, self.exact(level)[0])
        gap, noise = p - q, self.noise(level)
        # A report about another category is in the block of this one as often as noise says.
        within = noise.no * gap**2 / 2
        return Scores(
            np.array([-1 / gap, 1 / gap, 0.0]),
            np.array([within, within, 1 - 2 * within]),
            np.array([q, p, max(1 - p - q, 0.0)]),
        )

    def _answered(self, level: int, shares: Floats) -> tuple[Floats, float]:
        p, q = self.probabilities(level)[0]
        if self.blocks == 1:
            return np.ones_like(shares), p + q
        block = np.arange(len(shares)) % self.blocks
        inside = np.bincount(block, shares, minlength=self.blocks)[block]
        return inside * (p + q) + (1 - inside) * (1 - p - q) / (self.blocks - 1), p + q

    @property
    def _others(self) -> tuple[int, ...]:
        return (1, self.blocks) if self.blocks < self.domain_size else (1,)

    def shared_noise(self, level: int) -> float:
        """Return that of a no in the block of the true category, which shares most of it.

        That of any no, an average over blocks, shares less. A report is in that block with p + q,
        and in another one with 2 q, the smaller part of which is the permanent response's.
        """
        pairs = (self.exact(each)[0] for each in (level, level - 1))
        last, sent = ((p + q) / (p - q) ** 2 for p, q in pairs)
        return min(float(last / sent), 1.0)

    def noise(self, level: int) -> Noise:
        """Return that of a report, which is about one block; a no on average over the others.

        It is in the block of the true category with p + q, and in any other with 2 q.
        """
        p, q = self.exact(level)[0]
        gap, categories, blocks = p - q, self.domain_size, self.blocks
        size, larger = divmod(categories, blocks)
        sizes = [size + 1] * larger + [size] * (blocks - larger)
        pairs = sum(each * (each - 1) for each in sizes)
        together = Fraction(pairs, categories * (categories - 1))
        within = (together * (p + q) + (1 - together) * 2 * q) / gap**2
        exact = (within, (p + q) / gap**2 - 1, 2 / gap, 1 / gap, 1 + 1 / gap)
        return Noise(*map(float, exact))


def best_blocks(epsilon: float, domain_size: int) -> int:
    """Return the number of blocks of least variance for a rare category."""
    check_int("domain_size", domain_size, 2, MAX_SYMBOLS)
    check_positive(epsilon)
    powers = [1 << i for i in range(domain_size.bit_length())]
    return min(powers, key=lambda blocks: response_variance(epsilon, blocks))


def response_variance(epsilon: float, blocks: int) -> float:
    """Return n times the variance of a rare category's share, averaged over the blocks."""
    scale = 1 + 2 * blocks * odds(epsilon)
    return scale * scale / blocks
