"""Faults planted into what devices and batches draw with, and what finds each."""

from __future__ import annotations

import functools
import os
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small import five_percent_off

from clientsdk import draws
from clientsdk.recorder import Recorder
from clientsdk.store import permanent, reservoirs
from mechanisms.audit.claims import FALSE_ALARM, Auditor, examine
from mechanisms.audit.laws import check_draws
from mechanisms.audit.reports import UnexpectedReportsError
from mechanisms.base import Mechanism
from mechanisms.category.local_hashing import LocalHashing
from mechanisms.chains import bits, output_sets, subsets, symbols, thresholds
from mechanisms.chains.packed import PackedChain
from mechanisms.randomness import SystemSource
from mechanisms.registry import build
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource
from sotto.audit import metric_of
from sotto_cli.simulation.sampler import DeviceSampler, device_cases

pytestmark = pytest.mark.slow

SEED = 20_261_123
Plant = Callable[[pytest.MonkeyPatch], None]

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


def certificate(name: str) -> bool:
    found = PATCHED.get(name) or mechanism(name)
    return "its thresholds cost more than the nominal amount" in examine(found).problems


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


PATCHED: dict[str, Any] = {}


# Faults.


def around(owner: Any, name: str, wrong: Callable[..., Any]) -> Plant:
    """Put something in front of a function: it gets the function, then its arguments."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = getattr(owner, name)
        patch.setattr(owner, name, lambda *given, **named: wrong(right, *given, **named))

    return plant


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


def _no_flips(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(bits.BitChain, "flip_planes", property(lambda chain: ((),)))


def _redrawn(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(permanent, "response", lambda connection, binding: None)
    patch.setattr(permanent, "keep", lambda *given: None)


def _narrow_inputs(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PackedChain, "input_bits", property(lambda chain: chain.bits))


def _same_bits_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(draws, "urandom", lambda size: b"\x5a" * size)


def _less_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(PATCHED, "grr", five_percent_off(mechanism("grr")))


def _id_is_the_coin(right: Any, source: Any, resolution: int) -> Any:
    _, identifier, jitter = right(source, resolution)

    class Again:
        """Hands the bits of the chain id out again."""

        def bits(self, n: int) -> int:
            return int.from_bytes(identifier, "little") & ((1 << n) - 1)

    return Again(), identifier, jitter


#: The fault, where it is planted, and what finds it.
FAULTS: dict[str, tuple[Plant, Callable[[str], bool], str]] = {
    "the last bit of a vector in the clear": (
        around(bits, "bernoulli_mask", _clear(1 << 30)),
        law,
        "oue",
    ),
    "bit 199 in the clear on a device": (around(bits, "bernoulli_mask", _clear(199)), law, "wide"),
    "bit 199 in the clear in a batch": (around(bits, "bernoulli_lanes", _clear_lane), law, "wide"),
    "a bit that repeats its neighbour": (
        around(bits, "bernoulli_mask", _repeated_bit),
        law,
        "filter",
    ),
    "a weaker level without flips": (_no_flips, law, "oue"),
    "the end of the domain never drawn": (
        around(symbols.SymbolDraw, "apply", _end_missing),
        law,
        "grr",
    ),
    "one word for all levels": (around(symbols.StepChain, "draw", _one_word), law, "grr"),
    "a threshold that counts as below": (
        around(symbols.SymbolDraw, "apply", _or_equal),
        law,
        "grr",
    ),
    "half of every word": (around(symbols.SymbolDraw, "apply", _half_words), law, "grr"),
    "the last symbol in the clear": (
        around(symbols.SymbolDraw, "apply", _truth_at_the_end),
        law,
        "hashing",
    ),
    "all levels alike": (around(symbols, "outputs_down_from", _levels_alike), law, "grr"),
    "a table read one grain off": (
        around(thresholds.FiniteDraw, "apply", _grain_off),
        law,
        "piecewise",
    ),
    "a remainder instead of a rejection": (
        around(subsets, "uniform_below", _modulo),
        law,
        "subset",
    ),
    "outputs that should be ruled out": (
        around(output_sets.HadamardChain, "uniform_within", _any_output),
        law,
        "hadamard",
    ),
    "levels sent in the wrong order": (around(Recorder, "_chain", _backwards), alike, "grr"),
    "a cohort that is not the aggregator's": (
        around(Rappor, "cohort", _other_cohort),
        alike,
        "filter",
    ),
    "a hash that is not the aggregator's": (
        around(LocalHashing, "hash_of", _other_hash),
        alike,
        "hashing",
    ),
    "inputs cut to the width of outputs": (_narrow_inputs, alike, "vector"),
    "a chain id whose bits are the coins": (
        around(draws, "for_chain", _id_is_the_coin),
        device,
        "grr",
    ),
    "every recording with the same bits": (_same_bits_again, system_device, "grr"),
    "a batch that keeps the truth too often": (
        around(symbols.SymbolDraw, "draw_many", _true_more_often),
        batch,
        "grr",
    ),
    "a permanent response drawn every period": (_redrawn, case, "0"),
    "a reservoir that sends what it displaced": (
        around(reservoirs, "displace", lambda *given: False),
        case,
        "1",
    ),
    "thresholds with less noise than certified": (_less_noise, certificate, "grr"),
    "a biased bit of the system's source": (
        around(SystemSource, "bits", _biased),
        source,
        "system",
    ),
    "a bit of the system's source that is lost": (
        around(SystemSource, "bits", _cut_short),
        source,
        "system",
    ),
    "bits that a recording hands out twice": (
        around(draws.OnceOnly, "bits", _never_spent),
        source,
        "recording",
    ),
}


@pytest.mark.parametrize(("plant", "finds", "name"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found(
    plant: Plant, finds: Callable[[str], bool], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _examined.cache_clear()
    plant(monkeypatch)
    try:
        assert finds(name)
    finally:
        _examined.cache_clear()


@pytest.mark.parametrize(
    ("finds", "name"),
    dict.fromkeys((finds, name) for _, finds, name in FAULTS.values()),
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
