"""Ladders over domains so small that whole chains can be enumerated in exact fractions."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.finite import FiniteChain, FiniteDraw
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain, SymbolDraw
from mechanisms.levels import Probabilities
from mechanisms.number.split_bits import SplitBitsLadder
from mechanisms.registry import build
from mechanisms.string.rappor import RapporLadder

Law = dict[tuple[int, ...], Fraction]
AnyChain = SymbolChain | BitChain | SupportChain | FiniteChain

LADDERS: dict[str, tuple[int, ...]] = {
    "one": (1_000_000,),
    "three": (500_000, 1_000_000, 2_000_000),
    "wide": (1, 1_500_000, 9_000_000),
}

SPECS: dict[str, dict[str, Any]] = {
    "grr2": {"name": "grr", "domain_size": 2},
    "grr5": {"name": "grr", "domain_size": 5},
    "sue3": {"name": "sue", "domain_size": 3},
    "oue2": {"name": "oue", "domain_size": 2},
    "oue3": {"name": "oue", "domain_size": 3},
    "hashing5": {"name": "local_hashing", "domain_size": 5, "buckets": 2},
    "hashing7": {"name": "local_hashing", "domain_size": 7, "buckets": 3},
    "subset4": {"name": "subset", "domain_size": 4, "subset_size": 2},
    "subset5": {"name": "subset", "domain_size": 5, "subset_size": 1},
    "hadamard3": {"name": "hadamard", "domain_size": 3, "blocks": 1},
    "hadamard4": {"name": "hadamard", "domain_size": 4, "blocks": 2},
    "brr4": {"name": "brr", "domain_size": 4, "subset_size": 2, "missing": False},
    "brr-missing": {"name": "brr", "domain_size": 4, "subset_size": 2, "missing": True},
    "rappor": {"name": "rappor", "bits": 3, "hashes": 1, "cohorts": 3},
    "rappor-full": {"name": "rappor", "bits": 3, "hashes": 4, "cohorts": 1},
    "threshold": {"name": "threshold", "missing": False},
    "threshold-missing": {"name": "threshold", "missing": True},
    "sampled": {"name": "sampled_bit", "bits": 3, "missing": False},
    "sampled-missing": {"name": "sampled_bit", "bits": 2, "missing": True},
    "split": {"name": "split_bits", "bits": 3, "missing": False},
    "split-missing": {"name": "split_bits", "bits": 2, "missing": True},
}


@dataclass(frozen=True)
class Case:
    """A ladder and its name."""

    spec: dict[str, Any]
    ladder: tuple[int, ...]

    def build(self) -> Mechanism:
        return build(self.spec, self.ladder, "metric")


CASES = {
    f"{name}-{rungs}": Case(spec, ladder)
    for name, spec in SPECS.items()
    for rungs, ladder in LADDERS.items()
}


def encodings(mechanism: Mechanism) -> list[int]:
    """Every symbol, or vector of bits, that the mechanism ever randomizes."""
    chain: AnyChain = mechanism.chain  # type: ignore[attr-defined]
    if isinstance(chain, SupportChain | FiniteChain):
        return list(range(chain.inputs))
    if isinstance(chain, SymbolChain):
        return list(range(chain.size))
    if isinstance(mechanism, RapporLadder):
        vectors = range(1, 1 << chain.width)
        return [bits for bits in vectors if bits.bit_count() <= mechanism.hashes]
    if isinstance(mechanism, SplitBitsLadder):
        present = 1 << mechanism.bits if mechanism.missing else 0
        values = [point | present for point in range(1 << mechanism.bits)]
        return [*values, 0] if mechanism.missing else values
    return [1 << symbol for symbol in range(chain.width)]


def prior_of(mechanism: Any, symbol: Any, identifier: bytes = bytes(16)) -> Any:
    """What a value becomes before it is randomized, with integer weights."""
    prior = getattr(mechanism, "_prior", mechanism.prior)
    return prior(symbol, identifier, identifier)


@cache
def chain_law(chain: AnyChain, encoded: int) -> Law:
    """The exact law of a backward chain, weakest output first, from its integer thresholds."""
    law: Law = {}
    for outputs, share in _backward(chain, encoded):
        law[outputs] = share
    return law


def _backward(chain: AnyChain, encoded: int) -> Iterator[tuple[tuple[int, ...], Fraction]]:
    if isinstance(chain, SymbolChain):
        steps = [chain.strongest, *reversed(chain.degradations)]
        for path in itertools.product(range(chain.size), repeat=len(steps)):
            share, before = Fraction(1), encoded
            for step, out in zip(steps, path, strict=True):
                share *= Fraction(step.keep if out == before else step.other, 2**64)
                before = out
            yield path[::-1], share
        return
    if isinstance(chain, FiniteChain):
        for path in itertools.product(range(chain.size), repeat=chain.levels):
            share = Fraction(chain.strongest.weight(encoded, path[-1]), 2**64)
            for step, below, above in zip(chain.steps, path[:-1], path[1:], strict=True):
                share *= _moving(step, above, below)
            yield path, share
        return
    if isinstance(chain, SupportChain):
        top = chain.levels - 1
        for path in itertools.product(chain.outputs(), repeat=chain.levels):
            share = _supported_share(chain, encoded, path[top])
            for below, above, keep in zip(path[:-1], path[1:], chain.keeps, strict=True):
                share *= Fraction(2**64 - keep, 2**64) / chain.total + (
                    Fraction(keep, 2**64) if below == above else 0
                )
            yield path, share
        return
    bits = [_bit_law(chain, index, encoded >> index & 1) for index in range(chain.width)]
    for paths in itertools.product(*(law.items() for law in bits)):
        share = Fraction(1)
        outputs = [0] * chain.levels
        for index, (path, part) in enumerate(paths):
            share *= part
            for level, bit in enumerate(path):
                outputs[level] |= bit << index
        yield tuple(outputs), share


def _moving(step: FiniteDraw | SymbolDraw, before: int, after: int) -> Fraction:
    """The probability that a step turns one output into another."""
    if isinstance(step, FiniteDraw):
        return Fraction(step.weight(before, after), 2**64)
    return Fraction(step.keep if before == after else step.other, 2**64)


def _supported_share(chain: SupportChain, encoded: int, output: int) -> Fraction:
    """The probability of the strongest output: uniform of its kind."""
    inside = chain.supports(encoded, output)
    alike = sum(chain.supports(encoded, other) == inside for other in chain.outputs())
    p = Fraction(chain.threshold, 2**64)
    return (p if inside else 1 - p) / alike


def _bit_law(chain: BitChain, index: int, bit: int) -> Law:
    ladder = chain.ladders[index % len(chain.ladders)]
    strongest = Fraction(ladder.one if bit else ladder.zero, 2**64)
    law: Law = defaultdict(Fraction)
    for path in itertools.product((0, 1), repeat=chain.levels):
        share = strongest if path[-1] else 1 - strongest
        for level, flip in enumerate(ladder.flips):
            change = Fraction(flip, 2**64)
            share *= change if path[level] != path[level + 1] else 1 - change
        law[path] += share
    return dict(law)


def head_law(law: Law, levels: int) -> Law:
    """The law of the first ``levels`` outputs of a chain."""
    head: Law = defaultdict(Fraction)
    for outputs, share in law.items():
        head[outputs[:levels]] += share
    return dict(head)


def level_law(law: Law, level: int) -> Law:
    """The law of a single output of a chain; level -1 is the strongest."""
    single: Law = defaultdict(Fraction)
    for outputs, share in law.items():
        single[outputs[level],] += share
    return dict(single)


def coarse_symbols() -> SymbolChain:
    """Thresholds with two significant bits, so that all sequences of bits can be tried."""
    strongest = SymbolDraw(2, 3 << 62, 1 << 62)
    weaker = SymbolDraw(2, 5 << 61, 3 << 61)
    p = Fraction(3, 4) * Fraction(5, 8) + Fraction(1, 4) * Fraction(3, 8)
    return SymbolChain(2, strongest, (weaker,), (Probabilities(p, 1 - p), strongest.rung))
