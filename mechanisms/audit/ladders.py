"""What an audit must know of mechanisms that are not yet one class; goes with them."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from mechanisms.audit.guessing import column_of
from mechanisms.base import NO_ID, Mechanism
from mechanisms.chains.chain import spread
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.symbols import SymbolChain, degraded
from mechanisms.errors import ParameterError
from mechanisms.ladders import Ladder, SymbolLadder
from mechanisms.levels import GRAINS
from mechanisms.randomness import Source, SystemSource
from mechanisms.sampling import uniform_below
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder, extremes
from mechanisms.top_item.top_item import TopItemLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def worst_inputs(mechanism: Ladder, level: int) -> tuple[Any, Any]:
    """Return two inputs that have the loss for which a level is certified."""
    assert isinstance(mechanism, TopItemLadder)
    rest = mechanism.domain_size - 2
    if mechanism.name == "permute_and_flip":
        return ((mechanism.clip, 0, *[0] * rest), (0, *[mechanism.clip] * (rest + 1)))
    return ((mechanism.clip, 0, *[0] * rest), (0, mechanism.clip, *[0] * rest))


def some_inputs(mechanism: Ladder, count: int, source: Source) -> list[Any]:
    """Return different inputs, all of them where there are no more than ``count``."""
    assert isinstance(mechanism, TopItemLadder)
    return [_items(mechanism, source) for _ in range(count)]


def _items(mechanism: TopItemLadder, source: Source) -> tuple[int, ...]:
    return tuple(uniform_below(mechanism.clip + 1, source) for _ in range(mechanism.domain_size))


def realised_ratio(mechanism: Ladder, level: int) -> Fraction:
    """Return the largest likelihood ratio of a level, from the thresholds alone."""
    chain = mechanism.chain
    if isinstance(mechanism, PermuteAndFlipLadder):
        table = mechanism.table
        if not (table[0] == GRAINS and 0 < min(table) == table[-1] and max(table) == GRAINS):
            raise ParameterError("acceptance thresholds must fall from 2**64 to that of the clip")
        return spread(*degraded(*extremes(chain.size, table[-1]), chain.steps[level:]))
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

    chain: Any = mechanism.chain
    zeros = np.zeros(len(chains), dtype=np.int64)
    one, other = (truths(mechanism, column_of([value], zeros), chains) for value in values)
    if one.shape[1]:
        return np.asarray(chain.log_ratios(one[:, 0], other[:, 0], reports, level))
    seen, places = np.unique(_integers(reports), return_inverse=True)
    with np.errstate(divide="ignore"):
        laws = [np.log(_law(mechanism, value, level)[seen]) for value in values]
    return np.asarray((laws[1] - laws[0])[places])


def _law(mechanism: Ladder, value: Any, level: int) -> NDArray[np.float64]:
    """Return the probabilities of the outputs of a level given a value."""
    import numpy as np

    chain: Any = mechanism.chain
    if isinstance(mechanism, PermuteAndFlipLadder):
        kept, other = chain.releases[level]
        selected = np.array([float(share) for share in mechanism.law(value)])
        return np.asarray(selected * float(kept - other) + float(other))
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
