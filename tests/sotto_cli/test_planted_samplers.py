"""Faults planted into what devices and batches draw with, and what finds each."""

from __future__ import annotations

import functools
import os
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted import plant

from clientsdk import draws
from clientsdk.recorder import Recorder
from clientsdk.store import outbox, permanent
from mechanisms.audit.claims import FALSE_ALARM, Auditor, examine
from mechanisms.audit.laws import check_draws
from mechanisms.audit.reports import UnexpectedReportsError
from mechanisms.base import Mechanism
from mechanisms.category.local_hashing import LocalHashing
from mechanisms.chains import bits, subsets, symbols
from mechanisms.chains.bits import BitChain
from mechanisms.chains.output_sets import HadamardChain
from mechanisms.chains.packed import PackedChain
from mechanisms.chains.symbols import StepChain, SymbolDraw
from mechanisms.chains.thresholds import FiniteDraw
from mechanisms.randomness import SystemSource
from mechanisms.registry import build
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource
from sotto.audit import metric_of
from sotto_cli.simulation.sampler import DeviceSampler, device_cases

pytestmark = pytest.mark.slow

SEED = 20_261_123

SPECS: dict[str, dict[str, Any]] = {
    "grr": {"name": "grr", "domain_size": 4},
    "oue": {"name": "oue", "domain_size": 16},
    "wide": {"name": "sue", "domain_size": 256},
    "filter": {"name": "rappor", "bits": 64, "hashes": 2, "cohorts": 4},
    "subset": {"name": "subset", "domain_size": 6, "subset_size": 2},
    "hadamard": {"name": "hadamard", "domain_size": 4, "blocks": 2},
    "piecewise": {"name": "piecewise", "points": 9, "missing": False},
    "hashing": {"name": "local_hashing", "domain_size": 9, "buckets": 3},
    "vector": {"name": "sampled_hybrid", "dimensions": 4, "sampled": 2, "points": 17},
}


def mechanism(name: str) -> Mechanism:
    return build(SPECS[name], [500_000, 1_000_000], "audit")


# Checks that find a fault.


def law(name: str) -> bool:
    """The law of a device's sampler, or the bits of a vector one by one."""
    return check_draws(mechanism(name), SeededSource(SEED), 1000).differs


@functools.cache
def _examined(name: str) -> list[str]:
    """Return what is found wrong; once for all that is looked for while nothing is planted."""
    found = mechanism(name)
    sampler = DeviceSampler(metric_of(found))
    auditor = Auditor(SeededSource(SEED), 20_000, 3_000, runs=500)
    return examine(found, auditor=auditor, device=sampler).problems


def alike(name: str) -> bool:
    """The reports of devices beside those of the batch code."""
    found = mechanism(name)
    sampler = DeviceSampler(metric_of(found))
    recordings = 6_000 if name == "filter" else 3_000
    auditor = Auditor(SeededSource(SEED))
    return not auditor.alike(found, sampler, recordings // sampler.cost, found.levels)


def batch(name: str) -> bool:
    return "an attack on the batch code shows more than is certified" in _examined(name)


def device(name: str) -> bool:
    return "an attack on a device shows more than is certified" in _examined(name)


def system_device(name: str) -> bool:
    """The same with the source that devices have; it is refused whatever is drawn."""
    sampler = DeviceSampler(metric_of(mechanism(name)))
    try:
        sampler([0, 1], np.arange(20) % 2, SystemSource())
    except UnexpectedReportsError:
        return True
    return False


def case(number: str) -> bool:
    """A permanent response (0), or a reservoir (1), on devices."""
    attacked = device_cases()[int(number)]
    try:
        found = attacked.attack(SeededSource(SEED), 3_000, 0.95)
    except UnexpectedReportsError:
        return True
    return found.exceeds(attacked.true, FALSE_ALARM)


def source(name: str) -> bool:
    """Whether a bit of the system's randomness is lost, used twice or not passed on."""
    given: list[int] = []
    before = os.urandom
    sizes = (3, 8, 13, 64, 100, 128, 190) if name == "recording" else (13,)
    room = 512 if name == "recording" else 16

    def one_hot(size: int) -> bytes:
        return (1 << given[-1] if given[-1] < 8 * size else 0).to_bytes(size, "little")

    os.urandom, draws.urandom = one_hot, one_hot
    try:
        seen = []
        for place in range(room):
            given.append(place)
            one: Any = draws.OnceOnly() if name == "recording" else SystemSource()
            said = [one.bits(size) for size in sizes]
            hits = [(at, bit) for at, each in enumerate(said) for bit in _ones(each)]
            if len(hits) > 1:
                return True
            seen += hits
    finally:
        os.urandom, draws.urandom = before, before
    return sorted(seen) != [(at, bit) for at, size in enumerate(sizes) for bit in range(size)]


def _ones(value: int) -> list[int]:
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


# Faults: each is called instead of the right function, with it and its arguments.


def _clear(place: int) -> Callable[..., int]:
    def wrong(right: Any, planes: Any, width: int, source: Any) -> int:
        return int(right(planes, width, source)) & ~(1 << min(place, width - 1))

    return wrong


def _clear_lane(right: Any, planes: Any, lanes: int, n: int, source: Any) -> Any:
    drawn = right(planes, lanes, n, source)
    drawn[:, 199 // 64] &= np.uint64(2**64 - 1 - (1 << 199 % 64))
    return drawn


def _repeated_bit(right: Any, *given: Any) -> int:
    mask = int(right(*given))
    return mask & ~2 | (mask & 1) << 1


def _end_missing(right: Any, draw: Any, symbol: Any, word: Any) -> Any:
    return min(int(right(draw, symbol, word)), draw.size - 2)


def _one_word(right: Any, chain: Any, symbol: int, source: Any) -> Any:
    words = source.bits(64)
    last = chain.strongest.apply(symbol, words)
    return [*(step.apply(last, words) for step in chain.steps), last]


def _or_equal(right: Any, draw: Any, symbol: Any, word: Any) -> Any:
    return symbol if word <= draw.keep else right(draw, symbol, word)


def _half_words(right: Any, draw: Any, symbol: Any, word: Any) -> Any:
    return symbol if word >> 32 < draw.keep >> 32 else right(draw, symbol, draw.keep)


def _truth_at_the_end(right: Any, draw: Any, symbol: Any, word: Any) -> Any:
    return symbol if int(symbol) == draw.size - 1 else right(draw, symbol, word)


def _levels_alike(right: Any, last: Any, steps: Any, words: Any) -> Any:
    return [last] * (len(steps) + 1)


def _grain_off(right: Any, draw: Any, x: int, word: Any) -> int:
    return bisect_left(draw._totals[x], word)


def _modulo(right: Any, bound: int, source: Any) -> int:
    return int(source.bits((bound - 1).bit_length())) % bound


def _any_output(right: Any, chain: Any, x: int, supporting: bool, source: Any) -> int:
    return int(right(chain, x, supporting, source) if supporting else chain.uniform(source))


def _backwards(right: Any, recorder: Any, metric: Any, now: int, *given: Any) -> Any:
    return right(recorder, metric, now, *given[:-1], given[-1][::-1])


def _other_cohort(right: Any, rappor: Any, pseudonym: bytes) -> int:
    return int(right(rappor, pseudonym[::-1]))


def _other_hash(right: Any, hashing: Any, chain: bytes) -> int:
    return int(right(hashing, chain[::-1]))


def _true_more_often(right: Any, draw: Any, xs: Any, source: Any) -> Any:
    drawn = right(draw, xs, source)
    return np.where(source.words(len(xs)) % np.uint64(4) == 0, xs, drawn)


def _biased(right: Any, system: Any, n: int) -> int:
    return int(right(system, n)) | 1


def _cut_short(right: Any, system: Any, n: int) -> int:
    return int(right(system, n)) & ((1 << n - 1) - 1)


def _never_spent(right: Any, once: Any, n: int) -> int:
    left = once._bits, once._left
    drawn = int(right(once, n))
    once._bits, once._left = left
    return drawn


def _same_bits(right: Any, size: int) -> bytes:
    return b"Z" * size


def _id_is_the_coin(right: Any, source: Any, resolution: int) -> Any:
    _, identifier, jitter = right(source, resolution)

    class Again:
        """Hands the bits of the chain id out again."""

        def bits(self, n: int) -> int:
            return int.from_bytes(identifier, "little") & ((1 << n) - 1)

    return Again(), identifier, jitter


APPLY = SymbolDraw, "apply"
NO_FLIPS = property(lambda chain: ((),))
OUTPUT_BITS = property(lambda chain: chain.bits)

#: The fault, by what finds it: in which example, where it is planted, and a fault or a property.
FAULTS: dict[Callable[[str], bool], dict[str, tuple[str, Any, str, Any]]] = {
    law: {
        "the last bit of a vector in the clear": ("oue", bits, "bernoulli_mask", _clear(1 << 30)),
        "bit 199 in the clear on a device": ("wide", bits, "bernoulli_mask", _clear(199)),
        "bit 199 in the clear in a batch": ("wide", bits, "bernoulli_lanes", _clear_lane),
        "a bit that repeats its neighbour": ("filter", bits, "bernoulli_mask", _repeated_bit),
        "a weaker level without flips": ("oue", BitChain, "flip_planes", NO_FLIPS),
        "the end of the domain never drawn": ("grr", *APPLY, _end_missing),
        "one word for all levels": ("grr", StepChain, "draw", _one_word),
        "a threshold that counts as below": ("grr", *APPLY, _or_equal),
        "half of every word": ("grr", *APPLY, _half_words),
        "the last symbol in the clear": ("hashing", *APPLY, _truth_at_the_end),
        "all levels alike": ("grr", symbols, "outputs_down_from", _levels_alike),
        "a table read one grain off": ("piecewise", FiniteDraw, "apply", _grain_off),
        "a remainder instead of a rejection": ("subset", subsets, "uniform_below", _modulo),
        "outputs that are ruled out": ("hadamard", HadamardChain, "uniform_within", _any_output),
    },
    alike: {
        "levels sent in the wrong order": ("grr", Recorder, "_chain", _backwards),
        "a cohort that is not the aggregator's": ("filter", Rappor, "cohort", _other_cohort),
        "a hash that is not the aggregator's": ("hashing", LocalHashing, "hash_of", _other_hash),
        "inputs cut to the width of outputs": ("vector", PackedChain, "input_bits", OUTPUT_BITS),
    },
    device: {"a chain id whose bits are the coins": ("grr", draws, "for_chain", _id_is_the_coin)},
    system_device: {"every recording with the same bits": ("grr", draws, "urandom", _same_bits)},
    batch: {
        "a batch that keeps the truth too often": ("grr", SymbolDraw, "draw_many", _true_more_often)
    },
    case: {
        "a permanent response drawn every period": ("0", permanent, "keep", lambda *given: None),
        "a reservoir that sends an old value": ("1", outbox, "displace", lambda *given: False),
    },
    source: {
        "a biased bit of the system's source": ("system", SystemSource, "bits", _biased),
        "a bit of the system's source that is lost": ("system", SystemSource, "bits", _cut_short),
        "bits that are handed out twice": ("recording", draws.OnceOnly, "bits", _never_spent),
    },
}
PLANTED = {
    what: (finds, *fault) for finds, faults in FAULTS.items() for what, fault in faults.items()
}


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_fault_is_found(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    finds, name, owner, attribute, wrong = PLANTED[what]
    plant(monkeypatch, owner, attribute, wrong)
    _examined.cache_clear()
    try:
        assert finds(name)
    finally:
        _examined.cache_clear()


@pytest.mark.parametrize(
    ("finds", "name"),
    dict.fromkeys((finds, name) for finds, name, *_ in PLANTED.values()),
    ids=lambda each: each if isinstance(each, str) else each.__name__,
)
def test_nothing_is_found_without_a_fault(finds: Callable[[str], bool], name: str) -> None:
    assert not finds(name)


def test_every_bit_of_wide_vectors_has_a_word_and_a_threshold_of_its_own() -> None:
    """For widths of whole and broken bytes and words; each position singly, on both ways."""
    for name, width in (("sue", 7), ("oue", 64), ("oue", 65), ("sue", 200)):
        found = build({"name": name, "domain_size": width}, [500_000, 1_000_000], "m")
        checked = check_draws(found, SeededSource(SEED))
        assert not checked.differs
        assert checked.positions == width
