"""What an attacker sees of a chain: the likelihood ratio of every rung, public coins known.

The attacker knows the mechanism. Of every report he computes how much likelier one of two inputs
makes it than the other, by the exact channel of its rung. That is all that an honest report tells;
a chain that is not what it should be gives itself away in how the ratios of its rungs go together.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mechanisms.bits import BitChain
from mechanisms.errors import ParameterError
from mechanisms.finite import FiniteChain
from mechanisms.laddered import SymbolLadder
from mechanisms.ladders import LadderedMechanism
from mechanisms.selection.flip_ladder import PermuteAndFlipLadder
from mechanisms.supporting import SupportChain
from mechanisms.symbols import SymbolChain
from mechanisms.vectors.draws import DrawsLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mechanisms.audit.pairs import Pair


def log_ratios(
    mechanism: LadderedMechanism,
    pair: Pair,
    payloads: NDArray[np.uint8],
    chains: NDArray[np.uint64],
) -> NDArray[np.float64]:
    """Return how much each report speaks for the second of two inputs.

    Parameters
    ----------
    mechanism : LadderedMechanism
    pair : Pair
        Two inputs that are not rounded at random, and the pseudonym of all chains.
    payloads : ndarray, shape (n, levels, payload_width), uint8
    chains : ndarray, shape (n, 2), uint64
        Their ids, from which the public coins are hashed.

    Returns
    -------
    ndarray, shape (n, levels), float64
        Logarithms of likelihood ratios.
    """
    import numpy as np

    chain: Any = getattr(mechanism, "chain", None)
    out = np.empty(payloads.shape[:2])
    for level in range(payloads.shape[1]):
        reports = payloads[:, level]
        if isinstance(chain, BitChain):
            out[:, level] = _of_bits(mechanism, pair, reports, level)
        elif isinstance(mechanism, DrawsLadder):
            out[:, level] = _of_draws(mechanism, pair, reports, chains, level)
        elif isinstance(mechanism, SymbolLadder) and isinstance(chain, SymbolChain):
            inputs = _encoded(mechanism, pair, chains)
            out[:, level] = _of_symbols(chain, inputs, _integers(reports), level)
        else:
            out[:, level] = _of_outputs(mechanism, pair, _integers(reports), level)
    return out


def _integers(reports: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return payloads of at most seven bytes as numbers."""
    import numpy as np

    if reports.shape[1] > 7:
        raise ParameterError(f"payloads of {reports.shape[1]} bytes are no single symbols")
    weights = np.int64(1) << (8 * np.arange(reports.shape[1], dtype=np.int64))
    numbers: NDArray[np.int64] = reports @ weights
    return numbers


def _encoded(
    mechanism: SymbolLadder, pair: Pair, chains: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return what both inputs are under every chain's coins."""
    import numpy as np

    from mechanisms.randomness import SystemSource

    source, n = SystemSource(), len(chains)
    one, other = (
        mechanism.encode_many(pair.column(np.full(n, side)), chains, source)
        for side in (False, True)
    )
    return one, other


def _of_symbols(
    chain: SymbolChain | FiniteChain,
    inputs: tuple[NDArray[np.int64], NDArray[np.int64]],
    outputs: NDArray[np.int64],
    level: int,
) -> NDArray[np.float64]:
    import numpy as np

    one, other = inputs
    if isinstance(chain, SymbolChain):
        rung = chain.rungs[level]
        kept = float(np.log(float(rung.p)) - np.log(float(rung.q)))
        said: NDArray[np.float64] = kept * (
            (outputs == other).astype(float) - (outputs == one).astype(float)
        )
        return said
    with np.errstate(divide="ignore"):
        logs = np.log(chain.matrix(level))
    return np.asarray(logs[other, outputs] - logs[one, outputs])


def _of_draws(
    mechanism: DrawsLadder,
    pair: Pair,
    reports: NDArray[np.uint8],
    chains: NDArray[np.uint64],
    level: int,
) -> NDArray[np.float64]:
    """Return the sum over the answers, which are independent."""
    import numpy as np

    from mechanisms.randomness import SystemSource

    source, seeds = SystemSource(), mechanism.seeds(chains)
    one, other = (
        mechanism.encode_many(pair.column(np.full(len(seeds), side)), seeds, source)
        for side in (False, True)
    )
    answers, single = mechanism.answers(reports), mechanism.chain.single
    total = np.zeros(len(reports))
    for place in range(mechanism.count):
        inputs = one[:, place], other[:, place]
        total += _of_symbols(single, inputs, answers[:, place], level)
    return total


def _of_bits(
    mechanism: Any, pair: Pair, reports: NDArray[np.uint8], level: int
) -> NDArray[np.float64]:
    """Return the sum over the bits in which the inputs differ."""
    import numpy as np

    from mechanisms.randomness import SystemSource

    one, other = (mechanism.encode(value, pair.name, SystemSource()) for value in pair.values)
    ladders, total = mechanism.chain.ladders, np.zeros(len(reports))
    for bit in range(mechanism.chain.width):
        if not (one ^ other) >> bit & 1:
            continue
        rung = ladders[bit % len(ladders)].rungs[level]
        p, q = float(rung.p), float(rung.q)
        seen = reports[:, bit >> 3] >> (bit & 7) & 1
        said = np.where(seen, np.log(p / q), np.log((1 - p) / (1 - q)))
        total += said * (1 if other >> bit & 1 else -1)
    return total


def _of_outputs(
    mechanism: Any, pair: Pair, outputs: NDArray[np.int64], level: int
) -> NDArray[np.float64]:
    """Return what every output says, where there are few and no public coins."""
    import numpy as np

    seen, places = np.unique(outputs, return_inverse=True)
    with np.errstate(divide="ignore"):
        one, other = (np.log(_law(mechanism, value, seen, level)) for value in pair.values)
    return np.asarray((other - one)[places])


def _law(mechanism: Any, value: Any, outputs: NDArray[np.int64], level: int) -> NDArray[np.float64]:
    """Return the probabilities of outputs given a value."""
    import numpy as np

    chain = mechanism.chain
    if isinstance(chain, SupportChain):
        return np.array([float(chain.probability(value, int(o), level)) for o in outputs])
    if isinstance(chain, FiniteChain):
        [(symbol, _)] = [entry for entry in mechanism.prior(value, bytes(16)) if entry[1]]
        return np.asarray(chain.matrix(level)[symbol, outputs])
    if isinstance(mechanism, PermuteAndFlipLadder):
        law = np.array([float(share) for share in mechanism.law(value)])
        kept, other = mechanism.chain.releases[level]
        return np.asarray(law * float(kept - other) + float(other))[outputs]
    raise ParameterError(f"a chain of {type(chain).__name__} cannot be attacked")
