"""Forward relaxation, with what has to stay fixed between one report and the next (Algorithm 1).

A report is relaxed given the value and the report before it. Were the value another one, the
rounding of a number drawn again, or one level drawn twice, the reports together would cost more
than the last of them, and it would not even be distributed as it should. (With a number rounded
anew at each of the levels 1, 1.5 and 2 the three cost 2.93.) Devices draw backward chains instead,
which need no state and no value that is kept.
"""

from __future__ import annotations

import hashlib
import hmac
from fractions import Fraction
from math import lcm, prod
from typing import Any

from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.chain import Chain, Prior
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain
from mechanisms.errors import SottoError
from mechanisms.levels import GRAINS
from mechanisms.number.several import SeveralAnswers
from mechanisms.randomness import Source, choose


class RelaxationStateError(SottoError):
    """A report is not relaxed: something that must stay fixed is not what it was."""


class RelaxationState:
    """The reports of one value so far, and all that is needed to relax the last of them.

    The first report, of the weakest level, is drawn when the state is made. The value is given as
    the mechanism's ``draw`` takes it, and kept as a keyed hash alone; ``chain`` and ``pseudonym``
    fix the public coins. Any two values are neighbours; all reports together cost what the last of
    them costs.

    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> from mechanisms.testing import SeededSource
    >>> source = SeededSource(5)
    >>> grr = GeneralizedRandomizedResponse((0.5, 1.0, 2.0), domain_size=4)
    >>> state = RelaxationState(grr, 3, bytes(16), bytes(16), source)
    >>> report = state.relax(3, state.outputs[-1], source)
    >>> state.relax(2, report, source)
    Traceback (most recent call last):
    papers.gradual_release.state.RelaxationStateError: the value is not the one of the first report
    """

    def __init__(
        self, mechanism: Mechanism, symbol: Any, chain: bytes, pseudonym: bytes, source: Source
    ) -> None:
        self._mechanism, self._chain, self._pseudonym = mechanism, chain, pseudonym
        self._key = source.bits(256).to_bytes(32, "little")
        self._commitment = self._commit(symbol)
        #: All reports, weakest first.
        self.outputs = mechanism.draw(symbol, chain, pseudonym, source)[:1]

    def relax(self, symbol: Any, previous: bytes, source: Source) -> bytes:
        """Draw the report of the next level, given the value and the last report, and hold it.

        Raises ``RelaxationStateError`` and leaves the state as it was where the value is not the
        one of the first report, ``previous`` is not the last report, or the ladder has ended.
        """
        if not hmac.compare_digest(self._commit(symbol), self._commitment):
            raise RelaxationStateError("the value is not the one of the first report")
        if previous != self.outputs[-1]:
            raise RelaxationStateError("the previous report is not the last one that was drawn")
        level = len(self.outputs)
        if level == self._mechanism.levels:
            raise RelaxationStateError(f"there is no level {level}: the ladder ends below it")
        mechanism, before = self._mechanism, self._mechanism.output_of(previous)
        if isinstance(mechanism, SeveralAnswers):
            priors = mechanism.priors(symbol, mechanism.coin(self._chain))
            given, single = mechanism.chain.unpack(before), mechanism.chain.single
            pairs = zip(priors, given, strict=True)
            drawn = mechanism.chain.pack(
                [following(single, *pair, level, source) for pair in pairs]
            )
        else:
            prior = mechanism.prior(symbol, self._chain, self._pseudonym)
            drawn = following(mechanism.chain, prior, before, level, source)
        self.outputs += (drawn.to_bytes(len(previous), "little"),)
        return self.outputs[-1]

    def _commit(self, symbol: Any) -> bytes:
        return hmac.digest(self._key, repr(symbol).encode(), hashlib.sha256)


def following(chain: Chain, prior: Prior, before: int, level: int, source: Source) -> int:
    """Draw the output of ``level`` given that of the level below, by the joint law of a chain.

    An output's weight is C2[x, o2] T[o2, o1], summed over the encodings in ``prior``. Outputs that
    can be too many to enumerate are subsets, which T keeps or replaces, and vectors of bits.
    """
    if isinstance(chain, SupportChain):
        [(symbol, _)] = prior
        keep = Fraction(chain.keeps[level - 1], GRAINS)
        kept, new = keep * chain.probability(symbol, before, level), (1 - keep) / chain.total
        return before if _chosen({1: kept, 0: new}, source) else chain.draw(symbol, source)[level]
    if isinstance(chain, BitChain) and chain.width > 1:
        each = [BitChain(1, (ladder,)) for ladder in chain.ladders] * chain.width
        places, likely = range(chain.width), dict[int, Fraction]()
        for bits, weight in prior:
            seen = (each[i].law(bits >> i & 1, level - 1)[before >> i & 1] for i in places)
            likely[bits] = prod(seen, start=Fraction(weight))
        bits = _chosen(likely, source)
        return sum(
            following(each[i], ((bits >> i & 1, 1),), before >> i & 1, level, source) << i
            for i in places
        )
    weights: dict[int, Fraction] = {}
    # Noise that treats all symbols alike leads as often from one to another as back.
    back = chain.step(before, level - 1) if isinstance(chain, SymbolChain) else None
    for value, weight in prior:
        for output, share in chain.law(value, level).items():
            step = chain.step(output, level - 1)[before] if back is None else back[output]
            weights[output] = weights.get(output, Fraction(0)) + weight * share * step
    return _chosen(weights, source)


def _chosen(weights: dict[int, Fraction], source: Source) -> int:
    scale = lcm(*(each.denominator for each in weights.values()))
    return choose({key: int(each * scale) for key, each in weights.items()}, source)
