"""A small interpreter of drawing; written from ``docs/spec/protocol.md`` alone.

Given a metric of a compiled plan, its entry in the sampler's document, a value and random bits, it
returns the payloads of all levels. It imports nothing of the library, so that what the page says is
shown to be enough.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.conformance.reference.exact import WORDS
from tests.conformance.reference.wire import bloom_positions, coin, public_hash


class Bits:
    """A stream of random bits: a little-endian number, drawn from its lowest bit on."""

    def __init__(self, stream: bytes) -> None:
        self._stream = int.from_bytes(stream, "little")
        self._left = 8 * len(stream)
        self.drawn = 0

    def draw(self, number: int) -> int:
        if number > self._left:
            raise EOFError("the given random bits are used up")
        found = self._stream & ((1 << number) - 1)
        self._stream >>= number
        self._left -= number
        self.drawn += number
        return found

    def word(self) -> int:
        return self.draw(64)

    def below(self, bound: int) -> int:
        number = (bound - 1).bit_length()
        if number == 0:
            return 0
        while True:
            found = self.draw(number)
            if found < bound:
                return found


# From a value to a symbol.


def symbol(metric: dict[str, Any], value: Any) -> Any:
    """Return the symbol of a value of the right type; None is missing, or NaN where it may be."""
    kind, missing = metric["type"], metric["missing"]
    if kind in ("category", "top_item") or (kind == "ordinal" and "domain" in metric):
        domain, outside = metric["domain"], metric["outside"]
        labels = len(domain) + (kind != "ordinal" and outside not in domain) + missing
        if value is None:
            return labels - 1
        if value in domain:
            return domain.index(value)
        return domain.index(outside) if outside in domain else len(domain)
    if kind in ("boolean", "survey"):
        return 2 if value is None else int(value)
    if kind == "string":
        return b"\0" if value is None else value.encode("utf-8", "surrogatepass")
    if kind == "vector":
        return [_scaled(metric, each) or 0.0 for each in value]
    u = None if value is None else _scaled(metric, value)
    if kind == "ordinal":
        last = metric["mechanism"]["domain_size"] - missing - 1
        if u is None:
            return last + 1 if missing else 0
        return math.ceil(u * last - 0.5)
    return u if missing or u is not None else 0.0


def _scaled(metric: dict[str, Any], value: float) -> float | None:
    low, high = metric["range"]
    if math.isnan(value):
        return None
    if value >= high:
        return 1.0
    return 0.0 if value <= low else (float(value) - low) / (high - low)


# From a symbol to what the chain is drawn from.


def _round(u: float, steps: int, bits: Bits) -> int:
    scaled = u * steps
    below = int(scaled)
    part = int((scaled - below) * 2.0**64)
    return below + (bits.word() < part) if part else below


def threshold(given: int) -> float:
    return ((given >> 11) + 0.5) / 2.0**53


def exponent(given: int, bits: int) -> int:
    return (1 + given % (2**bits - 1)).bit_length() - 1


def _input(metric: dict[str, Any], known: Any, chain: bytes, pseudonym: bytes, bits: Bits) -> Any:
    spec = metric["mechanism"]
    name = spec["name"]
    seed = public_hash(chain, f"sotto.coin:{metric['name']}")
    if name in ("sue", "oue"):
        return 1 << known
    if name == "rappor":
        cohort = public_hash(pseudonym, f"sotto.cohort:{metric['name']}") % spec["cohorts"]
        found = 0
        for place in bloom_positions(known, cohort, spec["hashes"], spec["bits"]):
            found |= 1 << place
        return found
    if name == "local_hashing":
        g, digits = spec["buckets"], 1
        while g**digits < spec["domain_size"]:
            digits += 1
        hashed, total = seed % g**digits, 0
        for _ in range(digits):
            total += (known % g) * (hashed % g)
            known, hashed = known // g, hashed // g
        return total % g
    if metric["type"] == "number":
        return _number(spec, known, seed, bits)
    if metric["type"] == "vector":
        return _vector(spec, known, seed, bits)
    return known


def _number(spec: dict[str, Any], u: float | None, seed: int, bits: Bits) -> Any:
    name = spec["name"]
    if name == "threshold":
        return 2 if u is None else int(u > threshold(seed))
    if name == "duchi":
        return 2 if u is None else _round(u, 1, bits)
    if name in ("piecewise", "hybrid", "square_wave"):
        steps = spec["points"] - 1
        return steps + 1 if u is None else _round(u, steps, bits)
    steps = 2 ** spec["bits"] - 1
    if name == "sampled_bit":
        return 2 if u is None else _round(u, steps, bits) >> exponent(seed, spec["bits"]) & 1
    if name == "sampled_bits":
        if u is None:
            return [2] * spec["count"]
        return [
            _round(u, steps, bits) >> exponent(coin(seed, i), spec["bits"]) & 1
            for i in range(spec["count"])
        ]
    if u is None:
        return 0
    point, found = _round(u, steps, bits), 0
    for place in range(spec["bits"]):
        found |= (point >> (spec["bits"] - 1 - place) & 1) << place
    return found | spec["missing"] << spec["bits"]


def _vector(spec: dict[str, Any], values: Sequence[float], seed: int, bits: Bits) -> list[int]:
    sampled, chosen = spec["sampled"], list[int]()
    for i in range(sampled):
        last = spec["dimensions"] - sampled + i
        drawn = coin(seed, i) % (last + 1)
        chosen.append(last if drawn in chosen else drawn)
    if spec["name"] == "sampled_hybrid":
        return [_round(values[place], spec["points"] - 1, bits) for place in chosen]
    answers = []
    for i, place in enumerate(chosen):
        asked = coin(seed, sampled + i)
        if spec["bits"]:
            point = _round(values[place], 2 ** spec["bits"] - 1, bits)
            answers.append(point >> exponent(asked, spec["bits"]) & 1)
        else:
            answers.append(int(values[place] > threshold(asked)))
    return answers


# From there to the outputs, the strongest level first.


def _apply(draw: dict[str, Any], known: int, word: int) -> int:
    if "rows" in draw:
        total = 0
        output = 0
        for weight, run in draw["rows"][known]:
            for _ in range(run):
                total += int(weight)
                if word < total:
                    return output
                output += 1
        raise AssertionError("a row of weights has the sum 2**64")
    keep, other = int(draw["keep"]), int(draw["other"])
    if word < keep:
        return known
    place = (word - keep) // other
    return place + (place >= known)


def _symbols(chain: dict[str, Any], known: Any, bits: Bits) -> list[int]:
    first, *rest = chain["draws"]
    if "accept" in first:
        out = [_flip([int(each) for each in first["accept"]], known, bits)]
    else:
        out = [_apply(first, known, bits.word())]
    return _weaker_symbols(rest, out, bits)


def _weaker_symbols(draws: Sequence[dict[str, Any]], out: list[int], bits: Bits) -> list[int]:
    for draw in draws:
        out.append(_apply(draw, out[-1], bits.word()))
    return out


def _flip(accept: Sequence[int], counts: Sequence[int], bits: Bits) -> int:
    left, best = list(range(len(counts))), max(counts)
    while True:
        item = left.pop(bits.below(len(left)))
        if bits.word() < accept[best - counts[item]]:
            return item


def _mask(thresholds: Sequence[int], width: int, bits: Bits) -> int:
    """Return a vector whose bit i is 1 if a random word is below threshold i."""
    if len(thresholds) == 1:
        thresholds = [thresholds[0]] * width
    planes = 64
    while planes and not any(each >> (64 - planes) & 1 for each in thresholds):
        planes -= 1
    batch = width.bit_length() + 2
    still, mask, drawn = set(range(width)), 0, 0
    for plane in range(planes):
        if plane % batch == 0:
            drawn = bits.draw(batch * width)
        for i in sorted(still):
            wanted, given = thresholds[i] >> (63 - plane) & 1, drawn >> i & 1
            if wanted != given:
                still.remove(i)
                mask |= wanted << i
        drawn >>= width
        if not still:
            break
    return mask


def _bits_chain(chain: dict[str, Any], known: int, bits: Bits) -> list[int]:
    width, ladders = chain["width"], chain["ladders"]
    last = _mask([int(each["zero"]) for each in ladders], width, bits)
    if all(int(each["one"]) + int(each["zero"]) == WORDS for each in ladders):
        last ^= known
    else:
        ones = _mask([int(each["one"]) for each in ladders], width, bits)
        last = (last & ~known) | (ones & known)
    return _weaker_bits(chain, [last], bits)


def _weaker_bits(chain: dict[str, Any], out: list[int], bits: Bits) -> list[int]:
    for step in zip(*(each["flips"] for each in chain["ladders"]), strict=True):
        out.append(out[-1] ^ _mask([int(each) for each in step], chain["width"], bits))
    return out


def _subset(width: int, size: int, bits: Bits) -> set[int]:
    left = bits.below(math.perm(width, size))
    chosen: set[int] = set()
    for last in range(width - size, width):
        left, index = divmod(left, last + 1)
        chosen.add(last if index in chosen else index)
    return chosen


def _supports(chain: dict[str, Any], known: int, output: int) -> bool:
    block, row = known % chain["blocks"], 1 + known // chain["blocks"]
    return output // chain["order"] == block and (output & row).bit_count() % 2 == 0


def _uniform(chain: dict[str, Any], bits: Bits) -> int:
    if chain["kind"] == "subset":
        return sum(1 << i for i in _subset(chain["width"], chain["size"], bits))
    return bits.draw((chain["blocks"] * chain["order"]).bit_length() - 1)


def _support_chain(chain: dict[str, Any], known: int, bits: Bits) -> list[int]:
    inside = bits.word() < int(chain["threshold"])
    if chain["kind"] == "subset":
        others = _subset(chain["width"] - 1, chain["size"] - inside, bits)
        out = sum(1 << (i + (i >= known)) for i in others) + (inside << known)
    elif inside:
        block, row = known % chain["blocks"], 1 + known // chain["blocks"]
        place = bits.draw(chain["order"].bit_length() - 1)
        if (place & row).bit_count() % 2:
            place ^= row & -row
        out = block * chain["order"] + place
    else:
        out = _uniform(chain, bits)
        while _supports(chain, known, out):
            out = _uniform(chain, bits)
    return _weaker_support(chain, [out], bits)


def _weaker_support(chain: dict[str, Any], out: list[int], bits: Bits) -> list[int]:
    for keep in chain["keeps"]:
        out.append(out[-1] if bits.word() < int(keep) else _uniform(chain, bits))
    return out


def _outputs(chain: dict[str, Any], known: Any, bits: Bits) -> list[int]:
    kind = chain["kind"]
    if kind == "answers":
        return _packed(chain, [_outputs(chain["single"], each, bits) for each in known])
    if kind == "symbols":
        return _symbols(chain, known, bits)
    return (_bits_chain if kind == "bits" else _support_chain)(chain, known, bits)


def _packed(chain: dict[str, Any], drawn: Sequence[Sequence[int]]) -> list[int]:
    return [
        sum(answer << chain["bits"] * place for place, answer in enumerate(level))
        for level in zip(*drawn, strict=True)
    ]


def payloads(
    metric: dict[str, Any],
    sampler: dict[str, Any],
    value: Any,
    chain: bytes,
    pseudonym: bytes,
    bits: Bits,
) -> list[bytes]:
    """Return the payloads of all levels, weakest first.

    ``value`` is what an app records; of a top item it is the counts of the items.
    """
    name = metric["mechanism"]["name"]
    if name == "top_response":
        best = [item for item, count in enumerate(value) if count == max(value)]
        known = best[bits.below(len(best))]
    elif name == "permute_and_flip":
        known = value
    else:
        known = _input(metric, symbol(metric, value), chain, pseudonym, bits)
    outputs = _outputs(sampler["chain"], known, bits)
    return [each.to_bytes(sampler["width"], "little") for each in reversed(outputs)]


def weaker(sampler: dict[str, Any], last: bytes, bits: Bits) -> list[bytes]:
    """Return the payloads of all levels but the last, drawn from that of the last."""
    chain, known = sampler["chain"], int.from_bytes(last, "little")
    kind = chain["kind"]
    if kind == "answers":
        single, mask = chain["single"], (1 << chain["bits"]) - 1
        parts = [known >> chain["bits"] * i & mask for i in range(chain["answers"])]
        drawn = [_weaker_symbols(single["draws"][1:], [each], bits)[1:] for each in parts]
        outputs = _packed(chain, drawn)
    elif kind == "symbols":
        outputs = _weaker_symbols(chain["draws"][1:], [known], bits)[1:]
    elif kind == "bits":
        outputs = _weaker_bits(chain, [known], bits)[1:]
    else:
        outputs = _weaker_support(chain, [known], bits)[1:]
    return [each.to_bytes(sampler["width"], "little") for each in reversed(outputs)]
