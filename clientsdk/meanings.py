"""What a payload says, in words that its own device can show to its user.

A payload is a randomized output: it says little about the value behind it, and that is the point.
It is shown and never logged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from mechanisms.ladders import Ladder

if TYPE_CHECKING:
    from collections.abc import Callable

    from mechanisms.number.sampled_bit import SampledBitLadder
    from sotto.plan.compiled import CompiledMetric
    from sotto.wire.format import Row


def meaning(metric: CompiledMetric, row: Row) -> str:
    """Return what the payload of a row says.

    Examples
    --------
    >>> from clientsdk.testing import small_plan
    >>> from sotto.wire.format import Row
    >>> (colour,) = small_plan().metrics
    >>> meaning(colour, Row(0, bytes(16), bytes(16), 0, b"\\x01"))
    "'green'"
    """
    mechanism = metric.mechanism
    if not isinstance(mechanism, Ladder):
        return mechanism.describe(row.payload, row.chain, row.pseudonym, metric.context())
    name = mechanism.name
    said = _BY_MECHANISM.get(name)
    if said is not None:
        return said(metric, row)
    if metric.labels and metric.mechanism.payload_width <= 4 and _output(row) < len(metric.labels):
        return repr(metric.labels[_output(row)])
    if metric.type == "vector" or metric.mechanism.payload_width > 4:
        return f"answers to be read together, {row.payload.hex()}"
    return f"answer number {_output(row)} of its mechanism, {name}"


def _output(row: Row) -> int:
    return int.from_bytes(row.payload, "little")


def _threshold(metric: CompiledMetric, row: Row) -> str:
    from mechanisms.coins import coin_domain, hash_id
    from mechanisms.number.grid import threshold_of

    if _output(row) == 2:
        return "missing"
    low, high = metric.range or (0.0, 1.0)
    share = threshold_of(hash_id(row.chain, coin_domain(metric.name)))
    side = "above" if _output(row) else "at most"
    return f"{side} {low + share * (high - low):.6g}{_unit(metric)}"


def _duchi(metric: CompiledMetric, row: Row) -> str:
    low, high = metric.range or (0.0, 1.0)
    ends = (f"{low:g}{_unit(metric)}", f"{high:g}{_unit(metric)}", "missing")
    return ends[min(_output(row), 2)]


def _sampled_bit(metric: CompiledMetric, row: Row) -> str:
    ladder = cast("SampledBitLadder", metric.mechanism)
    if _output(row) == 2:
        return "missing"
    place = ladder.bits - ladder.exponent(row.chain)
    return f"bit {place} of {ladder.bits}, the highest first, is {_output(row)}"


def _unit(metric: CompiledMetric) -> str:
    return f" {metric.unit}" if metric.unit else ""


_BY_MECHANISM: dict[str, Callable[[CompiledMetric, Row], str]] = {
    "threshold": _threshold,
    "duchi": _duchi,
    "sampled_bit": _sampled_bit,
}
