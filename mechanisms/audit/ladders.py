"""What an audit must know of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import log
from typing import TYPE_CHECKING, Any

from mechanisms.audit.guessing import column_of
from mechanisms.base import NO_ID, Mechanism
from mechanisms.chains.bits import BitChain, BitLadder
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain, SymbolDraw
from mechanisms.errors import ParameterError
from mechanisms.ladders import Ladder, SymbolLadder
from mechanisms.levels import GRAINS
from mechanisms.number.gridded import GridLadder
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.randomness import Source, SystemSource
from mechanisms.sampling import some_below, uniform_below
from mechanisms.survey.ladders import SurveyLadder
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder, extremes
from mechanisms.top_item.released import ReleaseChain
from mechanisms.top_item.top_item import TopItemLadder
from mechanisms.vector.coordinates import CoordinatesLadder
from mechanisms.vector.draws import DrawsLadder, PackedChain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Inputs of a finite channel of which all pairs are tried, both ends among them.
_ROWS = 100


def worst_inputs(mechanism: Ladder, level: int) -> tuple[Any, Any]:
    """Return two inputs that have the loss for which a level is certified."""
    if isinstance(mechanism, TopItemLadder):
        rest = mechanism.domain_size - 2
        if mechanism.name == "permute_and_flip":
            return ((mechanism.clip, 0, *[0] * rest), (0, *[mechanism.clip] * (rest + 1)))
        return ((mechanism.clip, 0, *[0] * rest), (0, mechanism.clip, *[0] * rest))
    if isinstance(mechanism, CoordinatesLadder):
        return ((0.0,) * mechanism.dimensions, (1.0,) * mechanism.dimensions)
    if isinstance(mechanism, GridLadder):
        return _grid_values(mechanism, level)
    if isinstance(mechanism, SplitBitsLadder) and mechanism.missing:
        return (None, 1.0)
    chain = getattr(mechanism, "chain", None)
    if isinstance(chain, FiniteChain) and not isinstance(mechanism, SurveyLadder):
        return _inputs(chain, level)
    whole = isinstance(mechanism, SurveyLadder) or hasattr(mechanism, "domain_size")
    return (0, 1) if whole else (0.0, 1.0)


def _inputs(chain: FiniteChain, level: int) -> tuple[int, int]:
    """Return the pair of which the most outputs say nearly the largest ratio, then the farthest."""
    import numpy as np

    matrix = chain.matrix(level % chain.levels)
    # Outputs that no input has say nothing.
    matrix = matrix[:, matrix.max(axis=0) > 0]
    logs = np.log(matrix)
    largest = float((logs.max(axis=0) - logs.min(axis=0)).max())

    def told(pair: tuple[int, int]) -> tuple[float, int]:
        one, other = pair
        far = np.abs(logs[one] - logs[other]) > 0.999 * largest
        return round(float((matrix[one] + matrix[other])[far].sum()), 6), other - one

    distinct = np.sort(np.unique(matrix, axis=0, return_index=True)[1])
    some = np.linspace(0, len(distinct) - 1, min(len(distinct), _ROWS)).astype(int)
    one, other = max(combinations(distinct[some].tolist(), 2), key=told)
    return one, other


def _grid_values(mechanism: GridLadder, level: int) -> tuple[float | None, float | None]:
    steps = mechanism.shape.steps
    one, other = _inputs(mechanism.chain, level)
    values = [None if place > steps else place / steps for place in (one, other)]
    return values[0], values[1]


def some_inputs(mechanism: Ladder, count: int, source: Source) -> list[Any]:
    """Return different inputs, all of them where there are no more than ``count``."""
    known: Any = mechanism
    if isinstance(mechanism, TopItemLadder):
        return [_items(mechanism, source) for _ in range(count)]
    if isinstance(mechanism, CoordinatesLadder):
        masks = some_below(1 << mechanism.dimensions, count, source)
        places = range(mechanism.dimensions)
        return [tuple(float(mask >> place & 1) for place in places) for mask in masks]
    if isinstance(mechanism, SurveyLadder):
        return [0, 1]
    if isinstance(getattr(known, "domain_size", None), int):
        inputs = known.chain.inputs if isinstance(known.chain, FiniteChain) else known.domain_size
        return list(some_below(inputs, count, source))
    missing = [None] if getattr(known, "missing", False) else []
    steps = _steps(mechanism)
    numbers = {0, steps, *some_below(steps + 1, count - 2 - len(missing), source)}
    return [number / steps for number in sorted(numbers)] + missing


def _items(mechanism: TopItemLadder, source: Source) -> tuple[int, ...]:
    return tuple(uniform_below(mechanism.clip + 1, source) for _ in range(mechanism.domain_size))


def _steps(mechanism: Ladder) -> int:
    """Return the steps of a mechanism's grid of numbers, many where it has none."""
    if isinstance(mechanism, GridLadder):
        return mechanism.shape.steps
    bits = getattr(mechanism, "bits", None)
    return (1 << bits) - 1 if isinstance(bits, int) else 1 << 32


def realised_ratio(mechanism: Ladder, level: int) -> Fraction:
    """Return the largest likelihood ratio of a level, from the thresholds alone."""
    chain: Any = getattr(mechanism, "chain", None)
    if isinstance(mechanism, PermuteAndFlipLadder):
        return _flips_ratio(mechanism, level)
    if isinstance(chain, BitChain):
        return _bits_ratio(mechanism, chain, level)
    if isinstance(chain, PackedChain):
        return _chain_ratio(chain.single, level) ** chain.count
    return _chain_ratio(chain, level)


def _chain_ratio(chain: Any, level: int) -> Fraction:
    """Return that of one symbol; every output is reached from inputs that favour it and not."""
    if isinstance(chain, SymbolChain):
        p, q = _grains(chain.strongest)
        return _spread(*_degraded(p, q, chain.degradations[level:]))
    if isinstance(chain, FiniteChain | SupportChain):
        # Both keep nothing but thresholds, and multiply them out when they are asked.
        return chain.ratio(level)
    raise ParameterError(f"a chain of {type(chain).__name__} cannot be audited")


def _flips_ratio(mechanism: PermuteAndFlipLadder, level: int) -> Fraction:
    """Return the ratio of the extreme counts; any gap accepts at least like that of the clip."""
    table, chain = mechanism.table, mechanism.chain
    if not (table[0] == GRAINS and 0 < min(table) == table[-1] and max(table) == GRAINS):
        raise ParameterError("acceptance thresholds must fall from 2**64 to that of the clip")
    assert isinstance(chain, ReleaseChain)
    return _spread(*_degraded(*extremes(chain.size, table[-1]), chain.steps[level:]))


def _bits_ratio(mechanism: Ladder, chain: BitChain, level: int) -> Fraction:
    bits = [_bit(ladder, level) for ladder in chain.ladders]
    changed = [max(_spread(p, q), _spread(1 - p, 1 - q)) for p, q in bits]
    if isinstance(mechanism, SplitBitsLadder):
        return math.prod(changed, start=Fraction(1))
    raise ParameterError(f"bits of {type(mechanism).__name__} cannot be audited")


def _bit(ladder: BitLadder, level: int) -> tuple[Fraction, Fraction]:
    """Return the probabilities that a 1, and a 0, is reported as 1."""
    p, q = Fraction(ladder.one, GRAINS), Fraction(ladder.zero, GRAINS)
    for grains in reversed(ladder.flips[level:]):
        s = Fraction(grains, GRAINS)
        p, q = p + s * (1 - 2 * p), q + s * (1 - 2 * q)
    return p, q


def _degraded(p: Fraction, q: Fraction, steps: Sequence[SymbolDraw]) -> tuple[Fraction, Fraction]:
    """Return what uniform noise makes of two probabilities of one output."""
    for step in reversed(steps):
        kept, other = _grains(step)
        p, q = p * (kept - other) + other, q * (kept - other) + other
    return p, q


def _grains(draw: SymbolDraw) -> tuple[Fraction, Fraction]:
    """Return the probabilities of keeping a symbol, and of a given other one.

    All words beyond ``keep`` go to the others, ``other`` words each, however many that makes.
    """
    if draw.keep + (draw.size - 1) * draw.other != GRAINS:
        raise ParameterError("the thresholds of a draw do not cover all words")
    return Fraction(draw.keep, GRAINS), Fraction(draw.other, GRAINS)


def _spread(one: Fraction, other: Fraction) -> Fraction:
    if not min(one, other) > 0:
        raise ParameterError("an output tells inputs apart with certainty")
    return max(one / other, other / one)


def log_ratios(
    mechanism: Ladder,
    values: tuple[Any, Any],
    reports: NDArray[np.uint8],
    chains: NDArray[np.uint64],
    level: int,
) -> NDArray[np.float64]:
    """Return how much likelier, as a logarithm, reports are from the second of two values."""
    return _Reader(mechanism, values).of(reports, chains, level)


@dataclass(frozen=True)
class _Reader:
    mechanism: Ladder
    values: tuple[Any, Any]

    def of(
        self, reports: NDArray[np.uint8], chains: NDArray[np.uint64], level: int
    ) -> NDArray[np.float64]:
        """Return the logarithms."""
        mechanism: Any = self.mechanism
        if isinstance(mechanism.chain, BitChain):
            return self._of_bits(reports, level)
        if isinstance(mechanism, DrawsLadder):
            return self._of_draws(mechanism, reports, chains, level)
        if isinstance(mechanism, SymbolLadder) and isinstance(mechanism.chain, SymbolChain):
            one, other = self.asked(chains)
            inputs = one[:, 0], other[:, 0]
            return self._of_symbols(mechanism.chain, inputs, _integers(reports), level)
        return self._of_outputs(_integers(reports), level)

    def asked(self, chains: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return what both inputs are under every chain's coins, ``(n, answers)`` each.

        Nothing, ``(n, 0)``, where a report is not about symbols that coins may choose.
        """
        import numpy as np

        one, other = (
            truths(
                self.mechanism, column_of([value], np.zeros(len(chains), dtype=np.int64)), chains
            )
            for value in self.values
        )
        return one, other

    def _of_symbols(
        self,
        chain: SymbolChain | FiniteChain,
        inputs: tuple[NDArray[np.int64], NDArray[np.int64]],
        outputs: NDArray[np.int64],
        level: int,
    ) -> NDArray[np.float64]:
        import numpy as np

        one, other = inputs
        if isinstance(chain, SymbolChain):
            p, q = chain.exact[level]
            kept = log(p.numerator * q.denominator) - log(q.numerator * p.denominator)
            sign = (outputs == other).astype(np.int64) - (outputs == one).astype(np.int64)
            return np.asarray(kept * sign)
        logs = self._logs[level]
        return np.asarray(logs[other, outputs] - logs[one, outputs])

    def _of_draws(
        self,
        mechanism: DrawsLadder,
        reports: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        level: int,
    ) -> NDArray[np.float64]:
        """Return the sum over the answers, which are independent."""
        import numpy as np

        one, other = self.asked(chains)
        answers, single = mechanism.answers(reports), mechanism.chain.single
        total = np.zeros(len(reports))
        for place in range(mechanism.count):
            inputs = one[:, place], other[:, place]
            total += self._of_symbols(single, inputs, answers[:, place], level)
        return total

    def _of_bits(self, reports: NDArray[np.uint8], level: int) -> NDArray[np.float64]:
        """Return the sum over the bits in which the inputs differ."""
        import numpy as np

        mechanism: Any = self.mechanism
        one, other = (mechanism.encode(value, NO_ID, SystemSource()) for value in self.values)
        ladders, total = mechanism.chain.ladders, np.zeros(len(reports))
        for bit in range(mechanism.chain.width):
            if not (one ^ other) >> bit & 1:
                continue
            rung = ladders[bit % len(ladders)].exact[level]
            p, q = float(rung.p), float(rung.q)
            said = np.where(_bit_of(reports, bit), np.log(p / q), np.log((1 - p) / (1 - q)))
            total += said * (1 if other >> bit & 1 else -1)
        return total

    def _of_outputs(self, outputs: NDArray[np.int64], level: int) -> NDArray[np.float64]:
        """Return what every output says, where there are few and no public coins."""
        import numpy as np

        seen, places = np.unique(outputs, return_inverse=True)
        with np.errstate(divide="ignore"):
            one, other = (self._log_law(value, seen, level) for value in self.values)
        return np.asarray((other - one)[places])

    def _log_law(self, value: Any, outputs: NDArray[np.int64], level: int) -> NDArray[np.float64]:
        """Return the logarithms of the probabilities of outputs given a value."""
        import numpy as np

        mechanism: Any = self.mechanism
        chain = mechanism.chain
        if isinstance(chain, FiniteChain):
            symbols, weights = zip(*mechanism.prior(value, bytes(16)), strict=True)
            shares = np.array([weight / sum(weights) for weight in weights])
            rows = np.exp(self._logs[level][list(symbols)][:, outputs])
            return np.asarray(np.log(shares @ rows))
        if isinstance(mechanism, PermuteAndFlipLadder):
            selected = np.array([float(share) for share in mechanism.law(value)])
            kept, other = chain.releases[level]
            return np.log((selected * float(kept - other) + float(other))[outputs])
        raise ParameterError(f"a chain of {type(chain).__name__} cannot be attacked")

    @property
    def _logs(self) -> list[NDArray[np.float64]]:
        """The logarithms of all levels of a finite channel; made once for a mechanism."""
        import numpy as np

        mechanism: Any = self.mechanism
        if "_logs" not in vars(mechanism):
            chain = getattr(mechanism.chain, "single", mechanism.chain)
            with np.errstate(divide="ignore"):
                vars(mechanism)["_logs"] = [
                    np.log(chain.matrix(level)) for level in range(mechanism.levels)
                ]
        found: list[NDArray[np.float64]] = vars(mechanism)["_logs"]
        return found


def truths(mechanism: Mechanism, column: Any, chains: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return what values are under the public coins of their chains."""
    import numpy as np

    if not isinstance(mechanism, Ladder):
        return mechanism.truths(column, chains)
    known: Any = mechanism
    if isinstance(mechanism, DrawsLadder):
        drawn: NDArray[np.int64] = known.encode_many(column, known.seeds(chains), SystemSource())
        return drawn
    if isinstance(mechanism, SymbolLadder) and isinstance(known.chain, SymbolChain):
        return np.asarray(known.encode_many(column, chains, SystemSource()))[:, None]
    return np.empty((len(chains), 0), dtype=np.int64)


def answers(mechanism: Mechanism, payloads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the symbols in payloads: ``(n, levels, answers)``."""
    import numpy as np

    if not isinstance(mechanism, Ladder):
        return mechanism.answers(payloads)
    known: Any = mechanism
    rungs = [payloads[:, level] for level in range(payloads.shape[1])]
    if isinstance(mechanism, DrawsLadder):
        return np.stack([known.answers(reports) for reports in rungs], axis=1)
    if isinstance(mechanism, SymbolLadder) and isinstance(known.chain, SymbolChain):
        return np.stack([_integers(reports)[:, None] for reports in rungs], axis=1)
    return np.empty((*payloads.shape[:2], 0), dtype=np.int64)


def _bit_of(reports: NDArray[np.uint8], bit: int) -> NDArray[np.bool_]:
    """Return whether a bit of each payload is set."""
    found: NDArray[np.bool_] = (reports[:, bit >> 3] >> (bit & 7) & 1) == 1
    return found


def _integers(reports: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return payloads of at most seven bytes as numbers."""
    import numpy as np

    if reports.shape[1] > 7:
        raise ParameterError(f"payloads of {reports.shape[1]} bytes are no single symbols")
    weights = np.int64(1) << (8 * np.arange(reports.shape[1], dtype=np.int64))
    numbers: NDArray[np.int64] = reports @ weights
    return numbers
