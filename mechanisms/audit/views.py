"""What an attacker sees of a chain: the likelihood ratio of every rung, public coins known.

The attacker knows the mechanism. Of every report he computes how much likelier one of two inputs
makes it than the other, by the exact channel of its rung. That is all that an honest report tells;
a chain that is not what it should be gives itself away in how the ratios of its rungs go together.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Any

from mechanisms.audit.pairs import Pair
from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.symbols import SymbolChain
from mechanisms.errors import ParameterError
from mechanisms.ladders import Ladder, SymbolLadder
from mechanisms.randomness import SystemSource
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder
from mechanisms.vector.draws import DrawsLadder

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Reader:
    """Computes how much every report speaks for the second of two inputs.

    Parameters
    ----------
    mechanism : Mechanism
    pair : Pair
        Two inputs, and the pseudonym of all chains. Of inputs that are rounded at random the
        ratios are not always those of their reports.
    """

    mechanism: Mechanism
    pair: Pair

    def log_ratio(
        self, reports: NDArray[np.uint8], chains: NDArray[np.uint64], level: int
    ) -> NDArray[np.float64]:
        """Return logarithms of likelihood ratios.

        Parameters
        ----------
        reports : ndarray, shape (n, payload_width), uint8
        chains : ndarray, shape (n, 2), uint64
            Their ids, from which the public coins are hashed.
        level : int
            The rung of the reports.

        Returns
        -------
        ndarray, shape (n,), float64
            0 for a report that no input has, from a faulty sampler.
        """
        import numpy as np

        possible = self.mechanism.valid(reports)
        if possible.all():
            return self._of(reports, chains, level)
        out = np.zeros(len(reports))
        if possible.any():
            out[possible] = self._of(reports[possible], chains[possible], level)
        return out

    def _of(
        self, reports: NDArray[np.uint8], chains: NDArray[np.uint64], level: int
    ) -> NDArray[np.float64]:
        mechanism: Any = self.mechanism
        if not isinstance(mechanism, Ladder):
            found: NDArray[np.float64] = mechanism.log_ratios(
                self.pair.values, reports, chains, level
            )
            return found
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
            truths(self.mechanism, self.pair.column(np.full(len(chains), side)), chains)
            for side in (False, True)
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
        one, other = (
            mechanism.encode(value, self.pair.name, SystemSource()) for value in self.pair.values
        )
        ladders, total = mechanism.chain.ladders, np.zeros(len(reports))
        for bit in range(mechanism.chain.width):
            if not (one ^ other) >> bit & 1:
                continue
            rung = ladders[bit % len(ladders)].exact[level]
            p, q = float(rung.p), float(rung.q)
            said = np.where(_bit(reports, bit), np.log(p / q), np.log((1 - p) / (1 - q)))
            total += said * (1 if other >> bit & 1 else -1)
        return total

    def _of_outputs(self, outputs: NDArray[np.int64], level: int) -> NDArray[np.float64]:
        """Return what every output says, where there are few and no public coins."""
        import numpy as np

        seen, places = np.unique(outputs, return_inverse=True)
        with np.errstate(divide="ignore"):
            one, other = (self._log_law(value, seen, level) for value in self.pair.values)
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

    @cached_property
    def _logs(self) -> list[NDArray[np.float64]]:
        """The logarithms of all rungs of a finite channel, that of an answer where there are many.

        Outputs that no input has stay out of reports, so that their infinities are never read.
        """
        import numpy as np

        mechanism: Any = self.mechanism
        chain = getattr(mechanism.chain, "single", mechanism.chain)
        with np.errstate(divide="ignore"):
            return [np.log(chain.matrix(level)) for level in range(mechanism.levels)]


def truths(mechanism: Mechanism, column: Any, chains: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return what values are under the public coins of their chains.

    Parameters
    ----------
    mechanism : Mechanism
    column : sequence
        ``n`` values as ``randomize`` takes them.
    chains : ndarray, shape (n, 2), uint64

    Returns
    -------
    ndarray, shape (n, answers), int64
        What :func:`answers` would be without randomization; no columns where reports are not of
        this kind.
    """
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
    """Return the symbols in ``(n, levels, payload_width)`` payloads: ``(n, levels, answers)``.

    One column for each of :func:`truths`.
    """
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


def _bit(reports: NDArray[np.uint8], bit: int) -> NDArray[np.bool_]:
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
