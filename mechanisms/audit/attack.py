"""Attack what makes reports, of a device or a batch, and bound its loss from below.

An attack looks at chains by *views*: what is known of their mechanism, and what other chains have
shown.

A *view* is a function of what is seen of chains. The first ones follow from the exact channels.
The others look at single bits and bytes, of one level or of all, and at a linear score of all bits,
so that they also see what the channels do not explain: a bit that should say nothing, and does.
Which bits, and with which weights, is learnt from chains whose inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from mechanisms.arrays import Bools, Bytes, Floats, Ints, Words
from mechanisms.audit.guessing import PART, Attack, Quantiles, best_rule, fair_bits, key_of
from mechanisms.audit.reports import Sampler, column_of
from mechanisms.base import Mechanism
from mechanisms.errors import check_int
from mechanisms.estimators.counting import grouped_bit_sums
from mechanisms.randomness import Source

#: Chains drawn at a time, and bytes of their payloads.
_BLOCK, _BYTES = 1 << 15, 1 << 23
#: Bytes of payloads from which a rule is learnt, and the fewest chains where they are wide.
_LEARNT, _FEWEST = 1 << 26, 1000
#: So many inputs of either kind are as many as anybody should wait for.
MAX_TRIALS = 50_000_000
#: Bits, or bytes, that are compared at most.
_AT_ONCE = 1 << 24
#: How many standard deviations a share may be too large by chance, where bits are compared, and
#: by how many a feature of a linear score differs between the inputs.
_SURE = 3.0
#: Features of a linear score, and chains that are regressed upon, at most.
_FEATURES, _ROWS = 64, 1 << 14
#: The weight of the squared norm, in chains; Newton's steps, and how small the last one is.
_RIDGE, _STEPS, _SMALL = 1.0, 12, 1e-4


def attack(
    mechanism: Mechanism,
    sampler: Sampler,
    source: Source,
    *,
    trials: int = 200_000,
    confidence: float = 0.95,
    levels: int | None = None,
    pair: tuple[Any, Any] | None = None,
) -> Attack:
    """Distinguish two inputs by whole chains, as somebody would who sees every level.

    The attacker knows the mechanism and the public coins of every chain. A fifth of the chains,
    less where they are very wide, teaches the rule; the later ones count.

    Parameters
    ----------
    sampler : Sampler
        Makes the reports: a device's (``sotto_cli.simulation.sampler``), or :func:`.batch_sampler`.
    source : Source
        Draws the secrets, and what a batch draws; in production :class:`.SystemSource`.
    trials : int
        At least 10: how many chains of each input are drawn, on average. A fair secret bit decides
        of each of twice as many.
    confidence : float in (0, 1)
        The bound is above the true loss with probability ``1 - confidence`` at most.
    levels : int, optional
        The levels that are released, from the weakest on; all by default.
    pair : optional
        The inputs; by default those with the largest certified loss.

    Examples
    --------
    >>> from mechanisms.audit.reports import batch_sampler
    >>> from mechanisms.registry import build
    >>> from mechanisms.testing import SeededSource
    >>> grr = build({"name": "grr", "domain_size": 4}, [500_000, 1_000_000], "colour")
    >>> found = attack(grr, batch_sampler(grr), SeededSource(1), trials=50_000)
    >>> 0.95 < found.epsilon < 1.01
    True
    """
    check_int("trials", trials, 10, MAX_TRIALS)
    shown = mechanism.levels if levels is None else levels
    check_int("levels", shown, 1, mechanism.levels)
    inputs = mechanism.worst_inputs(shown - 1) if pair is None else pair

    def seen(secrets: Any) -> Seen:
        reports = sampler(inputs, secrets.astype(np.int64), source)
        return Seen(mechanism, inputs, reports.payloads[:, :shown], reports.chains)

    row = mechanism.levels * mechanism.payload_width
    part = min(2 * trials // PART, max(_FEWEST, _LEARNT // row))
    secrets = fair_bits(2 * part, source)
    first, second = (seen(half) for half in np.split(secrets, 2))
    views = views_of(first, secrets[:part])
    keys = {name: np.concatenate([view(first), view(second)]) for name, view in views.items()}
    name, rule = best_rule(keys, secrets)
    del first, second, keys
    right = guesses = 0
    left, block = 2 * trials - 2 * part, max(64, min(_BLOCK, _BYTES // row))
    for start in range(0, left, block):
        secrets = fair_bits(min(block, left - start), source)
        counts = rule.score(views[name](seen(secrets)), secrets)
        right, guesses = right + counts[0], guesses + counts[1]
    return Attack(right, guesses, name, 2 * trials, confidence)


@dataclass(frozen=True, eq=False)
class Seen:
    """Chains that hide one of two values, as an attacker sees them who knows the mechanism.

    ``payloads`` are ``(n, levels, payload_width)``; public coins are hashed from ``chains``, their
    ids. Values that are rounded at random do not always have the ratios of their reports.
    """

    mechanism: Mechanism
    pair: tuple[Any, Any]
    payloads: Bytes
    chains: Words
    _ratios: dict[int, Floats] = field(default_factory=dict)

    def ratio(self, level: int) -> Floats:
        """How much likelier reports of a level are from the second value: ``(n,)`` logarithms.

        By its exact channel, e^-1000 for what is impossible; 0 for a report that no value has,
        from a faulty sampler.
        """
        level %= self.payloads.shape[1]
        if level not in self._ratios:
            reports, out = self.payloads[:, level], np.zeros(len(self.payloads))
            possible = self.mechanism.valid(reports)
            if possible.any():
                out[possible] = self.mechanism.log_ratios(
                    self.pair, reports[possible], self.chains[possible], level
                )
            self._ratios[level] = np.nan_to_num(np.clip(out, -1000, 1000))
        return self._ratios[level]

    @cached_property
    def ratios(self) -> Floats:
        """Those of all levels, ``(n, levels)``."""
        return np.stack([self.ratio(level) for level in range(self.payloads.shape[1])], axis=1)

    @cached_property
    def answers(self) -> Ints:
        """The symbols that are reported, ``(n, levels, answers)``, if reports are symbols."""
        return self.mechanism.answers(self.payloads)

    @cached_property
    def truths(self) -> Ints:
        """Answers that public coins make of both values, ``(n, 2, answers)``."""
        columns = (
            column_of(self.pair, np.full(len(self.chains), side, dtype=np.int64)) for side in (0, 1)
        )
        return np.stack([self.mechanism.truths(each, self.chains) for each in columns], axis=1)

    @cached_property
    def planes(self) -> Bytes:
        """The bytes of all levels, and in what every level differs from the one below it."""
        changes = self.payloads[:, 1:] ^ self.payloads[:, :-1]
        return np.concatenate([self.payloads, changes], axis=1).reshape(len(self.payloads), -1)

    @cached_property
    def numbers(self) -> Floats:
        """Views of all levels that are no bits: ratios, and which input every answer is that of."""
        if self.answers.shape[2] < 2:
            return self.ratios
        one, other = self.truths[:, None, 0], self.truths[:, None, 1]
        agreed = (self.answers == other).astype(float) - (self.answers == one)
        return np.concatenate([self.ratios, agreed.reshape(len(agreed), -1)], axis=1)


View: TypeAlias = "Callable[[Seen], Words]"


def views_of(seen: Seen, secrets: Bools) -> dict[str, View]:
    """Return views, the most natural one first, learnt from chains and the bits behind them."""
    views: dict[str, View] = {"the last level": _number(seen, lambda seen: seen.ratio(-1))}
    if seen.payloads.shape[1] > 1:
        views["all levels"] = lambda seen: key_of(np.rint(seen.ratios * 1e6).astype(np.int64))
        views["the sum of all levels"] = _number(seen, lambda seen: seen.ratios.sum(axis=1))
    if seen.answers.shape[2] == 1:
        views["the public coins and the answers"] = lambda seen: key_of(
            np.concatenate([seen.truths, seen.answers], axis=1)[:, :, 0]
        )
    views["the bytes"] = lambda seen: key_of(_words(seen.payloads))
    for word in (0, 1):
        # Whoever draws an id and an answer from the same bits shows them.
        views[f"the bytes and word {word + 1} of the id"] = partial(_beside_id, word)
    views |= _single(seen, secrets)
    score = LinearScore.fit(seen.planes, seen.numbers, secrets)
    views["a linear score of all bits"] = _number(
        seen, lambda seen: score(seen.planes, seen.numbers)
    )
    return views


def _number(seen: Seen, number: Callable[[Seen], Floats]) -> View:
    """Return the cells of a number, their edges those of the chains that are learnt from."""
    quantiles = Quantiles.of(number(seen))
    return lambda seen: quantiles.keys(number(seen))


def _single(seen: Seen, secrets: Bools) -> dict[str, View]:
    """Return the most telling bit and byte of a level, and those of all levels together."""
    n, levels, width = seen.payloads.shape
    every = list(range(levels))
    ones = grouped_bit_sums(seen.payloads.reshape(n, levels * width), secrets.astype(int), 2)
    totals = np.bincount(secrets, minlength=2)[:, None]
    best = int(_worth(np.stack([ones, totals - ones], axis=2)).argmax())
    level, bit = divmod(best, 8 * width)
    views = {f"bit {bit} of level {level + 1}": _bits([level], bit)}
    some = slice(max(1000, _AT_ONCE // (levels * width)))
    cells = seen.payloads.reshape(n, levels * width)[some].astype(np.int64)
    level, byte = divmod(_best_column(cells, secrets[some], 256), width)
    views[f"byte {byte} of level {level + 1}"] = _bytes([level], byte)
    if levels > 1:
        some = slice(max(1000, _AT_ONCE // (8 * width)))
        cells = np.zeros((len(secrets[some]), 8 * width), dtype=np.int64)
        for level in every:
            bits = np.unpackbits(seen.payloads[some, level], axis=1, bitorder="little")
            cells = cells << 1 | bits
        bit = _best_column(cells, secrets[some], 1 << levels)
        views[f"bit {bit} of all levels"] = _bits(every, bit)
        # Payloads of a byte have these bytes alone.
        for column in sorted({byte, bit >> 3}) if width > 1 else ():
            views[f"byte {column} of all levels"] = _bytes(every, column)
    return views


def _bits(levels: list[int], bit: int) -> View:
    def view(seen: Seen) -> Words:
        return key_of(seen.payloads[:, levels, bit >> 3].astype(np.int64) >> (bit & 7) & 1)

    return view


def _bytes(levels: list[int], column: int) -> View:
    return lambda seen: key_of(seen.payloads[:, levels, column].astype(np.int64))


def _best_column(cells: Ints, secrets: Bools, size: int) -> int:
    """Return which column of cells below ``size`` distinguishes the secrets best."""
    columns = cells.shape[1]
    places = cells + size * np.arange(columns) + size * columns * secrets[:, None]
    table = np.bincount(places.ravel(), minlength=2 * columns * size)
    return int(_worth(table.reshape(2, columns, size)).argmax())


def _worth(table: Ints) -> Floats:
    """Return for each column of ``(2, columns, cells)`` counts how sure a guess can be at best.

    The lower limit is E. B. Wilson's (1927): cheaper than the exact one, to choose by.
    """
    total, square = np.maximum(table.sum(axis=0), 1), _SURE**2
    share = table.max(axis=0) / total
    spread = _SURE * np.sqrt(share * (1 - share) / total + square / (4 * total**2))
    limit: Floats = (share + square / (2 * total) - spread) / (1 + square / total)
    return np.asarray(limit.max(axis=1))


def _beside_id(word: int, seen: Seen) -> Words:
    leading = (seen.chains[:, word : word + 1] >> np.uint64(58)).astype(np.int64)
    return key_of(np.concatenate([_words(seen.payloads), leading], axis=1))


def _words(payloads: Bytes) -> Ints:
    """Return the bytes of every chain as ``(n, k)`` words, padded with zeros."""
    flat = payloads.reshape(len(payloads), -1)
    padded = np.zeros((len(flat), -(-flat.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.int64)


@dataclass(frozen=True, eq=False)
class LinearScore:
    """The logarithm of a likelihood ratio, as a weighted sum over some bits, then some numbers."""

    bits: Ints
    numbers: Ints
    weights: Floats

    @staticmethod
    def fit(planes: Bytes, numbers: Floats, secrets: Bools) -> LinearScore:
        """Learn a score from chains whose inputs are known: ``(n, bytes)`` of bits, and numbers.

        Features that by themselves do not differ are left out, so that their noise is too; the
        others get the weights of a logistic regression with a small ridge penalty.
        """
        sides = np.maximum(np.bincount(secrets, minlength=2), 1)[:, None]
        shares = grouped_bit_sums(planes, secrets.astype(int), 2) / sides
        bits = _telling(shares, shares * (1 - shares) / sides)
        of_side = np.stack([~secrets, secrets]) / sides
        means = of_side @ numbers
        chosen = _telling(means, (of_side @ numbers**2 - means**2) / sides)
        features = _features(planes[:_ROWS], numbers[:_ROWS], bits, chosen)
        return LinearScore(bits, chosen, _regress(features, secrets[:_ROWS]))

    def __call__(self, planes: Bytes, numbers: Floats) -> Floats:
        """Return the scores of ``n`` chains, but for a constant."""
        return _features(planes, numbers, self.bits, self.numbers) @ self.weights


def _features(planes: Bytes, numbers: Floats, bits: Ints, chosen: Ints) -> Floats:
    found = planes[:, bits >> 3] >> (bits & 7).astype(np.uint8) & 1
    return np.concatenate([found.astype(float), numbers[:, chosen]], axis=1)


def _telling(means: Floats, variances: Floats) -> Ints:
    """Return the features, columns of ``(2, k)`` means, that differ most, if they differ enough."""
    sizes = np.abs(means[1] - means[0]) / np.sqrt(np.maximum(variances.sum(axis=0), 1e-12))
    order: Ints = np.argsort(-sizes, kind="stable")[:_FEATURES]
    return order[: int((sizes > _SURE).sum())]


def _regress(features: Floats, secrets: Bools) -> Floats:
    """Return the weights of a penalised logistic regression, by Newton's method."""
    from scipy.special import expit

    n, k = features.shape
    if not k:
        return np.empty(0)
    design = np.concatenate([features, np.ones((n, 1))], axis=1)
    weights = np.zeros(k + 1)
    for _ in range(_STEPS):
        likely = expit(design @ weights)
        slope = design.T @ (secrets - likely) - _RIDGE * weights
        curve = (design * (likely * (1 - likely))[:, None]).T @ design + _RIDGE * np.eye(k + 1)
        step = np.linalg.solve(curve, slope)
        weights = weights + step
        if np.abs(step).max() < _SMALL:
            break
    return weights[:k]
