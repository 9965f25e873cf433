"""What an audit must know of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import TYPE_CHECKING, Any

from mechanisms.audit.guessing import column_of
from mechanisms.base import NO_ID, Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.symbols import SymbolChain
from mechanisms.errors import ParameterError
from mechanisms.ladders import Ladder, SymbolLadder
from mechanisms.number.gridded import GridLadder
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.randomness import Source, SystemSource
from mechanisms.sampling import some_below
from mechanisms.vector.coordinates import CoordinatesLadder
from mechanisms.vector.draws import DrawsLadder, PackedChain

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Inputs of a finite channel of which all pairs are tried, both ends among them.
_ROWS = 100


def worst_inputs(mechanism: Ladder, level: int) -> tuple[Any, Any]:
    """Return two inputs that have the loss for which a level is certified."""
    if isinstance(mechanism, CoordinatesLadder):
        return ((0.0,) * mechanism.dimensions, (1.0,) * mechanism.dimensions)
    if isinstance(mechanism, GridLadder):
        return _grid_values(mechanism, level)
    if isinstance(mechanism, SplitBitsLadder) and mechanism.missing:
        return (None, 1.0)
    chain = getattr(mechanism, "chain", None)
    if isinstance(chain, FiniteChain):
        return _inputs(chain, level)
    return (0, 1) if hasattr(mechanism, "domain_size") else (0.0, 1.0)


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
    if isinstance(mechanism, CoordinatesLadder):
        masks = some_below(1 << mechanism.dimensions, count, source)
        places = range(mechanism.dimensions)
        return [tuple(float(mask >> place & 1) for place in places) for mask in masks]
    if isinstance(getattr(known, "domain_size", None), int):
        inputs = known.chain.inputs if isinstance(known.chain, FiniteChain) else known.domain_size
        return list(some_below(inputs, count, source))
    missing = [None] if getattr(known, "missing", False) else []
    steps = _steps(mechanism)
    numbers = {0, steps, *some_below(steps + 1, count - 2 - len(missing), source)}
    return [number / steps for number in sorted(numbers)] + missing


def _steps(mechanism: Ladder) -> int:
    """Return the steps of a mechanism's grid of numbers, many where it has none."""
    if isinstance(mechanism, GridLadder):
        return mechanism.shape.steps
    bits = getattr(mechanism, "bits", None)
    return (1 << bits) - 1 if isinstance(bits, int) else 1 << 32


def realised_ratio(mechanism: Ladder, level: int) -> Fraction:
    """Return the largest likelihood ratio of a level, from the thresholds alone."""
    chain = mechanism.chain
    if isinstance(chain, PackedChain):
        return chain.single.realised_ratio(level) ** chain.count
    found: Fraction = chain.realised_ratio(level)
    return found


def log_ratios(
    mechanism: Ladder,
    values: tuple[Any, Any],
    reports: NDArray[np.uint8],
    chains: NDArray[np.uint64],
    level: int,
) -> NDArray[np.float64]:
    """Return how much likelier, as a logarithm, reports are from the second of two values."""
    import numpy as np

    known: Any = mechanism
    chain: Any = mechanism.chain
    zeros = np.zeros(len(chains), dtype=np.int64)
    one, other = (truths(mechanism, column_of([value], zeros), chains) for value in values)
    if isinstance(chain, BitChain):
        first, second = (known.encode(value, NO_ID, SystemSource()) for value in values)
        return np.asarray(chain.log_ratios(first, second, reports, level))
    if isinstance(mechanism, DrawsLadder):
        # The answers are independent.
        said, table = mechanism.answers(reports), _logs(mechanism)[level]
        return np.asarray((table[other, said] - table[one, said]).sum(axis=1))
    if one.shape[1]:
        return np.asarray(chain.log_ratios(one[:, 0], other[:, 0], reports, level))
    seen, places = np.unique(_integers(reports), return_inverse=True)
    with np.errstate(divide="ignore"):
        laws = [np.log(_law(mechanism, value, level)[seen]) for value in values]
    return np.asarray((laws[1] - laws[0])[places])


def _law(mechanism: Ladder, value: Any, level: int) -> NDArray[np.float64]:
    """Return the probabilities of the outputs of a level given a value."""
    import numpy as np

    known: Any = mechanism
    symbols, weights = zip(*known.prior(value, NO_ID), strict=True)
    shares = np.array(weights, dtype=float) / sum(weights)
    return np.asarray(shares @ np.exp(_logs(mechanism)[level][list(symbols)]))


def _logs(mechanism: Ladder) -> list[NDArray[np.float64]]:
    """Return the logarithms of a channel, or of that of an answer; made once for a mechanism."""
    import numpy as np

    if "_logs" not in mechanism.__dict__:
        chain: Any = getattr(mechanism.chain, "single", mechanism.chain)
        with np.errstate(divide="ignore"):
            mechanism.__dict__["_logs"] = [
                np.log(_matrix(chain, level)) for level in range(mechanism.levels)
            ]
    found: list[NDArray[np.float64]] = mechanism.__dict__["_logs"]
    return found


def _matrix(chain: Any, level: int) -> NDArray[np.float64]:
    import numpy as np

    if isinstance(chain, FiniteChain):
        return chain.matrix(level)
    p, q = chain.exact[level]
    return np.where(np.eye(chain.size, dtype=bool), float(p), float(q))


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


def _integers(reports: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return payloads of at most seven bytes as numbers."""
    import numpy as np

    if reports.shape[1] > 7:
        raise ParameterError(f"payloads of {reports.shape[1]} bytes are no single symbols")
    weights = np.int64(1) << (8 * np.arange(reports.shape[1], dtype=np.int64))
    numbers: NDArray[np.int64] = reports @ weights
    return numbers
