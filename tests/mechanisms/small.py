"""Ladders over domains so small that whole chains can be enumerated in exact fractions."""

from __future__ import annotations

import math
from collections import defaultdict
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from mechanisms.base import Mechanism
from mechanisms.chains.bits import BitChain
from mechanisms.chains.chain import Chain
from mechanisms.chains.finite import FiniteChain, FiniteDraw
from mechanisms.chains.packed import PackedChain
from mechanisms.chains.supporting import SupportChain
from mechanisms.chains.symbols import SymbolChain, SymbolDraw
from mechanisms.frozen import names_of
from mechanisms.levels import Probabilities
from mechanisms.registry import build

Law = dict[tuple[int, ...], Fraction]

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
    "duchi": {"name": "duchi", "missing": False},
    "duchi-missing": {"name": "duchi", "missing": True},
    "piecewise": {"name": "piecewise", "points": 3, "missing": False},
    "hybrid-missing": {"name": "hybrid", "points": 3, "missing": True},
    "wave": {"name": "square_wave", "points": 3, "missing": True},
    "bits": {"name": "sampled_bits", "bits": 3, "count": 2, "missing": False},
    "bits-missing": {"name": "sampled_bits", "bits": 2, "count": 2, "missing": True},
    "vector": {"name": "sampled_vector", "dimensions": 3, "sampled": 2, "bits": 0},
    "vector-bits": {"name": "sampled_vector", "dimensions": 2, "sampled": 2, "bits": 3},
    "vector-grid": {"name": "sampled_hybrid", "dimensions": 2, "sampled": 1, "points": 3},
    "split": {"name": "split_bits", "bits": 3, "missing": False},
    "split-missing": {"name": "split_bits", "bits": 2, "missing": True},
    "warner": {"name": "warner"},
    "simmons": {"name": "simmons", "unrelated": 30},
    "flips": {"name": "permute_and_flip", "domain_size": 3, "clip": 2},
    "top": {"name": "top_response", "domain_size": 3, "clip": 2},
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
#: Its cards decide what the last level costs.
CASES["christofides-three"] = Case(
    {"name": "christofides", "cards": (40, 1, 59)}, (100_000, 200_000, 388_658)
)


def ids(n: int, seed: int = 1) -> np.ndarray:
    """Identifiers of chains or pseudonyms."""
    return np.random.default_rng(seed).integers(0, 2**64, size=(n, 2), dtype=np.uint64)


def as_bytes(rows: np.ndarray) -> list[bytes]:
    return [row.tobytes() for row in rows.astype("<u8")]


def values(mechanism: Any, n: int) -> tuple[list[Any], Any]:
    """Some values: as scalars, and as what ``randomize`` takes."""
    generator = np.random.default_rng(20260301)
    if mechanism.name == "rappor":
        strings = [f"string {number % 7}".encode() for number in range(n)]
        return strings, strings
    if hasattr(mechanism, "clip"):
        rows = generator.integers(0, mechanism.clip + 1, size=(n, mechanism.domain_size))
        return [tuple(row) for row in rows.tolist()], rows
    if hasattr(mechanism, "domain_size"):
        symbols = generator.integers(0, mechanism.domain_size, size=n)
        return symbols.tolist(), symbols
    if hasattr(mechanism, "dimensions"):
        vectors = generator.random((n, mechanism.dimensions)).round()
        return [tuple(row) for row in vectors.tolist()], vectors
    numbers = generator.random(n)
    numbers[: min(n, 2)] = (0.0, 1.0)[:n]
    if mechanism.missing:
        numbers[2::5] = np.nan
    return [None if math.isnan(u) else u for u in numbers.tolist()], numbers


def prior_of(mechanism: Any, symbol: Any, identifier: bytes = bytes(16)) -> Any:
    """The symbols that a value may become before it is randomized, with integer weights."""
    return getattr(mechanism, "_prior", mechanism.prior)(symbol, identifier, identifier)


@cache
def encodings(mechanism: Any) -> list[int]:
    """The symbols that values become before they are randomized, under the coins of many chains."""
    scalars, _ = values(mechanism, 400)
    pairs = zip(scalars, as_bytes(ids(400)), strict=True)
    return sorted(
        {x for value, each in pairs for x, weight in prior_of(mechanism, value, each) if weight}
    )


@cache
def chain_law(chain: Chain, encoded: int) -> Law:
    """The exact law of a backward chain, weakest output first, from its integer thresholds.

    Without what is never drawn.
    """
    last = chain.levels - 1
    law: Law = {(output,): share for output, share in chain.law(encoded, last).items() if share}
    for level in range(last - 1, -1, -1):
        law = {
            (output, *path): share * moving
            for path, share in law.items()
            for output, moving in chain.step(path[0], level).items()
            if moving
        }
    return law


def joint_law(mechanism: Any, symbol: Any, identifier: bytes = bytes(16)) -> Law:
    """The exact law of the chain of a value, which may become one of several inputs."""
    prior = prior_of(mechanism, symbol, identifier)
    total, law = sum(weight for _, weight in prior), Law()
    for encoded, weight in prior:
        for outputs, share in chain_law(mechanism.chain, encoded).items():
            law[outputs] = law.get(outputs, Fraction(0)) + share * Fraction(weight, total)
    return law


@cache
def input_laws(mechanism: Any) -> list[Law]:
    """The laws of chains that certify a mechanism: of all inputs, or of counts at their ends."""
    if hasattr(mechanism, "clip"):
        ends = product((0, mechanism.clip), repeat=mechanism.domain_size)
        return [joint_law(mechanism, counts) for counts in ends]
    return [chain_law(mechanism.chain, encoded) for encoded in encodings(mechanism)]


def head_law(law: Law, levels: int) -> Law:
    """The law of the first ``levels`` outputs of a chain."""
    return _added(law, slice(levels))


def level_law(law: Law, level: int) -> Law:
    """The law of a single output of a chain; level -1 is the strongest."""
    return _added(law, slice(level, level + 1 or None))


def _added(law: Law, kept: slice) -> Law:
    whole = math.lcm(*(share.denominator for share in law.values()))
    total: dict[tuple[int, ...], int] = defaultdict(int)
    for outputs, share in law.items():
        total[outputs[kept]] += share.numerator * (whole // share.denominator)
    return {outputs: Fraction(shares, whole) for outputs, shares in total.items()}


def coarse_symbols() -> SymbolChain:
    """Thresholds with two significant bits, so that all sequences of bits can be tried."""
    strongest = SymbolDraw(2, 3 << 62, 1 << 62)
    weaker = SymbolDraw(2, 5 << 61, 3 << 61)
    p = Fraction(3, 4) * Fraction(5, 8) + Fraction(1, 4) * Fraction(3, 8)
    return SymbolChain(2, strongest, (weaker,), (Probabilities(p, 1 - p), strongest.pair))


def five_percent_off(mechanism: Any) -> Any:
    """The mechanism with its rarest answer 5 % rarer, and the old certificate."""
    wrong = copy(mechanism)
    name = "table" if hasattr(mechanism, "table") else "chain"
    vars(wrong)[name] = less_likely(getattr(mechanism, name))
    return wrong


def less_likely(chain: Any) -> Any:
    """The chain, or table of acceptance, with its rarest answer 5 % rarer."""
    if isinstance(chain, tuple):
        return (*chain[:-1], chain[-1] * 95 // 100)
    wrong = copy(chain)
    # Without what was computed of the right one.
    for name in vars(chain).keys() - names_of(type(chain)):
        del vars(wrong)[name]
    if isinstance(chain, PackedChain):
        vars(wrong)["single"] = less_likely(chain.single)
    elif isinstance(chain, FiniteChain):
        least = min(weight for row in chain.strongest.weights for weight in row if weight)
        rows = []
        for row in chain.strongest.weights:
            cut = [w * 95 // 100 if w == least else w for w in row]
            cut[cut.index(max(cut))] += 2**64 - sum(cut)
            rows.append(tuple(cut))
        vars(wrong)["strongest"] = FiniteDraw(tuple(rows))
    elif isinstance(chain, SymbolChain):
        draw = chain.strongest
        other = draw.other * 95 // 100
        keep = 2**64 - (draw.size - 1) * other
        vars(wrong)["strongest"] = type(draw)(draw.size, keep, other)
    elif isinstance(chain, BitChain):
        ladders = []
        for ladder in chain.ladders:
            bit = copy(ladder)
            vars(bit)["zero"] = ladder.zero * 95 // 100
            ladders.append(bit)
        vars(wrong)["ladders"] = tuple(ladders)
    else:
        assert isinstance(chain, SupportChain)
        vars(wrong)["threshold"] = 2**64 - (2**64 - chain.threshold) * 95 // 100
    return wrong
