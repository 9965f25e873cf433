"""The base class of mechanisms: one class, from a device's value to the estimates of a window.

All that depends on the mechanism is asked of it: no other module decides by its name or type.
A device loads the class with the standard library alone; what is for many values at once, and
what estimates, imports numpy when it is called.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cached_property

from mechanisms.arrays import Bools, Bytes, Floats, Ints, Words, np
from mechanisms.chains.chain import Chain, Prior
from mechanisms.coins import coin_domain, hash_id, hash_ids
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO, to_micro
from mechanisms.frozen import types_of
from mechanisms.levels import Amounts, Probabilities, certify, check_ladder
from mechanisms.randomness import NO_SOURCE, Source, SystemSource

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, ClassVar

    from mechanisms.experiments import Scored, Scores
    from mechanisms.items import Context, Item
    from mechanisms.noise import Noise
    from mechanisms.planner.targets import Assumed, Precision

#: One epsilon, or those of several levels, weakest first.
Epsilon = float | Sequence[float]
#: The id of a chain or of a pseudonym where no coin is hashed from it.
NO_ID = bytes(16)

#: The types of parameters, as they are declared: a bool is no int, and a truth is a bool.
_KINDS: dict[str, type] = {"int": int, "bool": bool, "str": str, "tuple[int, ...]": tuple}


class Mechanism(ABC):
    """A mechanism with all its levels: immutable, the same on a device and at the aggregator.

    A subclass is a frozen value (:func:`mechanisms.frozen.frozen`) whose first field is
    ``epsilon``. Level 0 is the weakest, released first. A parameter outside its range is a
    ``ParameterError``. The other fields are the parameters, declared ``int``, ``bool``, ``str`` or
    ``tuple[int, ...]``: a metric gives those named ``domain_size``, ``missing``, ``clip`` and
    ``dimensions`` itself, a plan or :meth:`defaults` the others.

    Most of what a subclass defines is there in :class:`~mechanisms.category.oracle.FrequencyOracle`
    for shares of categories, :class:`~mechanisms.survey.mechanisms.SurveyMechanism` for yes or no,
    and :mod:`mechanisms.number.mechanism` for numbers.

    Parameters
    ----------
    epsilon : float or sequence of float
        The nominal amount, in [1e-6, 40] unless the mechanism names another range; several, rising,
        for as many levels.
    metric : str
        Last, where there is a public coin: separates its coins from those of other metrics.

    Attributes
    ----------
    name, types
        The name in a plan, and the types of metrics that may use it.
    coins
        What public coins are hashed from: ``none``, ``chain`` or ``pseudonym``.
    gives, words
        What its estimates are, for people, a template over ``symbols``, the parameters and
        :meth:`figures`; parameters that people are shown in words of their own, as templates.
    symbolic
        Whether a report names one of the symbols that :meth:`encode` returns.
    uncompared
        Why arms of an experiment are not compared by its estimates; empty if they are, by those
        that :meth:`scored` yields, which are right on average.
    """

    name: ClassVar[str]
    types: ClassVar[tuple[str, ...]]
    coins: ClassVar[str] = "none"
    gives: ClassVar[str]
    words: ClassVar[Mapping[str, str]] = {}
    symbolic: ClassVar[bool] = False
    uncompared: ClassVar[str] = "its estimates are no averages over reports"

    epsilon: Epsilon

    def __post_init__(self) -> None:
        for name, declared in types_of(type(self)).items():
            kind, value = _KINDS.get(declared), getattr(self, name)
            if kind and type(value) is not kind:
                raise ParameterError(f"{name} must be of type {declared}, not {value!r}")
        given = self.epsilon
        epsilons = tuple(given) if isinstance(given, list | tuple) else (given,)
        for each in epsilons:
            if isinstance(each, bool) or not isinstance(each, int | float):
                raise ParameterError(f"epsilon must be a number, or a list of them, not {given!r}")
        object.__setattr__(self, "epsilon", epsilons[0] if len(epsilons) == 1 else epsilons)
        # Parameters that are left at their default 0 or () are the best ones at the last epsilon.
        known = {name: getattr(self, name) for name in self.parameters()}
        blank = [name for name, value in known.items() if value is not False and not value]
        left = [name for name in blank if known[name] == getattr(type(self), name, None)]
        if left:
            # Without a level, the check refuses.
            last = to_micro(epsilons[-1]) if epsilons else check_ladder(())[-1]
            best = self.defaults(last, {"missing": False, "last": last, **known})
            for name in best.keys() & left:
                object.__setattr__(self, name, best[name])
        self._check()
        # Certification refuses levels that the integers of the sampler cannot honour.
        self.amounts  # noqa: B018

    @classmethod
    def parameters(cls) -> dict[str, type]:
        """Return the parameters in a plan and their exact types; a tuple is one of integers."""
        texts = types_of(cls)
        return {name: _KINDS[texts[name]] for name in texts if name not in ("epsilon", "metric")}

    @classmethod
    def coinless(cls, spec: Mapping[str, object]) -> bool:
        """Return whether reports of a plan's ``mechanism`` object are read without any coin."""
        return cls.coins == "none"

    @classmethod
    def defaults(cls, micro: int, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that a plan may leave out, chosen for the strongest level sent.

        ``micro`` is that level's, 0 if there is none; ``given`` is what the metric says itself, for
        example ``domain_size``, and as ``last`` the micro-epsilon of the last level, sent or not.
        """
        return {}

    # Attributes that a subclass defines.

    def _check(self) -> None:  # noqa: B027 - most have nothing to refuse but what the chain does
        """Refuse parameters outside their range, and choose those that were left open."""

    @cached_property
    @abstractmethod
    def chain(self) -> Chain:
        """The chain that is drawn."""

    @property
    def _decisions(self) -> Fraction | int:
        """Over how many equal random decisions an amount is divided."""
        return 1

    def _ratios(self) -> Sequence[Fraction]:
        """Return the exact largest likelihood ratio of every level; here that of the chain."""
        return [self.chain.ratio(level) for level in range(self.chain.levels)]

    @abstractmethod
    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return the input of the chain for a value."""

    def prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        """Return all that :meth:`encode` may return, with integer weights; here one."""
        return ((self.encode(symbol, chain, pseudonym, NO_SOURCE), 1),)

    @abstractmethod
    def encode_many(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Any:
        """Vectorised :meth:`encode`: ``(n,)`` inputs, or ``(n, words)`` packed bits."""

    @property
    def strata(self) -> int:
        """Count vectors kept apart within a group, one after another: one a public coin."""
        return 1

    @property
    def joins(self) -> Sequence[Ints]:
        """First strata of the ranges that estimates may tell apart: fewest first, here all joined.

        Each join is a part of the next one.
        """
        return (np.zeros(1, dtype=np.intp),)

    @property
    def quantities(self) -> int:
        """How many quantities are estimated, each of as many strata, which no other one has."""
        return 1

    @property
    def groups(self) -> int:
        """How many groups :meth:`separable` returns."""
        return 1

    def separable(self, answers: Ints) -> Ints:
        """Return the answers of the groups of reports that combinations of figures can isolate.

        Answers by stratum, ``(..., strata)``: ``(..., groups)``. A combination of figures depends
        on all reports of some of these groups, or on none. Here all are one group, but for what
        :attr:`joins` says.
        """
        found: Ints = answers.sum(axis=-1, keepdims=True)
        return found

    def strata_of(self, chains: Words, pseudonyms: Words) -> Ints | None:
        """Return the stratum of each report, or answer, or None where there is a single one."""
        return None

    @abstractmethod
    def estimate(self, counts: Ints, context: Context) -> Iterator[Item]:
        """Yield all that the newest counts, ``(levels, count_length)``, say: at least one item."""

    @abstractmethod
    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        """Return how precise the main estimate will be if all reports are of one level.

        ``scale`` is the length of the range; ``ParameterError`` where nothing can be said.
        """

    @abstractmethod
    def noise(self, level: int) -> Noise | None:
        """Return what one report adds, or None where an estimate is no sum over reports.

        By the standard library alone: plans are checked and mechanisms chosen with it.
        """

    def reach(self, level: int) -> tuple[float, float] | None:
        """Return how far one forged report among n raises and lowers an estimate, times n.

        A report that claims a symbol which is not true counts (1 - q) / (p - q) too much, one that
        denies a true one p / (p - q) too little; shares lie in [0, 1], and so do numbers once
        scaled. Whoever forges a report also chooses its coins. The mean of numbers that can be
        missing is divided by the share that is present, and so is what it is moved by. None as for
        :meth:`noise`.
        """
        noise = self.noise(level)
        return None if noise is None else (noise.over, noise.under)

    def reaches(self, scale: float = 1.0) -> tuple[tuple[float, float], ...] | None:
        """Return :meth:`reach` of all levels, for values that are scaled; None if one is None."""
        found = [self.reach(level) for level in range(self.levels)]
        known = [(scale * each[0], scale * each[1]) for each in found if each is not None]
        return tuple(known) if len(known) == len(found) else None

    @property
    def independent_coins(self) -> bool:
        """Whether all coins of a report are drawn independently of each other."""
        return True

    def coin_law(self) -> Floats:
        """Return the probability of each stratum that an answer may be about: ``(strata,)``."""
        return np.full(self.strata, 1 / self.strata)

    @property
    def true_bits(self) -> tuple[int, int] | None:
        """The fewest and most bits that are set before randomization; None where any may be."""
        return None

    def bounded_cells(self, table: Ints) -> tuple[Ints, Ints, Floats, Floats]:
        """Return hits, of how many reports, and between which probabilities they lie.

        Cells of ``(levels, count_length)`` counts: hits of shape ``(levels, strata, k)`` and
        numbers of reports, ``(levels, strata)``. The bounds, of all values, are broadcast to the
        hits.
        """
        hits, reports = self.chain.hits(table.reshape(self.levels, self.strata, -1))
        ends = zip(*(self.chain.limits(level) for level in range(self.levels)), strict=True)
        low, high = (np.stack(each)[:, None] for each in ends)
        return hits, reports, low, high

    @property
    def why_not_compared(self) -> str:
        """Return :attr:`uncompared`, or why it holds of these parameters."""
        return self.uncompared

    def scores(self, level: int) -> Scores | None:
        """Return what a report adds to a main estimate that is an average over reports, or None.

        Each report adds a score of its own, which is right on average, whatever others add.
        """
        return None

    def scored(self, counts: Ints, level: int, context: Context) -> Iterator[Scored]:
        """Yield how many reports of a level have which score, of all estimates that have scores.

        ``counts`` are those of the level alone, ``(count_length,)``. Nothing is yielded where
        estimates are no averages over reports, or a report has several answers.
        """
        return iter(())

    def figures(self, level: int) -> dict[str, float]:
        """Return the figures in :attr:`gives` that follow from a level's probabilities, by name."""
        return {}

    def shared_noise(self, level: int) -> float:
        """Return the part of the noise of reports of the level below that one of ``level`` has.

        Reports of one device that are all drawn from the same permanent response share it.
        """
        last, sent = self.noise(level), self.noise(level - 1)
        if last is None or sent is None:
            return 1.0
        return min(max(last.no / sent.no, last.yes / sent.yes), 1.0)

    @abstractmethod
    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Context) -> str:
        """Return what a payload says, in words that its own device can show to its user."""

    @abstractmethod
    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        """Return two values with the loss for which a level is certified, of pseudonym NO_ID."""

    @abstractmethod
    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        """Return different values: all where there are no more than ``count``, else at random."""

    # Methods that all mechanisms share.

    @cached_property
    def amounts(self) -> Amounts:
        """The nominal and certified amounts, in micro-epsilon, weakest level first."""
        return certify(self.micros, self._ratios())

    @cached_property
    def micros(self) -> tuple[int, ...]:
        """The nominal micro-epsilon of every level, weakest first."""
        given = self.epsilon
        epsilons = [given] if isinstance(given, int | float) else given
        return check_ladder([to_micro(each) for each in epsilons], self._decisions)

    @property
    def levels(self) -> int:
        """The number of levels."""
        return len(self.amounts.nominal)

    def nominal(self, level: int = -1) -> int:
        """Return the micro-epsilon that the plan names for a level, the last by default."""
        return self.amounts.nominal[level]

    def certified(self, level: int = -1) -> int:
        """Return the micro-epsilon that a chain up to a level, by default the last, costs at most.

        From the realised probabilities, rounded up; never above the nominal amount.
        """
        return self.amounts.certified[level]

    @property
    def certified_epsilon(self) -> float:
        """That of the last level as an epsilon; the float is never below the exact amount."""
        epsilon = self.certified() / MICRO
        if Fraction(epsilon) < Fraction(self.certified(), MICRO):
            epsilon = math.nextafter(epsilon, math.inf)
        return epsilon

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the exact probabilities of a level: one pair, or one a bit where bits differ."""
        return self.chain.exact_at(level)

    def probabilities(self, level: int) -> tuple[tuple[float, float], ...]:
        """Return the same as floats."""
        return tuple((float(p), float(q)) for p, q in self.exact(level))

    def pairs(self, index: int = 0) -> Floats:
        """Return (p, q) at every level, ``(levels, 2)``: the only ones, or those of one bit."""
        return np.array([self.probabilities(level)[index] for level in range(self.levels)])

    @property
    def p(self) -> float:
        """Of the last level: probability of the true answer (that a first bit of 1 stays 1)."""
        return self.probabilities(self.levels - 1)[0][0]

    @property
    def q(self) -> float:
        """Of the last level: probability of a given other answer (that a first bit of 0 is 1)."""
        return self.probabilities(self.levels - 1)[0][1]

    @property
    def payload_width(self) -> int:
        """Bytes of a payload."""
        return self.chain.payload_width

    @property
    def count_length(self) -> int:
        """The length of a count vector: that of the chain, for each stratum."""
        return self.strata * self.chain.cells

    def draw(
        self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source
    ) -> tuple[bytes, ...]:
        """Draw the payloads of all levels, weakest first, from a value."""
        return self._packed(self.chain.draw(self.encode(symbol, chain, pseudonym, source), source))

    def draw_last(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> bytes:
        """Draw the payload of the last level alone: a permanent response, see :meth:`weaker`."""
        return self.draw(symbol, chain, pseudonym, source)[-1]

    def weaker(self, last: bytes, source: Source) -> tuple[bytes, ...]:
        """Draw the payloads of levels 0 to ``levels - 2`` backward from that of the last.

        Together with ``last`` they are a chain as :meth:`draw` gives it. However often they are
        drawn anew, all of them say about the value no more than ``last`` does, and every drawing
        by itself no more than its strongest level that is seen.
        """
        return self._packed(self.chain.weaker(self.output_of(last), source))

    def output_of(self, payload: bytes) -> int:
        """Return the output in a payload; ``ParameterError`` where it is none of this mechanism."""
        output = int.from_bytes(payload, "little")
        if not (len(payload) == self.payload_width and self.chain.contains(output)):
            raise ParameterError("the payload is none of this mechanism")
        return output

    def _packed(self, outputs: Sequence[int]) -> tuple[bytes, ...]:
        width = self.chain.payload_width
        return tuple([output.to_bytes(width, "little") for output in outputs])

    def randomize(self, symbols: Any, chains: Words, pseudonyms: Words, source: Source) -> Bytes:
        """Draw chains for ``n`` values: ``(n, levels, payload_width)``, as payloads go on the wire.

        ``chains`` and ``pseudonyms`` are ids, ``(n, 2)``, little-endian halves; without a public
        coin anything of this shape. ``ParameterError`` where a value is none of the mechanism's, or
        the columns differ in length.
        """
        check_columns(symbols, chains, pseudonyms)
        inputs = self.encode_many(symbols, chains, pseudonyms, source)
        return self.chain.payloads(inputs, source)

    def valid(self, payloads: Bytes) -> Bools:
        return self.chain.valid(payloads)

    def accumulate(
        self, payloads: Bytes, chains: Words, pseudonyms: Words, groups: Ints, n_groups: int
    ) -> Ints:
        """Count valid payloads by group: ``(n_groups, count_length)`` ``int64``."""
        strata = self.strata_of(chains, pseudonyms)
        places = groups if strata is None else (groups * self.strata + strata.T).T
        counts = self.chain.count(payloads, places, n_groups * self.strata)
        return counts.reshape(n_groups, self.count_length)

    @property
    def answered(self) -> int:
        """How many answers a report has, each counted by itself."""
        return 1

    def answers_by_stratum(self, counts: Ints) -> Ints:
        """Return how many answers there are: ``(levels, strata)``."""
        found: Ints = self.chain.hits(counts.reshape(self.levels, self.strata, -1))[1]
        return found

    def reports_by_level(self, counts: Ints) -> Ints:
        """Return how many reports of each level there are: ``(levels,)``."""
        found: Ints = self.answers_by_stratum(counts).sum(axis=1) // self.answered
        return found

    def report(self, values: Any, source: Source, ids: Words | None = None) -> Bytes:
        """Randomize values at the last level: ``(n, payload_width)``; coins come from ``ids``."""
        ids = self._ids(len(values), ids)
        return self.randomize(values, ids, ids, source)[:, -1]

    def tally(self, reports: Bytes, ids: Words | None = None) -> Ints:
        """Count reports of the last level: ``(levels, count_length)`` ``int64``, which add up."""
        groups = np.full(len(reports), self.levels - 1)
        ids = self._ids(len(reports), ids)
        return self.accumulate(reports, ids, ids, groups, self.levels)

    def _ids(self, n: int, ids: Words | None) -> Words:
        if ids is None:
            if self.coins != "none":
                raise ParameterError(f"{self.name} needs ids, from which its coins are hashed")
            return np.zeros((n, 2), dtype=np.uint64)
        return ids

    # For audits: computed from the integers of the sampler, and not from the certificate.

    def realised_ratio(self, level: int) -> Fraction:
        """Return the largest likelihood ratio of a level, from the sampler's integers alone."""
        return self.chain.realised_ratio(level)

    def law(
        self, symbol: Any, level: int, chain: bytes = NO_ID, pseudonym: bytes = NO_ID
    ) -> dict[int, Fraction]:
        """Return the exact probability of every output of a level; for small mechanisms."""
        prior = self.prior(symbol, chain, pseudonym)
        total = sum(weight for _, weight in prior)
        found: dict[int, Fraction] = {}
        for value, weight in prior:
            for output, share in self.chain.law(value, level).items():
                found[output] = found.get(output, Fraction(0)) + share * Fraction(weight, total)
        return found

    def log_ratios(
        self, values: tuple[Any, Any], reports: Bytes, chains: Words, level: int
    ) -> Floats:
        """Return how much likelier, as a logarithm, reports are from the second of two values.

        Here for values that are not rounded at random, and without coins from the chain id unless
        the mechanism is :attr:`symbolic`. ``reports``, ``(n, payload_width)``, are possible ones of
        the pseudonym ``NO_ID``; ``chains``, ``(n, 2)``, their ids.
        """
        one, other = (
            self.truths([each] * len(chains), chains)[:, 0]
            if self.symbolic
            else self.encode(each, NO_ID, NO_ID, SystemSource())
            for each in values
        )
        return self.chain.log_ratios(one, other, reports, level)

    def truths(self, symbols: Any, chains: Words) -> Ints:
        """Return what :meth:`answers` would be without randomization: ``(n, answers)``.

        No columns where reports are not single symbols that coins may choose.
        """
        if self.symbolic:
            found: Ints = self.encode_many(symbols, chains, chains, SystemSource())
            return found[:, None]
        return np.empty((len(chains), 0), dtype=np.int64)

    def answers(self, payloads: Bytes) -> Ints:
        """Return the symbols in ``(n, levels, payload_width)`` payloads: ``(n, levels, m)``."""
        if self.symbolic:
            chain: Any = self.chain
            found: Ints = chain.symbols(payloads)[:, :, None]
            return found
        return np.empty((*payloads.shape[:2], 0), dtype=np.int64)


class ChainCoins(Mechanism):
    """A mechanism whose public coins are hashed from the chain id, apart from other metrics'."""

    coins = "chain"

    metric: str

    @cached_property
    def _domain(self) -> int:
        return coin_domain(self.metric)

    def coin(self, chain: bytes) -> int:
        """Return the coin of a chain, 64 bits."""
        return hash_id(chain, self._domain)

    def coins_of(self, chains: Words) -> Words:
        """Vectorised :meth:`coin`: ``(n, 2)`` in, ``(n,)`` out."""
        return hash_ids(chains, self._domain)


def check_columns(symbols: Any, chains: Words, pseudonyms: Words) -> None:
    """Refuse columns of different lengths: one value must never be randomized more than once."""
    listed = isinstance(symbols, (list, tuple))
    n = len(symbols) if listed else (np.shape(symbols) or (1,))[0]
    if not chains.shape == pseudonyms.shape == (n, 2):
        raise ParameterError(
            f"{n} values need as many ids of shape (n, 2), not chains {chains.shape} and "
            f"pseudonyms {pseudonyms.shape}"
        )
