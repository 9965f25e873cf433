"""A plan with a metric of every type and mechanism, a fleet, and the truth about the fleet."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from plan_texts import plan_head
from report_logs import Sent, write
from step_plans import DAY, HOUR, PERIOD

from clientsdk import MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient
from mechanisms.testing import SeededSource
from sotto.plan.compile import parse_plan
from sotto.plan.compiled import CompiledMetric, CompiledPlan

START = 2800 * PERIOD + DAY
HEAD = plan_head("every", (1000, 100000), shards=2, minimum_reports=1)
LADDER = "window: 7d, ladder: [{epsilon: 1}, {epsilon: 4, after: 1d}]"
THREE = "window: 7d, ladder: [{epsilon: 1}, {epsilon: 4, after: 1d}, {epsilon: 6}]"
COLOURS = ("red", "green", "blue", "grey")


#: From all values, what each estimate is of, by kind and item; only those are compared.
Truth = Callable[[Sequence[object]], Mapping[tuple[str, str], float]]


@dataclass(frozen=True)
class Kind:
    """A metric, what each device records of it, and what is true of what they recorded.

    Parameters
    ----------
    line : str
        The metric in a plan, without window and ladder.
    value : callable
        A device's value, or values, from its randomness.
    truth : callable
    ladder : str
    """

    line: str
    value: Callable[[random.Random], object]
    truth: Truth
    ladder: str = LADDER


def choice(names: Sequence[object], weights: Sequence[int]) -> Callable[[random.Random], object]:
    return lambda source: source.choices(names, weights)[0]


def shares(*names: str, kind: str = "share", other: str | None = None) -> Truth:
    """Return what says how often names were recorded, and anything else as the other one."""
    items = names if other is None else (*names, other)

    def truth(values: Sequence[object]) -> dict[tuple[str, str], float]:
        known = [value if value in names else other for value in values]
        return {(kind, name): known.count(name) / len(known) for name in items}

    return truth


def length(source: random.Random) -> float:
    return 110 * source.betavariate(2, 4) - 5


def length_mean(values: Sequence[object]) -> dict[tuple[str, str], float]:
    return {("mean", ""): float(np.mean(np.clip(np.array(values, dtype=float), 0, 100)))}


def yes_share(item: str) -> Truth:
    return lambda values: {("share", item): values.count(True) / len(values)}


def category(mechanism: str, repeat: str = "{once: first}", ladder: str = LADDER) -> Kind:
    line = f"type: category, domain: [{', '.join(COLOURS)}], outside: other, repeat: {repeat}"
    truth = shares(*COLOURS, other="other")
    colours = choice((*COLOURS, "mauve"), (5, 3, 2, 1, 1))
    return Kind(f"{line}, mechanism: {mechanism}", colours, truth, ladder)


def number(mechanism: str) -> Kind:
    line = f"type: number, range: [0, 100], outside: clip, mechanism: {mechanism}"
    return Kind(line, length, length_mean)


def position(source: random.Random) -> list[float]:
    return [source.uniform(-1, 1), source.uniform(0, 1.2), source.uniform(-0.5, 0)]


def position_means(values: Sequence[object]) -> dict[tuple[str, str], float]:
    means = np.clip(np.array(values, dtype=float), -1, 1).mean(axis=0)
    return {("mean", str(place)): mean for place, mean in enumerate(means.tolist(), start=1)}


GRADES = ("bad", "ok", "good")


def ordinal(mechanism: str, kind: str) -> Kind:
    line = f"type: ordinal, values: [{', '.join(GRADES)}], mechanism: {mechanism}"
    return Kind(line, choice(GRADES, (2, 3, 4)), shares(*GRADES, kind=kind))


def survey(mechanism: str) -> Kind:
    line = f'type: survey, question: "Did you?", mechanism: {mechanism}'
    return Kind(line, choice((True, False), (3, 7)), yes_share("yes"))


SCREENS = ("map", "list", "help")


def screens(source: random.Random) -> list[str]:
    """One screen far more often than the others, so that it is selected but for the noise."""
    favourite = source.choices(SCREENS, (1, 2, 3))[0]
    return [favourite] * 20 + [source.choice(SCREENS)]


def top_item(mechanism: str) -> Kind:
    line = f"type: top_item, domain: [{', '.join(SCREENS)}], outside: list, clip: 10"
    return Kind(
        f"{line}, mechanism: {mechanism}",
        screens,
        lambda each: shares(*SCREENS)([value[0] for value in each]),
    )


def nearest_point_bounds(values: Sequence[object]) -> dict[tuple[str, str], float]:
    """Bounds of the mean where points 0 and 10 are not told apart, nor 90 and 100."""
    points = np.ceil(np.clip(np.array(values, dtype=float), 0, 100) / 10 - 0.5)
    least, most = points.copy(), points.copy()
    least[points == 1], least[points == 10] = 0, 9
    most[points == 0], most[points == 9] = 1, 10
    return {("mean", "at least"): 10 * least.mean(), ("mean", "at most"): 10 * most.mean()}


def vector(mechanism: str) -> Kind:
    line = f"type: vector, range: [-1, 1], dimensions: 3, outside: clip, mechanism: {mechanism}"
    return Kind(line, position, position_means)


KINDS: Mapping[str, Kind] = {
    "grr": category("grr"),
    "sue": category("sue"),
    "oue": category("oue"),
    "local_hashing": category("local_hashing"),
    "subset": category("{subset: {subset_size: 2}}"),
    "hadamard": category("hadamard"),
    "hadamard_blocks": category("{hadamard: {blocks: 4}}"),
    "constant": category("grr", "{constant: true}", THREE),
    "late": Kind("type: boolean", choice((True, False), (3, 7)), yes_share("true")),
    "rappor": Kind("type: string, bits: 64, cohorts: 2", choice(("home", "away"), (2, 1)),
                   shares("home", "away", kind="string"),
                   LADDER.replace("epsilon: 4", "epsilon: 8")),
    "threshold": number("threshold"),
    "sampled_bit": number("{bit_aware: sampled, bits: 6}"),
    "sampled_bits": number("{bit_aware: sampled, bits: 6, count: 2}"),
    "split_bits": number("{bit_aware: split, bits: 4}"),
    "ordinal_grr": ordinal("grr", "share"),
    "brr": ordinal("{brr: {subset_size: 1}}", "group"),
    "points": Kind(
        "type: ordinal, range: [0, 100], points: 11, outside: clip, "
        "mechanism: {brr: {subset_size: 3}}",
        length,
        nearest_point_bounds,
    ),
    "warner": survey("warner"),
    "simmons": survey("{simmons: {unrelated: 30}}"),
    "christofides": survey("{christofides: {cards: [3, 1, 90]}}"),
    "duchi": number("duchi"),
    "piecewise": number("{piecewise: {points: 33}}"),
    "hybrid": number("hybrid"),
    "square_wave": number("{square_wave: {points: 33}}"),
    "permute_and_flip": top_item("permute_and_flip"),
    "top_response": top_item("top_response"),
    "vector_bits": vector("{sampled: 2, bits: 6}"),
    "vector_thresholds": vector("{sampled: 1}"),
    "vector_grid": vector("{sampled_hybrid: {sampled: 2, points: 17}}"),
}  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """Messages that a fleet sent, and values that each of its devices recorded, by metric."""

    sent: list[Sent]
    values: Mapping[str, list[object]]


def plan_text(kinds: Mapping[str, Kind] = KINDS) -> str:
    return HEAD + "".join(f"  {name}: {{{k.line}, {k.ladder}}}\n" for name, k in kinds.items())


@cache
def every_plan(least: int = 1) -> CompiledPlan:
    """Return a plan with every type and mechanism that asks for so many reports."""
    asks = f"minimum_reports: {least}\n"
    return parse_plan(plan_text().replace("minimum_reports: 1\n", asks)).compile()


def fleet(plan: CompiledPlan, devices: int, seed: int) -> Fleet:
    """Let devices answer everything once; a third of them send the first level alone."""
    source = random.Random(seed)
    sent: list[Sent] = []
    values: dict[str, list[object]] = {metric.name: [] for metric in plan.metrics}
    for number in range(devices):
        clock = FakeClock(START + source.randrange(DAY))
        patient = number % 3 != 0
        with SeededClient(plan, seed=source.getrandbits(64), clock=clock) as client:
            publisher = client.publisher
            assert isinstance(publisher, MemoryPublisher)
            for metric in plan.metrics:
                value = _record(client, metric, source)
                if patient or metric.type != "top_item":
                    values[metric.name].append(value)
            # A top item is sent when the period is over.
            for wait in (3 * HOUR, 2 * DAY, PERIOD)[: 3 if patient else 1]:
                clock.now += wait
                client.flush()
                sent += [Sent(clock.now, message) for message in _taken(publisher)]
    return Fleet(sent, values)


def first_payload(
    metric: CompiledMetric,
    chain: bytes,
    pseudonym: bytes,
    made: random.Random,
    source: SeededSource,
) -> bytes:
    """Return a payload of the first level, of a value of the metric's kind."""
    symbol = (
        (1, 0, 0) if metric.type == "top_item" else metric.encode(KINDS[metric.name].value(made))
    )
    return metric.mechanism.draw(symbol, chain, pseudonym, source)[0]


def counts_of(metric: CompiledMetric, reports: int, seed: int) -> NDArray[np.int64]:
    source, made, mechanism = SeededSource(seed), random.Random(seed), metric.mechanism
    counts = np.zeros((mechanism.levels, mechanism.count_length), dtype=np.int64)
    for _ in range(reports):
        ids = source.words(4).reshape(2, 1, 2)
        chain, pseudonym = (row.astype("<u8").tobytes() for row in ids)
        payload = np.frombuffer(first_payload(metric, chain, pseudonym, made, source), np.uint8)
        counts[:1] += mechanism.accumulate(payload[np.newaxis], *ids, np.zeros(1, np.int64), 1)
    return counts


def _record(client: SeededClient, metric: CompiledMetric, source: random.Random) -> object:
    value = KINDS[metric.name].value(source)
    for each in value if metric.type == "top_item" and isinstance(value, list) else [value]:
        assert client.record(metric.name, each).value == "accepted", metric.name
    return value


def _taken(publisher: MemoryPublisher) -> Iterator[bytes]:
    while publisher.messages:
        yield publisher.messages.pop(0)[1]


def logged(fleet: Fleet, folder: Path) -> Path:
    return write(folder / "log", fleet.sent)


def finite(number: object) -> bool:
    return isinstance(number, float) and math.isfinite(number)
