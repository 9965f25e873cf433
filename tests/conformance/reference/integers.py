"""The integers of a metric's sampler; written from ``docs/spec/protocol.md`` alone.

Nothing here imports the library. That page defines a mechanism's integers, in the section of the
same name; ``split_bits`` and the mechanisms with windows are left to the document that
``sotto plan sampler`` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import groupby
from math import floor
from typing import Any

from tests.conformance.reference.exact import WORDS, exponential, loss, of_micro, up

#: Mechanisms whose integers are only in the sampler's document.
UNEXPLAINED = frozenset({"split_bits", "piecewise", "hybrid", "square_wave", "sampled_hybrid"})
_MILLION = 1_000_000


def metric_integers(metric: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a metric, as it is in a compiled plan, in the sampler's document."""
    chain, certified, width = _MECHANISMS[metric["mechanism"]["name"]](metric)
    return {"name": metric["name"], "certified": certified, "width": width, "chain": chain}


def _amounts(metric: dict[str, Any]) -> list[int]:
    return [level["epsilon"] for level in metric["ladder"]]


def _bytes_of(size: int) -> int:
    return 1 if size <= 1 << 8 else 2 if size <= 1 << 16 else 4


# Symbols.


def _noise(size: int, p: Fraction, q: Fraction, amount: Fraction | int) -> tuple[int, int]:
    """Return keep and other of the step to a weaker amount from two probabilities."""
    bound = of_micro(amount)
    excess = p - bound * q
    other = up(WORDS * excess / (size * excess + bound - 1))
    return WORDS - (size - 1) * other, other


def _through(p: Fraction, q: Fraction, step: tuple[int, int]) -> tuple[Fraction, Fraction]:
    keep, other = (Fraction(each, WORDS) for each in step)
    return p * (keep - other) + other, q * (keep - other) + other


def _symbols(size: int, amounts: Sequence[Fraction | int]) -> tuple[dict[str, Any], list[Fraction]]:
    other = up(WORDS / (of_micro(amounts[-1]) + size - 1))
    draws = [(WORDS - (size - 1) * other, other)]
    p, q = (Fraction(each, WORDS) for each in draws[0])
    ratios = [p / q]
    for amount in reversed(amounts[:-1]):
        draws.append(_noise(size, p, q, amount))
        p, q = _through(p, q, draws[-1])
        ratios.insert(0, p / q)
    chain = {"kind": "symbols", "size": size, "draws": [_pair(each) for each in draws]}
    return chain, ratios


def _pair(draw: tuple[int, int]) -> dict[str, str]:
    return {"keep": str(draw[0]), "other": str(draw[1])}


def _one_symbol(size: int, metric: dict[str, Any]) -> tuple[dict[str, Any], list[int], int]:
    chain, ratios = _symbols(size, _amounts(metric))
    return chain, [loss(ratio) for ratio in ratios], _bytes_of(size)


def _answers(size: int, answers: int, metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    single, ratios = _symbols(size, [Fraction(each, answers) for each in _amounts(metric)])
    bits = (size - 1).bit_length()
    chain = {"kind": "answers", "answers": answers, "bits": bits, "single": single}
    return chain, [loss(ratio**answers) for ratio in ratios], -(-answers * bits // 8)


# Bits.


def _bits(
    width: int, exponents: Sequence[Fraction], *, symmetric: bool
) -> tuple[dict[str, Any], list[tuple[Fraction, Fraction]]]:
    zero = up(WORDS / (exponential(exponents[-1]) + 1))
    one = WORDS - zero if symmetric else WORDS // 2
    p, q = Fraction(one, WORDS), Fraction(zero, WORDS)
    pairs, flips = [(p, q)], []
    for exponent in reversed(exponents[:-1]):
        lack = 1 / (1 + exponential(exponent)) - q
        flips.append(up(WORDS * lack / (1 - 2 * q)))
        s = Fraction(flips[-1], WORDS)
        p, q = p + s * (1 - 2 * p), q + s * (1 - 2 * q)
        pairs.insert(0, (p, q))
    ladder = {"one": str(one), "zero": str(zero), "flips": [str(each) for each in flips]}
    return {"kind": "bits", "width": width, "ladders": [ladder]}, pairs


def _unary(metric: dict[str, Any], *, symmetric: bool) -> tuple[Any, list[int], int]:
    width = metric["mechanism"]["domain_size"]
    parts = 2 if symmetric else 1
    exponents = [Fraction(each, parts * _MILLION) for each in _amounts(metric)]
    chain, pairs = _bits(width, exponents, symmetric=symmetric)
    return chain, [loss(p * (1 - q) / (q * (1 - p))) for p, q in pairs], -(-width // 8)


def _rappor(metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    spec = metric["mechanism"]
    differing = min(2 * spec["hashes"], spec["bits"])
    exponents = [Fraction(each, differing * _MILLION) for each in _amounts(metric)]
    chain, pairs = _bits(spec["bits"], exponents, symmetric=True)
    ratios = [max(p / q, (1 - q) / (1 - p)) ** differing for p, q in pairs]
    return chain, [loss(ratio) for ratio in ratios], -(-spec["bits"] // 8)


# Support.


def _support(share: Fraction, amounts: Sequence[int]) -> tuple[dict[str, Any], list[int]]:
    def honest(amount: int) -> Fraction:
        grown = share * of_micro(amount)
        return grown / (grown + 1 - share)

    threshold = floor(WORDS * honest(amounts[-1]))
    p = Fraction(threshold, WORDS)
    found, keeps = [p], []
    for amount in reversed(amounts[:-1]):
        keeps.append(floor(WORDS * (honest(amount) - share) / (p - share)))
        p = share + (p - share) * Fraction(keeps[-1], WORDS)
        found.insert(0, p)
    certified = [loss(p * (1 - share) / ((1 - p) * share)) for p in found]
    return {"threshold": str(threshold), "keeps": [str(each) for each in keeps]}, certified


def _subset(metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    spec = metric["mechanism"]
    width, size = spec["domain_size"], spec["subset_size"]
    integers, certified = _support(Fraction(size, width), _amounts(metric))
    return {"kind": "subset", "width": width, "size": size} | integers, certified, -(-width // 8)


def _hadamard(metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    spec = metric["mechanism"]
    blocks = spec["blocks"]
    rows = -(-spec["domain_size"] // blocks)
    order = 1
    while order <= rows:
        order *= 2
    integers, certified = _support(Fraction(1, 2 * blocks), _amounts(metric))
    chain = {"kind": "hadamard", "blocks": blocks, "order": order} | integers
    return chain, certified, _bytes_of(blocks * order)


# Rows.

Rows = list[list[int]]


def _ratio(rows: Sequence[Sequence[Fraction]]) -> Fraction:
    columns = list(zip(*rows, strict=True))
    return max(max(column) / min(column) for column in columns if max(column))


def _applied(rows: Sequence[Sequence[Fraction]], step: Any) -> list[list[Fraction]]:
    if isinstance(step, tuple):
        keep, other = (Fraction(each, WORDS) for each in step)
        return [[entry * (keep - other) + other for entry in row] for row in rows]
    shares = [[Fraction(each, WORDS) for each in row] for row in step]
    columns = list(zip(*shares, strict=True))
    return [
        [sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in columns]
        for row in rows
    ]


def _from_rows(
    strongest: Rows, amounts: Sequence[int], unrelated: Fraction | None = None
) -> tuple[dict[str, Any], list[int], int]:
    """Return the chain below rows: uniform noise, or answers to another question (Simmons)."""
    size = len(strongest[0])
    rows: list[list[Fraction]] = [[Fraction(each, WORDS) for each in row] for row in strongest]
    draws: list[Any] = [strongest]
    ratios = [_ratio(rows)]
    for amount in reversed(amounts[:-1]):
        step: Any
        bound = of_micro(amount)
        if unrelated is None:
            columns = list(zip(*rows, strict=True))
            excess = max(max(column) - bound * min(column) for column in columns)
            other = up(WORDS * excess / (size * excess + bound - 1))
            step = WORDS - (size - 1) * other, other
        else:
            (no_no, yes_no), (no_yes, yes_yes) = rows
            needs = ((yes_yes - bound * yes_no, unrelated), (no_no - bound * no_yes, 1 - unrelated))
            noise = max(excess / (excess + share * (bound - 1)) for excess, share in needs)
            to_yes, to_no = up(noise * unrelated * WORDS), up(noise * (1 - unrelated) * WORDS)
            step = [[WORDS - to_yes, to_yes], [to_no, WORDS - to_no]]
        draws.append(step)
        rows = _applied(rows, step)
        ratios.insert(0, _ratio(rows))
    shown = [_pair(each) if isinstance(each, tuple) else {"rows": _runs(each)} for each in draws]
    chain = {"kind": "symbols", "size": size, "draws": shown}
    return chain, [loss(ratio) for ratio in ratios], _bytes_of(size)


def _runs(rows: Rows) -> list[list[list[Any]]]:
    return [[[str(weight), len(list(run))] for weight, run in groupby(row)] for row in rows]


def _brr(metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    spec = metric["mechanism"]
    missing, size = spec["missing"], spec["subset_size"]
    points = spec["domain_size"] - missing
    others = points if missing else points - size
    low = up((WORDS + size - 1) / (size * of_micro(_amounts(metric)[-1]) + others))
    high, left = divmod(WORDS - others * low, size)
    rows = []
    for x in range(points):
        row = [low] * points
        first = min(max(x - size // 2, 0), points - size)
        for number in range(size):
            row[first + number] = high + (number < left)
        rows.append(row + [size * low] * missing)
    if missing:
        rows.append([low] * points + [WORDS - points * low])
    return _from_rows(rows, _amounts(metric))


def _survey(metric: dict[str, Any], design: list[list[Fraction]], **more: Any) -> Any:
    amounts = _amounts(metric)
    cost = min(amounts[-1], loss(_ratio(design)))
    return _from_rows(_rounded(design, cost), amounts, **more)


def _rounded(rows: Sequence[Sequence[Fraction]], amount: int) -> Rows:
    whole = WORDS * WORDS
    fine = [[floor(entry * whole) for entry in row] for row in rows]
    bound = floor(of_micro(amount) * whole)
    columns = list(zip(*fine, strict=True))
    used = [any(column) for column in columns]
    excess = Fraction(
        max(max(column) * whole - bound * min(column) for column in columns), whole * WORDS
    )
    exact = Fraction(bound, whole)
    lack = excess + (exact + 1) * (1 + Fraction(1, 1 << 30))
    share = 0
    if lack > 0:
        share = up(whole * lack / (excess + WORDS * (exact - 1) / sum(used)))
    out = []
    for row in fine:
        noise = share // sum(used)
        mixed = [
            entry * (whole - share) // whole + noise if place else 0
            for entry, place in zip(row, used, strict=True)
        ]
        grains = [entry // WORDS for entry in mixed]
        order = sorted(
            (place for place, is_used in enumerate(used) if is_used),
            key=lambda place: (-(mixed[place] % WORDS), place),
        )
        for place in order[: WORDS - sum(grains)]:
            grains[place] += 1
        out.append(grains)
    return out


def _warner(metric: dict[str, Any]) -> Any:
    odds = of_micro(_amounts(metric)[-1])
    p = odds / (1 + odds)
    return _survey(metric, [[p, 1 - p], [1 - p, p]])


def _simmons(metric: dict[str, Any]) -> Any:
    y = Fraction(metric["mechanism"]["unrelated"], 100)
    asked = (of_micro(_amounts(metric)[-1]) - 1) * min(y, 1 - y)
    p = asked / (1 + asked)
    b = (1 - p) * y
    a = p + b
    return _survey(metric, [[1 - b, b], [1 - a, a]], unrelated=y)


def _christofides(metric: dict[str, Any]) -> Any:
    cards = metric["mechanism"]["cards"]
    row = [Fraction(each, sum(cards)) for each in cards]
    return _survey(metric, [row, row[::-1]])


# Selection.


def _permute_and_flip(metric: dict[str, Any]) -> tuple[Any, list[int], int]:
    spec, amounts = metric["mechanism"], _amounts(metric)
    items, clip = spec["domain_size"], spec["clip"]

    def extremes(threshold: int) -> tuple[Fraction, Fraction]:
        x = Fraction(threshold, WORDS)
        return (1 - (1 - x) ** items) / (items * x), x / items

    low, high = 1, WORDS
    while low < high:
        middle = (low + high) // 2
        most, least = extremes(middle)
        low, high = (low, middle) if most <= of_micro(amounts[-1]) * least else (middle + 1, high)
    accept = [WORDS, *(_power(low, gap, clip) for gap in range(1, clip)), low]
    p, q = extremes(low)
    ratios, draws = [p / q], []
    for amount in reversed(amounts[:-1]):
        draws.append(_noise(items, p, q, amount))
        p, q = _through(p, q, draws[-1])
        ratios.insert(0, p / q)
    shown = [{"accept": list(map(str, accept))}, *map(_pair, draws)]
    chain = {"kind": "symbols", "size": items, "draws": shown}
    return chain, [loss(ratio) for ratio in ratios], _bytes_of(items)


def _power(last: int, gap: int, clip: int) -> int:
    """Return 2^64 (last / 2^64)^(gap / clip), rounded to the nearest integer."""
    # The nearest n has (2n - 1)^clip at most (2 · 2^64)^clip (last / 2^64)^gap.
    low, high = last, WORDS
    bound = last**gap * (1 << clip) * WORDS ** (clip - gap)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if (2 * middle - 1) ** clip <= bound else (low, middle - 1)
    return low


_MECHANISMS: dict[str, Any] = {
    "grr": lambda metric: _one_symbol(metric["mechanism"]["domain_size"], metric),
    "top_response": lambda metric: _one_symbol(metric["mechanism"]["domain_size"], metric),
    "local_hashing": lambda metric: _one_symbol(metric["mechanism"]["buckets"], metric),
    "threshold": lambda metric: _one_symbol(2 + metric["missing"], metric),
    "sampled_bit": lambda metric: _one_symbol(2 + metric["missing"], metric),
    "duchi": lambda metric: _one_symbol(2 + metric["missing"], metric),
    "sampled_bits": lambda metric: _answers(
        2 + metric["missing"], metric["mechanism"]["count"], metric
    ),
    "sampled_vector": lambda metric: _answers(2, metric["mechanism"]["sampled"], metric),
    "sue": lambda metric: _unary(metric, symmetric=True),
    "oue": lambda metric: _unary(metric, symmetric=False),
    "rappor": _rappor,
    "subset": _subset,
    "hadamard": _hadamard,
    "brr": _brr,
    "warner": _warner,
    "simmons": _simmons,
    "christofides": _christofides,
    "permute_and_flip": _permute_and_flip,
}
