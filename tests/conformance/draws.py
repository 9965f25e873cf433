"""Drawing: from a value and given random bits to the payloads of every level."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

from mechanisms.errors import ParameterError
from mechanisms.number import grid
from sotto.plan.compiled import CompiledMetric, CompiledPlan
from tests.conformance import files
from tests.conformance.given import GivenBits, UsedUpError
from tests.conformance.reference import drawing
from tests.conformance.values import numbers_in

#: Streams of each value that are near the integers that decide.
_STREAMS = 5
#: Bytes that no drawing of these plans needs more of.
_PLENTY = 1 << 14


def _values() -> dict[str, list[Any]]:
    """Return what every metric of plan "every" is drawn from; of top items counts of a period."""
    found: dict[str, list[Any]] = {}
    for each in files.read("draws")["vectors"]:
        of_metric = found.setdefault(each["metric"], [])
        if each["value"] not in of_metric:
            of_metric.append(each["value"])
    return found


class _Borders:
    """Draws any bits, but of words some that are next to the integers that decide.

    ``integers`` are of one level after another, the strongest first, or the same for all;
    ``rounding`` are those with which a number is rounded, by a word that is drawn alone.
    """

    def __init__(self, seed: int, integers: list[list[int]], rounding: list[int]) -> None:
        self._random, self._integers = random.Random(seed), integers
        self._rounding = rounding
        self.drawn, self.size = 0, 0

    def bits(self, n: int) -> int:
        found = self._random.getrandbits(n)
        if n % 64 == 0 and self._integers:
            by_level = [self._rounding] if n == 64 and self._rounding else self._integers
            for level in range(n // 64):
                if self._random.random() < 0.75:
                    near = self._random.choice(by_level[level % len(by_level)])
                    word = min(max(near - self._random.randrange(2), 0), 2**64 - 1)
                    found &= ~((2**64 - 1) << 64 * level)
                    found |= word << 64 * level
        self.drawn |= found << self.size
        self.size += n
        return found

    def words(self, n: int) -> Any:
        raise NotImplementedError

    @property
    def stream(self) -> bytes:
        return self.drawn.to_bytes(-(-self.size // 8), "little")


def integers_in(document: Any) -> Iterator[int]:
    """Yield the integers of a sampler, and the sums of those that follow another in a draw."""
    if isinstance(document, dict):
        if "keep" in document:
            keep, other = int(document["keep"]), int(document["other"])
            yield from (keep, keep + other, keep + 2 * other)
        else:
            for each in document.values():
                yield from integers_in(each)
    elif isinstance(document, list):
        if document and isinstance(document[0], list) and isinstance(document[0][0], str):
            total = 0
            for weight, run in document:
                for _ in range(run):
                    total += int(weight)
                    yield total
        else:
            for each in document:
                yield from integers_in(each)
    elif isinstance(document, str) and document.isdecimal():
        yield int(document)


def _planes(chain: dict[str, Any], below: int) -> bytes:
    """Return bits by which every bit of a vector is compared to the end: equal, or one below."""
    width, ladders = chain["width"], chain["ladders"]
    symmetric = all(int(each["one"]) + int(each["zero"]) == 1 << 64 for each in ladders)
    names = ["zero"] if symmetric else ["zero", "one"]
    rows = [[int(each[name]) for each in ladders] for name in names]
    flips = [each["flips"] for each in ladders]
    rows += [list(map(int, step)) for step in zip(*flips, strict=True)]
    out, size, batch = 0, 0, width.bit_length() + 2
    for row in rows:
        thresholds = (row * width)[:width]
        planes = 64
        while not any(each >> (64 - planes) & 1 for each in thresholds):
            planes -= 1
        for plane in range(-(-planes // batch) * batch):
            if plane < 64:
                for i, each in enumerate(thresholds):
                    out |= (each - below >> (63 - plane) & 1) << size + i
            size += width
    return out.to_bytes(-(-size // 8), "little")


def _streams(
    metric: CompiledMetric, sampler: dict[str, Any], number: int, value: Any
) -> list[bytes]:
    chain = sampler["chain"].get("single", sampler["chain"])
    integers = [list(integers_in(each)) for each in chain.get("draws", [chain])]
    made = random.Random(f"{metric.name} {number}")
    rounding = _rounding(metric, value)
    found = [made.randbytes(_PLENTY), bytes(_PLENTY)]
    for attempt in range(_STREAMS):
        given = _Borders(made.getrandbits(64), integers, rounding)
        _drawn(metric, value, bytes(16), bytes(16), given)
        found.append(given.stream + bytes(_PLENTY))
        if attempt < 2 and sampler["chain"]["kind"] == "bits":
            found.append(
                bytes(8 * len(rounding)) + _planes(sampler["chain"], attempt) + bytes(_PLENTY)
            )
    if sampler["chain"]["kind"] not in ("hadamard", "subset") and metric.type != "top_item":
        found.append(b"\xff" * _PLENTY)
    return found


def _rounding(metric: CompiledMetric, value: Any) -> list[int]:
    """Return the integers with which the numbers of a value are rounded."""
    spec = metric.spec
    if metric.type not in ("number", "vector") or value is None or spec["name"] == "threshold":
        return []
    bits, points = spec.get("bits"), spec.get("points", 2)
    if bits == 0:
        return []
    steps = 2**bits - 1 if isinstance(bits, int) else int(str(points)) - 1
    symbol: Any = metric.encode(value)
    grains = [grid.split(u, steps)[1] for u in (symbol if metric.type == "vector" else [symbol])]
    return [each for each in grains if each]


def _drawn(
    metric: CompiledMetric, value: Any, chain: bytes, pseudonym: bytes, source: Any
) -> list[bytes]:
    symbol = tuple(value) if metric.type == "top_item" else metric.encode(numbers_in(value))
    return list(metric.mechanism.draw(symbol, chain, pseudonym, source))


def write() -> None:
    plan = CompiledPlan.from_json(files.plan("every"))
    of_metric, values = samplers("every"), _values()
    vectors: list[dict[str, Any]] = []
    for metric in plan.metrics:
        for number, value in enumerate(values[metric.name]):
            for stream in _streams(metric, of_metric[metric.name], number, value):
                made = random.Random(f"{metric.name} {number} {len(vectors)}")
                chain, pseudonym = made.randbytes(16), made.randbytes(16)
                source = GivenBits(stream)
                payloads = _drawn(metric, value, chain, pseudonym, source)
                vectors.append(
                    {
                        "metric": metric.name,
                        "value": value,
                        "chain": chain.hex(),
                        "pseudonym": pseudonym.hex(),
                        "random": _used(stream, source),
                        "bits": source.drawn,
                        "payloads": [each.hex() for each in payloads],
                    }
                )
    files.write("draws", vectors=vectors, weaker=_weaker_vectors(plan, values))


def _weaker_vectors(plan: CompiledPlan, values: dict[str, list[Any]]) -> list[dict[str, Any]]:
    vectors = []
    for metric in plan.metrics:
        made = random.Random(f"weaker {metric.name}")
        for _ in range(2):
            value = made.choice(values[metric.name])
            last = _drawn(
                metric, value, bytes(16), bytes(16), _Borders(made.getrandbits(64), [], [])
            )
            source = GivenBits(stream := made.randbytes(_PLENTY))
            payloads = metric.mechanism.weaker(last[-1], source)
            vectors.append(
                {
                    "metric": metric.name,
                    "last": last[-1].hex(),
                    "random": _used(stream, source),
                    "bits": source.drawn,
                    "payloads": [each.hex() for each in payloads],
                }
            )
    return vectors


def _used(stream: bytes, source: GivenBits) -> str:
    return stream[: -(-source.drawn // 8)].hex()


def samplers(plan: str) -> dict[str, dict[str, Any]]:
    """Return the entries of ``samplers.json`` by metric."""
    [found] = [each for each in files.read("samplers")["samplers"] if each["plan"] == plan]
    return {each["name"]: each for each in found["metrics"]}


def check() -> Iterator[str | None]:
    """Draw every vector with the library, and by the page."""
    plan = CompiledPlan.from_json(files.plan("every"))
    documents = {each["name"]: each for each in json.loads(files.plan("every"))["metrics"]}
    of_metric = samplers("every")
    content = files.read("draws")
    for each in content["vectors"] + content["weaker"]:
        name, stream = each["metric"], bytes.fromhex(each["random"])
        metric, ours, theirs = plan.metric(name), GivenBits(stream), drawing.Bits(stream)
        try:
            if "last" in each:
                last = bytes.fromhex(each["last"])
                mine = [*metric.mechanism.weaker(last, ours)]
                paged = drawing.weaker(of_metric[name], last, theirs)
            else:
                ids = bytes.fromhex(each["chain"]), bytes.fromhex(each["pseudonym"])
                mine = _drawn(metric, each["value"], *ids, ours)
                value = numbers_in(each["value"])
                paged = drawing.payloads(documents[name], of_metric[name], value, *ids, theirs)
        except (UsedUpError, EOFError, ParameterError) as error:
            yield f"metric {name}: {error}"
            continue
        expected = each["payloads"], each["bits"]
        got = [payload.hex() for payload in mine], ours.drawn
        said = [payload.hex() for payload in paged], theirs.drawn
        good = got == expected and said == expected
        yield None if good else f"metric {name}: {got}, and by the page {said}"
