"""Generalized randomized response: report the true category, or one of the others."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import chain

from mechanisms.arrays import Floats, Ints, np
from mechanisms.base import Epsilon
from mechanisms.category.oracle import CategoryMechanism, FrequencyOracle
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.frozen import frozen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mechanisms.items import Context, Item


@frozen
class GeneralizedRandomizedResponse(FrequencyOracle):
    """Report the true category, or with a smaller probability each of the others.

    ``epsilon`` lies in [1e-6, 40], ``domain_size``, the number m of categories, in [2, 2**20].

    Privacy
    -------
    Any two categories are neighbours; the largest likelihood ratio is exactly p/q.

    Relaxation
    ----------
    Always: keep the reported category, or replace it by a uniform one.

    Utility
    -------
    The share of a category of true share π has variance
    [π p(1−p) + (1−π) q(1−q)] / (n (p−q)²), given the values.

    Use
    ---
    Where there are fewer than about e^ε categories; for a few more, subset selection has less
    noise, and for many local hashing or optimized unary encoding have.

    References
    ----------
    S. L. Warner, "Randomized Response", JASA 60(309), 1965 (two categories). P. Kairouz,
    K. Bonawitz, D. Ramage, "Discrete Distribution Estimation under Local Privacy", ICML 2016.

    Examples
    --------
    >>> grr = GeneralizedRandomizedResponse(epsilon=1.0, domain_size=4)
    >>> round(grr.p, 4), round(grr.q, 4), grr.certified()
    (0.4754, 0.1749, 1000000)
    """

    epsilon: Epsilon
    domain_size: int

    name = "grr"
    symbolic = True
    types = ("category", "boolean", "ordinal")

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(self.domain_size, self.micros)

    def matrix(self, level: int) -> Floats:
        """Return the probability of each cell of a count vector, by category."""
        [(p, q)] = self.probabilities(level)
        matrix = np.full((self.domain_size, self.domain_size), q)
        np.fill_diagonal(matrix, p)
        return matrix

    describe = CategoryMechanism.describe

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        if context.ordered:
            from mechanisms.ordinal.estimates import ordinal_items

            shares = super().estimate(counts, context)
            items = ordinal_items(self, counts, context, shares)
            return chain(items, self._conversions(counts, context)) if context.funnel else items
        return super().estimate(counts, context)

    def _conversions(self, counts: Ints, context: Context) -> Iterator[Item]:
        from mechanisms.estimators.ratios import conversions
        from mechanisms.items import Item

        found = conversions(counts.reshape(self.levels, -1), self.pairs())
        for label, each in zip(context.labels[1:], found, strict=True):
            yield Item("conversion", label, each)
