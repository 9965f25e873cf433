"""A market of randomized data: one chain, sold level by level to several buyers (section 5.3).

A seller draws a chain in small strides, backward from a cap, and forgets the value. A buyer gets
the report of the epsilon he pays for, and may come back for a stronger one. Whatever is sold to
whom, all buyers together learn no more than the strongest report sold to any of them: the weaker
ones are degradations of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.errors import ParameterError
from mechanisms.estimate import Estimate
from mechanisms.estimators.frequency import shares
from mechanisms.exact import MICRO, to_micro
from mechanisms.levels import MAX_DECISION_EPSILON, Amounts, certify
from mechanisms.randomness import Source

#: A chain for sale has at most so many reports.
MAX_STRIDES = 1000


class Sale(NamedTuple):
    """A report, sold: the ``report`` of a ``level`` of the chain.

    ``cost`` is what the buyer can infer of this value from all he has, in certified micro-epsilon,
    ``increment`` what the sale adds to the seller's total: 0 where somebody has bought a stronger
    report. ``output_dependent`` says whether this upgrade, or one before it, depended on a report
    that the buyer had seen.
    """

    buyer: str
    level: int
    report: int
    cost: int
    increment: int
    output_dependent: bool


class MarketEstimate(NamedTuple):
    """Shares of values; unbiased, however levels depend on values, unless ``biased``.

    Then some report was upgraded because of what the buyer had seen of it. Both values and
    intervals are wrong, by an amount that nobody knows: upgrading from 0.5 to 2 exactly the bits
    reported as 1 makes −0.915 of a zero.
    """

    shares: tuple[Estimate, ...]
    biased: bool


@dataclass(frozen=True)
class Catalogue:
    """The offers of sellers of one kind of value: a ladder in strides, up to a cap.

    ``start`` and ``cap`` are the epsilons of the weakest and of the strongest report, at most 40,
    and ``stride`` the difference between neighbours; digits beyond the sixth are dropped, and
    ``cap`` is reached exactly. All reports of a seller together cost what the strongest one sold
    costs, at most ``cap``, any two values being neighbours.

    Examples
    --------
    >>> catalogue = Catalogue(domain_size=5, start=0.1, cap=1.0, stride=0.01)
    >>> catalogue.levels, catalogue.amounts.certified[-1]
    (91, 1000000)
    """

    domain_size: int
    start: float
    cap: float
    stride: float

    def __post_init__(self) -> None:
        _ = self.amounts

    @cached_property
    def _nominal(self) -> tuple[int, ...]:
        first, last, step = (to_micro(x) for x in (self.start, self.cap, self.stride))
        if not first <= last <= MAX_DECISION_EPSILON * MICRO:
            raise ParameterError(
                f"start must not be above cap, nor cap above {MAX_DECISION_EPSILON}: "
                f"{self.start}, {self.cap}"
            )
        if not (last - first) // step < MAX_STRIDES:
            raise ParameterError(f"a chain has at most {MAX_STRIDES} strides")
        return (*range(first, last, step), last)

    @cached_property
    def _chain(self) -> SymbolChain:
        return symbol_chain(self.domain_size, self._nominal)

    @cached_property
    def amounts(self) -> Amounts:
        """Nominal and certified micro-epsilon of every report, weakest first."""
        return certify(self._nominal, [p / q for p, q in self._chain.exact])

    @property
    def levels(self) -> int:
        """The number of reports of a chain."""
        return len(self._nominal)

    def level_of(self, epsilon: float) -> int:
        """Return the strongest report that ``epsilon``, within ``start`` and ``cap``, pays for."""
        micro = to_micro(epsilon)
        if not self._nominal[0] <= micro <= self._nominal[-1]:
            raise ParameterError(f"epsilon must lie in [{self.start}, {self.cap}], not {epsilon}")
        return bisect_right(self._nominal, micro) - 1

    def seller(self, value: int, source: Source) -> Seller:
        """Draw a seller's chain from his value, which is not kept."""
        return Seller(self, tuple(self._chain.draw(value, source)))

    def estimate(self, sales: Sequence[Sale]) -> MarketEstimate:
        """Estimate the share of each value from what one buyer bought of many sellers.

        The newest sale of each seller: the older ones say nothing more.
        """
        ones = np.zeros((self.levels, self.domain_size), dtype=np.int64)
        for sale in sales:
            ones[sale.level, sale.report] += 1
        pairs = np.array([(float(p), float(q)) for p, q in self._chain.exact])
        found = shares(ones, ones.sum(axis=1), pairs)
        return MarketEstimate(tuple(found), any(sale.output_dependent for sale in sales))


@dataclass
class Seller:
    """One value's chain and the ledger of its sales, made by :meth:`Catalogue.seller`.

    >>> from mechanisms.testing import SeededSource
    >>> catalogue = Catalogue(domain_size=5, start=0.1, cap=1.0, stride=0.01)
    >>> seller = catalogue.seller(3, SeededSource(1))
    >>> [seller.sell(*order).increment for order in (("a", 0.3), ("b", 0.5), ("a", 0.4))]
    [300000, 200000, 0]
    >>> seller.spent
    500000
    """

    catalogue: Catalogue
    _reports: tuple[int, ...] = field(repr=False)
    _ledger: list[Sale] = field(default_factory=list, init=False, repr=False)

    @property
    def ledger(self) -> tuple[Sale, ...]:
        """All sales, in order."""
        return tuple(self._ledger)

    @property
    def spent(self) -> int:
        """The bound on what all buyers together can infer, in certified micro-epsilon."""
        return max((sale.cost for sale in self._ledger), default=0)

    @property
    def left(self) -> int:
        """The amount that can still be sold: the certified cap less ``spent``."""
        return self.catalogue.amounts.certified[-1] - self.spent

    def seen_by(self, buyer: str) -> tuple[Sale, ...]:
        """Return what a buyer has: his own sales alone."""
        return tuple(sale for sale in self._ledger if sale.buyer == buyer)

    def sell(self, buyer: str, epsilon: float, *, output_dependent: bool = False) -> Sale:
        """Sell a report, or a stronger one to a buyer who has one.

        ``epsilon`` must pay for a stronger report than the buyer has. ``output_dependent`` says
        that the buyer asks because of a report that he has seen, which costs no privacy and ruins
        his estimates.
        """
        level = self.catalogue.level_of(epsilon)
        before = self.seen_by(buyer)
        if before and not before[-1].level < level:
            raise ParameterError(
                f"epsilon {epsilon} pays for no stronger report than the buyer has"
            )
        if output_dependent and not self._ledger:
            raise ParameterError("output_dependent: nothing has been sold that could be seen")
        cost = self.catalogue.amounts.certified[level]
        dependent = output_dependent or any(sale.output_dependent for sale in before)
        increment = max(0, cost - self.spent)
        sale = Sale(buyer, level, self._reports[level], cost, increment, dependent)
        self._ledger.append(sale)
        return sale
