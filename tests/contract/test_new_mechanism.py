"""A mechanism of its own file goes the whole way: plan, device, log, run, estimates, audit, design.

Nothing but its class and a name in the registry: no other module decides by a mechanism's name.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from plan_texts import plan_head
from report_logs import Sent, write
from statistical import check_normal
from step_plans import DAY, HOUR, PERIOD

from clientsdk import MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient
from mechanisms import registry
from mechanisms.audit.attack import attack
from mechanisms.audit.claims import certified
from mechanisms.audit.reports import batch_sampler
from mechanisms.base import Epsilon
from mechanisms.category.oracle import FrequencyOracle, category, category_array
from mechanisms.chains.symbols import SymbolChain, symbol_chain
from mechanisms.coins import coin_domain, hash_id, hash_ids
from mechanisms.frozen import frozen
from mechanisms.randomness import Source
from mechanisms.testing import SeededSource
from pipelines.bounded.run import aggregate
from pipelines.results.tables import ESTIMATES
from pipelines.sinks.sql import Results, of_state
from sotto.design.description import what_reports_show
from sotto.design.metric import Goal, design
from sotto.design.questions import question_of_metric
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledPlan

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED, DEVICES = 20261122, 400
START = 2800 * PERIOD + DAY
COLOURS = ("red", "green", "blue", "grey")
PLAN = (
    plan_head("new", (1000, 100000), shards=2, minimum_reports=1)
    + """\
  colour: {type: category, domain: [red, green, blue, grey], outside: grey, mechanism: rotated,
           window: 7d, ladder: [{epsilon: 1}, {epsilon: 4, after: 1d}]}
"""
)


@frozen
class RotatedResponse(FrequencyOracle):
    """Randomized response to the category, rotated by a public coin of the chain."""

    epsilon: Epsilon
    domain_size: int
    metric: str = ""

    name = "rotated"
    coins = "chain"
    symbolic = True
    gives = "shares of {symbols}, each rotated"

    @cached_property
    def chain(self) -> SymbolChain:
        return symbol_chain(self.domain_size, self.micros)

    def _turn(self, chain: bytes) -> int:
        return hash_id(chain, coin_domain(self.metric)) % self.domain_size

    @property
    def strata(self) -> int:
        return self.domain_size

    def strata_of(
        self, chains: NDArray[np.uint64], pseudonyms: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        turns = hash_ids(chains, coin_domain(self.metric)) % np.uint64(self.domain_size)
        return turns.astype(np.int64)

    def encode(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> int:
        return (category(symbol, self.domain_size) + self._turn(chain)) % self.domain_size

    def encode_many(self, symbols: Any, chains: Any, pseudonyms: Any, source: Source) -> Any:
        plain = category_array(symbols, self.domain_size)
        return (plain + self.strata_of(chains, pseudonyms)) % self.domain_size

    def supports(self, table: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        m = self.domain_size
        cells = table.reshape(len(table), m, m)
        turned = [np.roll(cells[:, turn], -turn, axis=1) for turn in range(m)]
        return np.sum(turned, axis=0), table.sum(axis=1)

    def supported(self, category: int, output: int, chain: bytes) -> bool:
        return (category + self._turn(chain)) % self.domain_size == output


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> CompiledPlan:
    """A plan that names it, compiled."""
    monkeypatch.setitem(registry.REGISTRY, "rotated", f"{__name__}:RotatedResponse")
    return parse_plan(PLAN).compile()


def sent(plan: CompiledPlan, values: list[str]) -> Iterator[Sent]:
    """The reports that devices with these values send."""
    source = random.Random(SEED)
    for value in values:
        clock = FakeClock(START + source.randrange(DAY))
        with SeededClient(plan, seed=source.getrandbits(64), clock=clock) as client:
            publisher = client.publisher
            assert isinstance(publisher, MemoryPublisher)
            assert client.record("colour", value).value == "accepted"
            for wait in (3 * HOUR, 2 * DAY):
                clock.now += wait
                client.flush()
                while publisher.messages:
                    yield Sent(clock.now, publisher.messages.pop(0)[1])


def test_it_goes_from_the_plan_to_the_estimates(plan: CompiledPlan, tmp_path: Path) -> None:
    source = random.Random(SEED)
    values = [COLOURS[min(int(source.expovariate(0.7)), 3)] for _ in range(DEVICES)]
    log = write(tmp_path / "log", list(sent(plan, values)))
    assert aggregate(log, tmp_path / "state", [plan]).rejects == {}
    with Results(of_state(tmp_path / "state")) as results:
        rows = {str(row["item"]): row for row in results.table(ESTIMATES)}
    assert rows.keys() == set(COLOURS)
    found, errors = ([rows[name][key] for name in COLOURS] for key in ("value", "standard_error"))
    truth = [values.count(name) / DEVICES for name in COLOURS]
    check_normal(found, truth, errors, label=f"seed {SEED}")


def test_its_device_shows_what_it_sends(plan: CompiledPlan) -> None:
    (metric,) = plan.metrics
    chain = random.Random(SEED).randbytes(16)
    payload = metric.mechanism.draw(2, chain, bytes(16), SeededSource(SEED))[-1]
    text = metric.mechanism.describe(payload, chain, bytes(16), metric.context())
    assert text in {f"one of {name!r}" for name in COLOURS}
    assert what_reports_show(metric).startswith("shares of 4 symbols, each rotated; 10,000 reports")


def test_it_is_audited(plan: CompiledPlan) -> None:
    """From its integers, and by an attack on its chains that knows the coins."""
    (metric,) = plan.metrics
    mechanism = metric.mechanism
    for level in range(mechanism.levels):
        assert certified(mechanism, level) == mechanism.certified(level)
    found = attack(mechanism, batch_sampler(mechanism), SeededSource(SEED), trials=20_000)
    assert not found.exceeds(4.0, 1e-9)
    assert found.exceeds(2.0, 1e-9)


def test_it_is_designed_with(plan: CompiledPlan) -> None:
    (metric,) = plan.metrics
    found = design(question_of_metric(plan, metric), Goal("width", 0.02))
    assert [level.certified for level in found.levels] == [1_000_000, 4_000_000]
    assert all(level.needed for level in found.levels)
