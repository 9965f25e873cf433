"""Leaks that are planted into samplers: each is proved, at the rate of a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from planted import plant
from small import prior_of

from mechanisms.audit.attack import attack
from mechanisms.audit.claims import FALSE_ALARM, LIBRARY, Auditor
from mechanisms.audit.laws import check_draws, same_law, tables
from mechanisms.audit.reports import AttackedReports, batch_sampler
from mechanisms.base import NO_ID, Mechanism
from mechanisms.exact import MICRO
from mechanisms.number import gridded
from mechanisms.registry import build
from mechanisms.testing import SeededSource
from mechanisms.vector import sampled_hybrid

pytestmark = pytest.mark.slow

SEED = 20_260_701
LADDER = [500_000, 1_000_000]
WIDTHS = [8, 256]

Sampler = Callable[..., Any]
#: A fault changes payloads in place: ``(n, levels, payload_width)`` ``uint8``.
Fault = Callable[[Any], None]


def unary(name: str, width: int) -> Mechanism:
    return build({"name": name, "domain_size": width}, LADDER, "m")


def rappor(width: int) -> Mechanism:
    return build({"name": "rappor", "bits": width, "hashes": 2, "cohorts": 4}, LADDER, "m")


def packed(sampled: int) -> Mechanism:
    spec = {"name": "sampled_vector", "dimensions": 64, "sampled": sampled, "bits": 0}
    return build(spec, LADDER, "m")


def planted(mechanism: Mechanism, value: Any, fault: Fault, probability: float = 1.0) -> Sampler:
    """Return the mechanism's sampler, wrong for one value, as often as the probability says."""
    generator = np.random.default_rng(SEED)

    def sampler(values: Any, chains: Any, names: Any, source: Any) -> Any:
        payloads = mechanism.randomize(values, chains, names, source)
        mine = np.array(
            [one == value for one in values]
            if isinstance(value, bytes)
            else np.all(np.reshape(values == np.array(value), (len(values), -1)), axis=1)
        )
        chosen = mine & (generator.random(len(mine)) < probability)
        part = payloads[chosen]
        fault(part)
        payloads[chosen] = part
        return payloads

    return sampler


def sets(bit: int, rungs: slice = slice(None)) -> Fault:
    def fault(payloads: Any) -> None:
        payloads[:, rungs, bit >> 3] |= np.uint8(1 << (bit & 7))

    return fault


def proved(mechanism: Mechanism, sampler: Sampler, trials: int) -> bool:
    samples = batch_sampler(mechanism, sampler)
    found = attack(mechanism, samples, SeededSource(SEED), trials=trials)
    certified = mechanism.certified(mechanism.levels - 1) / MICRO
    return found.exceeds(certified, FALSE_ALARM / len(LIBRARY))


def differs(mechanism: Mechanism, sampler: Sampler, trials: int) -> bool:
    """Whether the faulty reports of many inputs are seen to have another law."""
    source = SeededSource(SEED)
    inputs = mechanism.some_inputs(256, source)
    found = []
    for draw, n in ((sampler, trials), (None, 3 * trials)):
        counts, totals = 0, np.zeros(len(inputs), dtype=np.int64)
        for start in range(0, n, 50_000):
            places = np.arange(min(50_000, n - start)) % len(inputs)
            reports = batch_sampler(mechanism, draw)(inputs, places, source)
            counts = counts + tables(reports, mechanism, inputs)
            totals += np.bincount(places, minlength=len(inputs))
        found.append((counts, totals))
    (one, first), (other, second) = found
    return not same_law(one, other, (first, second), FALSE_ALARM / len(LIBRARY))


def outside(mechanism: Any) -> tuple[Any, int]:
    """Return an input of the audited pair, and the last bit that both set alike."""
    pair = mechanism.worst_inputs(1)
    one, other = (prior_of(mechanism, value, NO_ID)[0][0] for value in pair)
    same = [bit for bit in range(mechanism.chain.width) if not (one ^ other) >> bit & 1]
    return pair[0], same[-1]


class TestABitThatShouldSayNothing:
    """It is none of the bits in which the encodings of the audited inputs differ."""

    @pytest.mark.parametrize(("name", "width"), [("oue", 256), ("sue", 8)])
    @pytest.mark.parametrize(("probability", "trials"), [(1.0, 10_000), (0.2, 100_000)])
    def test_of_unary_encoding(
        self, name: str, width: int, probability: float, trials: int
    ) -> None:
        mechanism = unary(name, width)
        value, bit = outside(mechanism)
        assert proved(mechanism, planted(mechanism, value, sets(bit), probability), trials)

    @pytest.mark.parametrize("width", [64, 256])
    @pytest.mark.parametrize(("probability", "trials"), [(1.0, 10_000), (0.2, 160_000)])
    def test_of_bloom_filters(self, width: int, probability: float, trials: int) -> None:
        mechanism = rappor(width)
        value, bit = outside(mechanism)
        assert proved(mechanism, planted(mechanism, value, sets(bit), probability), trials)

    @pytest.mark.parametrize("mechanism", [unary("oue", 64), unary("sue", 64), rappor(128)])
    @pytest.mark.parametrize("rung", [0, 1])
    def test_of_one_rung(self, mechanism: Mechanism, rung: int) -> None:
        value, bit = outside(mechanism)
        sampler = planted(mechanism, value, sets(bit, slice(rung, rung + 1)))
        assert proved(mechanism, sampler, 10_000)

    @pytest.mark.parametrize("mechanism", [unary("oue", 64), unary("sue", 128), rappor(64)])
    def test_that_is_the_same_at_both_rungs(self, mechanism: Mechanism) -> None:
        """The bit of either rung has the law that it should have; both together do not."""
        value, bit = outside(mechanism)

        def fault(payloads: Any) -> None:
            column, mask = payloads[:, :, bit >> 3], np.uint8(1 << (bit & 7))
            column[:, 0] = column[:, 0] & ~mask | column[:, 1] & mask

        assert proved(mechanism, planted(mechanism, value, fault), 10_000)

    @pytest.mark.parametrize("mechanism", [unary("oue", 64), unary("sue", 64), rappor(128)])
    def test_that_repeats_its_neighbour(self, mechanism: Mechanism) -> None:
        """Each bit has the law that it should have; the byte of both does not."""
        value, _ = outside(mechanism)
        byte = mechanism.payload_width - 1

        def fault(payloads: Any) -> None:
            last = payloads[:, -1, byte]
            payloads[:, -1, byte] = last & 0x7F | (last & 0x40) << 1

        assert proved(mechanism, planted(mechanism, value, fault), 10_000)


class TestAnInputThatIsNotOfTheAuditedPair:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize(
        ("name", "probability", "trials"),
        [("oue", 1.0, 20_000), ("sue", 1.0, 20_000), ("oue", 0.2, 300_000)],
    )
    def test_sets_another_bit(self, name: str, width: int, probability: float, trials: int) -> None:
        mechanism = unary(name, width)
        sampler = planted(mechanism, 2 * width // 3, sets(width // 2), probability)
        assert differs(mechanism, sampler, trials)

    def test_is_often_reported_as_another_one(self) -> None:
        mechanism = build({"name": "grr", "domain_size": 200}, LADDER, "m")

        def fault(payloads: Any) -> None:
            payloads[:] = 5

        assert differs(mechanism, planted(mechanism, 120, fault, 0.2), 50_000)

    def test_is_always_reported_as_its_public_coins_have_it(self) -> None:
        """Without the coins all reports of all inputs have one law."""
        mechanism: Any = build(
            {"name": "local_hashing", "domain_size": 100, "buckets": 5}, LADDER, "m"
        )

        def sampler(values: Any, chains: Any, names: Any, source: Any) -> Any:
            payloads = mechanism.randomize(values, chains, names, source)
            mine = np.asarray(values) == 70
            true = mechanism.truths(np.full(mine.sum(), 70), chains[mine])[:, 0]
            payloads[mine] = true[:, None, None]
            return payloads

        assert differs(mechanism, sampler, 50_000)


class TestPackedAnswers:
    @pytest.mark.parametrize("sampled", [8, 32, 64])
    def test_one_is_always_what_its_public_coins_ask(self, sampled: int) -> None:
        mechanism: Any = packed(sampled)
        value = mechanism.worst_inputs(1)[0]

        def sampler(values: Any, chains: Any, names: Any, source: Any) -> Any:
            payloads = mechanism.randomize(values, chains, names, source)
            mine = (np.asarray(values) == np.array(value)).all(axis=1)
            true = mechanism.encode_many(values, chains, chains, source)[:, 0]
            cleared = payloads[mine][:, :, 0] & 0xFE
            payloads[mine, :, 0] = cleared | true[mine, None].astype(np.uint8)
            return payloads

        assert proved(mechanism, sampler, 10_000)


def test_reports_that_no_input_has() -> None:
    """They are proved to tell inputs apart, and are no error."""
    mechanism = build({"name": "grr", "domain_size": 4}, LADDER, "m")
    assert proved(mechanism, planted(mechanism, 0, sets(7), 0.2), 10_000)


@pytest.mark.parametrize("mechanism", [unary("oue", 256), unary("sue", 64), rappor(128), packed(8)])
def test_without_a_leak_nothing_is_proved(mechanism: Mechanism) -> None:
    """The checks above: they do not depend on the sampler being replaced."""
    value = mechanism.worst_inputs(1)[0]
    assert not proved(mechanism, planted(mechanism, value, lambda payloads: None), 20_000)


def test_without_a_fault_the_laws_are_the_same() -> None:
    mechanism = unary("oue", 64)
    assert not differs(mechanism, mechanism.randomize, 20_000)


@pytest.mark.parametrize(
    "spec",
    [
        {"name": "hybrid", "points": 17, "missing": False},
        {"name": "hybrid", "points": 17, "missing": True},
        {"name": "sampled_hybrid", "dimensions": 3, "sampled": 1, "points": 17},
    ],
    ids=["number", "missing", "vector"],
)
def test_numbers_between_two_points_are_followed(
    spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device that rounds to the nearest one is right about all numbers that are on the grid."""
    mechanism = build(spec, LADDER, "m")
    assert not check_draws(mechanism, SeededSource(SEED)).differs

    def nearest(right: Any, u: float, steps: int, source: Any) -> int:
        return int(u * steps + 0.5)

    for module in (gridded, sampled_hybrid):
        plant(monkeypatch, module, "round_to_grid", nearest)
    assert check_draws(mechanism, SeededSource(SEED)).differs


def test_a_chain_id_that_names_the_value_is_seen() -> None:
    mechanism = build({"name": "grr", "domain_size": 4}, LADDER, "m")
    auditor = Auditor(SeededSource(SEED))
    good = batch_sampler(mechanism)

    def named(values: Any, places: Any, source: Any) -> AttackedReports:
        reports = good(values, places, source)
        reports.chains[:, 0] = reports.chains[:, 0] >> np.uint64(2) << np.uint64(2)
        reports.chains[:, 0] |= np.array(values, dtype=np.uint64)[places]
        return reports

    assert auditor.alike(mechanism, good, 1000, 2)
    assert not auditor.alike(mechanism, named, 1000, 2)
