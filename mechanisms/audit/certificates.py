"""The loss of a ladder, computed again from the integers that its sampler compares with.

Ladders certify themselves when they are built. This starts from the thresholds alone, and so finds
an amount that does not belong to them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain, BitLadder
from mechanisms.chains.finite import FiniteChain
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain, SymbolDraw
from mechanisms.errors import ParameterError
from mechanisms.exact import loss_micro
from mechanisms.ladders import Ladder
from mechanisms.levels import GRAINS
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.string.rappor import RapporLadder
from mechanisms.top_item.flip_ladder import PermuteAndFlipLadder, extremes
from mechanisms.top_item.released import ReleaseChain
from mechanisms.vector.draws import PackedChain


def certified(mechanism: Mechanism, level: int) -> int:
    """Return the micro-epsilon that a chain up to a rung costs at most, rounded up once.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> grr = build({"name": "grr", "domain_size": 5}, [500_000, 1_000_000], "colour")
    >>> [certified(grr, level) for level in (0, 1)]
    [500000, 1000000]
    """
    return loss_micro(realised_ratio(mechanism, level))


def realised_ratio(mechanism: Mechanism, level: int) -> Fraction:
    """Return the largest likelihood ratio of a rung, from the thresholds alone.

    Parameters
    ----------
    mechanism : Mechanism
        One of this library.
    level : int

    Raises
    ------
    ParameterError
        The mechanism is of a kind that is not known here, or no epsilon covers it.
    """
    if not isinstance(mechanism, Ladder):
        return mechanism.realised_ratio(level)
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


def _bits_ratio(mechanism: Mechanism, chain: BitChain, level: int) -> Fraction:
    bits = [_bit(ladder, level) for ladder in chain.ladders]
    changed = [max(_spread(p, q), _spread(1 - p, 1 - q)) for p, q in bits]
    if isinstance(mechanism, RapporLadder):
        return changed[0] ** min(2 * mechanism.hashes, chain.width)
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
