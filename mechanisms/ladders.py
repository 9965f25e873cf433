# mypy: disable-error-code="no-any-return"
"""Mechanisms that are not yet one class: they leave this base as they are converted."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mechanisms.base import Mechanism, check_columns
from mechanisms.chains.chain import Prior
from mechanisms.chains.finite import FiniteChain
from mechanisms.errors import ParameterError
from mechanisms.frozen import frozen
from mechanisms.levels import Amounts, Probabilities
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mechanisms.planner.targets import Assumed, Precision


#: Encodings take fewer arguments here than those of the base.
_Base: Any = Mechanism


@frozen
class Ladder(_Base):  # type: ignore[misc]
    """What all ladders have in common.

    Parameters
    ----------
    metric : str
        Names the domains of the public coins.
    amounts : Amounts
        Nominal and certified amounts, weakest level first.
    chain : Chain
        What is drawn.
    """

    metric: str
    amounts: Amounts
    chain: Any

    def __post_init__(self) -> None:
        pass

    def estimate(self, counts: Any, context: Any) -> Iterator[Any]:
        """Not asked for."""
        raise NotImplementedError

    def precision(self, level: int, assumed: Assumed, scale: float) -> Precision:
        """Return how precise the main estimate will be if all reports are of one level."""
        from mechanisms.planner import ladders

        return ladders.precision(self, level, assumed, scale)

    def noise(self, level: int) -> Any:
        """Not asked for."""
        raise NotImplementedError

    def describe(self, payload: bytes, chain: bytes, pseudonym: bytes, context: Any) -> str:
        """Not asked for."""
        raise NotImplementedError

    def worst_inputs(self, level: int) -> tuple[Any, Any]:
        """Return two values with the loss for which a level is certified."""
        from mechanisms.audit import ladders

        return ladders.worst_inputs(self, level)

    def some_inputs(self, count: int, source: Source) -> Sequence[Any]:
        """Return different values."""
        from mechanisms.audit import ladders

        return ladders.some_inputs(self, count, source)

    def realised_ratio(self, level: int) -> Fraction:
        """Return the largest likelihood ratio of a level, from the sampler's integers alone."""
        from mechanisms.audit import ladders

        return ladders.realised_ratio(self, level)

    def log_ratios(
        self,
        values: tuple[Any, Any],
        reports: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        level: int,
    ) -> NDArray[np.float64]:
        """Return how much likelier, as a logarithm, reports are from the second of two values."""
        from mechanisms.audit import ladders

        return ladders.log_ratios(self, values, reports, chains, level)

    @property
    @abstractmethod
    def payload_width(self) -> int:
        """Bytes of a payload."""

    @property
    @abstractmethod
    def _outputs(self) -> int:
        """The number of outputs of a level."""

    @abstractmethod
    def _encoded(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        """Return what the chain is drawn from."""

    @abstractmethod
    def _prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        """Return all that :meth:`_encoded` may return, with integer weights."""

    @abstractmethod
    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the exact probabilities of a level: one for all bits, or one a bit."""

    def probabilities(self, level: int) -> tuple[tuple[float, float], ...]:
        """Return ``(p, q)`` of a level as floats: a single pair for all bits, or one a bit."""
        return tuple((float(rung.p), float(rung.q)) for rung in self.exact(level))

    def draw(
        self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source
    ) -> tuple[bytes, ...]:
        """Draw the payloads of all levels, weakest first, from a value."""
        return self._payloads(
            self.chain.draw(self._encoded(symbol, chain, pseudonym, source), source)
        )

    def draw_last(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> bytes:
        """Draw the payload of the last level alone: a permanent response to a value.

        See :meth:`weaker`, and :mod:`mechanisms.base` for when this is of use.
        """
        return self.draw(symbol, chain, pseudonym, source)[-1]

    def weaker(self, last: bytes, source: Source) -> tuple[bytes, ...]:
        """Draw the payloads of the other levels, weakest first, backward from that of the last.

        Together with ``last`` they are a chain as :meth:`draw` gives it. However often they are
        drawn anew, all of them say about the value no more than ``last`` does, and every drawing
        by itself no more than its strongest level that is seen.

        Parameters
        ----------
        last : bytes
            The payload of the last level.
        source : Source

        Returns
        -------
        tuple of bytes
            Of levels 0 to ``levels - 2``.

        Raises
        ------
        ParameterError
            The payload is none of this mechanism.
        """
        return self._payloads(self.chain.weaker(self._output(last), source))

    def forward(
        self,
        symbol: Any,
        previous: bytes,
        level: int,
        chain: bytes,
        pseudonym: bytes,
        source: Source,
    ) -> bytes:
        """Draw the payload of ``level`` given that of the level below, by the same joint law."""
        if not 1 <= level < self.levels:
            raise ParameterError(f"level must lie in [1, {self.levels}), not {level}")
        before = self._output(previous)
        prior = self._prior(symbol, chain, pseudonym)
        return self._payloads([self.chain.forward(prior, before, level, source)])[0]

    def _output(self, payload: bytes) -> int:
        """Return the output in a payload, after a check."""
        output = int.from_bytes(payload, "little")
        if not (len(payload) == self.payload_width and output < self._outputs):
            raise ParameterError("the payload is none of this mechanism")
        return output

    def _payloads(self, outputs: Sequence[int]) -> tuple[bytes, ...]:
        width = self.payload_width
        return tuple([output.to_bytes(width, "little") for output in outputs])


@frozen
class SymbolLadder(Ladder):
    """A ladder whose reports are single symbols."""

    chain: Any

    @property
    @abstractmethod
    def count_length(self) -> int:
        """The length of a count vector."""

    @abstractmethod
    def encode(self, symbol: Any, chain: bytes, source: Source) -> int:
        """Return the symbol to randomize."""

    @abstractmethod
    def prior(self, symbol: Any, chain: bytes) -> Prior:
        """Return the symbols that :meth:`encode` may return, with integer weights."""

    @abstractmethod
    def encode_many(
        self, symbols: Any, chains: NDArray[np.uint64], source: Source
    ) -> NDArray[np.int64]:
        """Vectorised :meth:`encode`."""

    @abstractmethod
    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the place of each report in the count vector."""

    @cached_property
    def payload_width(self) -> int:
        """Bytes of a payload: 1, 2 or 4."""
        return 1 if self.chain.size <= 1 << 8 else 2 if self.chain.size <= 1 << 16 else 4

    def exact(self, level: int) -> tuple[Probabilities, ...]:
        """Return the exact probabilities of a level."""
        return (self.chain.exact[level],)

    @property
    def _outputs(self) -> int:
        return self.chain.size

    def _encoded(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return self.encode(symbol, chain, source)

    def _prior(self, symbol: Any, chain: bytes, pseudonym: bytes) -> Prior:
        return self.prior(symbol, chain)

    def randomize(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``(n,)`` values: ``(n, levels, payload_width)`` ``uint8``."""
        import numpy as np

        check_columns(symbols, chains, pseudonyms)
        drawn = self.chain.randomize(self.encode_many(symbols, chains, source), source)
        packed = np.ascontiguousarray(drawn.astype(f"<u{self.payload_width}"))
        return packed.view(np.uint8).reshape(len(drawn), self.levels, self.payload_width)

    def valid(self, payloads: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``(n, payload_width)`` payloads are possible outputs."""
        return self._reports(payloads) < self.chain.size

    def accumulate(
        self,
        payloads: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        groups: NDArray[np.int64],
        n_groups: int,
    ) -> NDArray[np.int64]:
        """Count valid payloads by group: ``(n_groups, count_length)`` ``int64``."""
        from mechanisms.estimators.counting import grouped_counts

        cells = self.cells(self._reports(payloads), chains)
        return grouped_counts(cells, groups, n_groups, self.count_length)

    def _reports(self, payloads: NDArray[np.uint8]) -> NDArray[np.int64]:
        import numpy as np

        packed = np.ascontiguousarray(payloads).view(f"<u{self.payload_width}")
        return packed.reshape(len(payloads)).astype(np.int64)


@frozen
class FiniteLadder(SymbolLadder):
    """A ladder of any finite mechanism, whose reports are counted by output."""

    chain: FiniteChain

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in a plan."""

    @property
    def count_length(self) -> int:
        """One count an output."""
        return self.chain.size

    def cells(self, reports: NDArray[np.int64], chains: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Count a report at its output."""
        return reports

    def matrix(self, level: int) -> NDArray[np.float64]:
        """Return the channel of a level, ``(inputs, outputs)``."""
        return self.chain.matrix(level)
