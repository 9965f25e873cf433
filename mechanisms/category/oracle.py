"""Frequency oracles: mechanisms whose reports each support some of the categories."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from numbers import Integral

from mechanisms.arrays import Floats, Ints, Words, np
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.randomness import Source, some_below

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from numpy.typing import ArrayLike

    from mechanisms.estimate import Estimate
    from mechanisms.estimators.frequency import Concerned
    from mechanisms.experiments import Scored, Scores
    from mechanisms.items import Context, Item
    from mechanisms.noise import Noise
    from mechanisms.planner.targets import Assumed, Precision

#: So many are named of the values that a payload speaks for.
NAMED = 8


class CategoryMechanism(Mechanism):
    """A mechanism whose values are integers from 0 to below ``domain_size``."""

    domain_size: int

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return category(symbol, self.domain_size)

    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Any:
        return category_array(symbols, self.domain_size)

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        return repr(context.labels[self.output_of(payload)])

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        return 0, 1

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        return some_below(self.domain_size, count, source)


class FrequencyOracle(CategoryMechanism):
    """A mechanism for one of several categories.

    A report supports a category with probability p if it is the true one, and with q if not. Both
    are the same for all categories; a subclass where they are not defines :meth:`frequencies`,
    :meth:`variances`, :meth:`extremes` and :meth:`noise` itself.
    """

    types: ClassVar[tuple[str, ...]] = ("category", "boolean")
    gives = "shares of {symbols}"
    uncompared = ""
    #: The figure that a precision is of, in words.
    share_of: ClassVar[str] = "the share of a category"

    def supports(self, table: Ints) -> tuple[Ints, Ints]:
        """Return how many reports support each category, and how many there are, by level.

        Supports of ``(levels, count_length)`` counts: ``(levels, m)`` and ``(levels,)``, all
        ``int64``. Here each category has a place of its own in the counts.
        """
        return self.chain.hits(table)

    def concerned(self, table: Ints) -> Concerned | None:
        """Return the reports that say something about each category; None if all of them do."""
        return None

    def support_pairs(self) -> Floats:
        """Return (p, q) of every level, shape ``(levels, 2)``."""
        return self.pairs()

    def frequencies(self, counts: ArrayLike) -> list[Estimate]:
        """Estimate the share of each category from counts as :meth:`accumulate` lays them out.

        ``(levels, count_length)`` counts of the newest reports, by level; the estimates, in the
        order of the categories, need not be in [0, 1] nor sum to one. See
        :func:`mechanisms.estimators.frequency.shares`.
        """
        from mechanisms.estimators.frequency import count_table, shares

        table = count_table(self, counts)
        ones, reports = self.supports(table)
        return shares(ones, reports, self.support_pairs(), self.concerned(table))

    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        return share_items(self.frequencies(counts), context)

    def scores(self, level: int) -> Scores | None:
        from mechanisms.experiments import answer_scores

        p, q = self.support_pairs()[level].tolist()
        return answer_scores((p, q))

    def scored(self, counts: Ints, level: int, context: Context) -> Iterator[Scored]:
        from mechanisms.experiments import Scored, answer_scores

        table = np.zeros((self.levels, self.count_length), dtype=np.int64)
        table[level] = counts
        ones, reports = (each[level] for each in self.supports(table))
        concerned = self.concerned(table)
        answers = np.full_like(ones, reports) if concerned is None else concerned.reports[level]
        p, q = self.support_pairs()[level].tolist()
        # A report that says nothing about a category adds nothing.
        values = np.append(answer_scores((p, q)).values, 0.0)
        columns = np.stack((answers - ones, ones, reports - answers), axis=1)
        for label, column in zip(context.labels, columns, strict=True):
            yield Scored("share", label, values, column)

    def variances(self, level: int, shares: ArrayLike) -> Floats:
        """Return n times the variance of each category's estimated share, at true shares ``(m,)``.

        >>> from mechanisms.category.unary import OptimizedUnaryEncoding
        >>> OptimizedUnaryEncoding(1.0, 3).variances(0, [1.0, 0.0, 0.0]).round(4)
        array([4.6827, 3.6827, 3.6827])
        """
        true = np.asarray(shares, dtype=np.float64)
        p, q = self.support_pairs()[level]
        answered, likely = self._answered(level, true)
        noise = q * (1 - q) / (p - q) ** 2
        found: Floats = noise * (answered - likely * true)
        found += true * (noise * likely + (1 - p - q) / (p - q))
        return found

    def _answered(self, level: int, shares: Floats) -> tuple[Floats, float]:
        """Return the share of reports about each category, and that of those who have it."""
        return np.ones_like(shares), 0.0

    def extremes(self, level: int) -> tuple[float, float]:
        """Return n times the largest variances of a share, at true shares of 0 and of 1."""
        corners = np.zeros((len(self._others) + 1, self.domain_size))
        for corner, place in zip(corners, (0, *self._others), strict=True):
            corner[place] = 1
        all_of_it, *none = (float(self.variances(level, each)[0]) for each in corners)
        return max(none), all_of_it

    @property
    def _others(self) -> tuple[int, ...]:
        """Categories of which one, if all have it, makes the share of the first vary most."""
        return (1,)

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        from mechanisms.planner.targets import Assumed, of_share

        ends, noise = self.extremes(level), self.noise(level)
        if assumed.even and noise is not None:
            ends = noise.no, noise.yes
            share = 1 / self.domain_size if assumed.share is None else assumed.share
            assumed = Assumed(share, even=True)
        return of_share(self.share_of, ends, assumed)

    def noise(self, level: int) -> Noise | None:
        from mechanisms.noise import Noise

        return Noise.of(*self.exact(level)[0])

    def bounded_cells(self, table: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """Return the reports that support each category: none is less, or more, than all."""
        ones, reports = self.supports(table)
        p, q = self.pairs().T[:, :, None, None]
        return ones[:, None], reports[:, None], q, p

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        output = self.output_of(payload)
        return any_of(
            [label for x, label in enumerate(context.labels) if self.supported(x, output, chain)]
        )

    def supported(self, category: int, output: int, chain: bytes) -> bool:
        """Return whether an output supports a category, under the coins of its chain.

        Here an output is a vector with a bit for each category.
        """
        return bool(output >> category & 1)


def share_items(estimates: Sequence[Estimate], context: Context) -> Iterator[Item]:
    """Yield estimated shares that sum to one, with consistent ones to show."""
    from mechanisms.estimators.frequency import consistent_shares
    from mechanisms.items import Item

    values = np.array([each.value for each in estimates])
    errors = [each.standard_error for each in estimates]
    known = np.isfinite(values).all()
    shown = consistent_shares(values, errors).tolist() if known else [None] * len(values)
    for label, each, display in zip(context.labels, estimates, shown, strict=True):
        yield Item("share", label, each, display=display)


def any_of(labels: Sequence[str]) -> str:
    """Name the values that a payload supports.

    >>> any_of(["red", "green"])
    "one of 'red', 'green'"
    """
    if not labels:
        return "none of the values"
    listed = ", ".join(map(repr, labels[:NAMED]))
    more = len(labels) - NAMED
    return f"one of {listed}{f' and {more} more' if more > 0 else ''}"


def category(symbol: Any, domain_size: int) -> int:
    """Return a category, after a check that it is an integer in its range."""
    whole = type(symbol) is int or (isinstance(symbol, Integral) and not isinstance(symbol, bool))
    if not (whole and 0 <= symbol < domain_size):
        raise ParameterError(f"a symbol must be an integer in [0, {domain_size})")
    return int(symbol)


def category_array(symbols: Any, domain_size: int) -> Ints:
    """Return categories as an ``int64`` array, after a check of their range."""
    given = np.asarray(symbols)
    if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
        raise ParameterError("symbols must be one row of integers")
    if given.size and not (given.min() >= 0 and given.max() < domain_size):
        raise ParameterError(f"symbols must lie in [0, {domain_size})")
    return given.astype(np.int64)
