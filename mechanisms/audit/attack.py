"""Attack a mechanism through its own sampler, and bound its loss from below."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from mechanisms.arrays import Bools, Bytes, Floats, Ints, Words
from mechanisms.audit.guessing import PART, Attack, Guesses, best_rule, column_of, fair_bits
from mechanisms.audit.seen import Seen, views_of
from mechanisms.base import NO_ID, Mechanism
from mechanisms.errors import ParameterError
from mechanisms.estimators.counting import grouped_bit_sums, grouped_counts
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below

#: Chains drawn at a time, and bytes of their payloads.
_BLOCK, _BYTES = 1 << 15, 1 << 23
#: Bytes of payloads from which a rule is learnt, and the fewest chains where they are wide.
_LEARNT, _FEWEST = 1 << 26, 1000
#: So many inputs of either kind are as many as anybody should wait for.
MAX_TRIALS = 50_000_000
#: The worst pair's part of the chance of a false bound; the others have equal parts of the rest.
_WORST = 0.8
#: Chains of either input of the suspicious and of the random pair, as parts of the worst one's.
_OTHERS = 0.25, 0.125
#: Chains of the search for the suspicious pair, as a part of the trials.
_SEARCH = 0.5
#: Inputs that a search compares, fewer where reports are very wide, and those compared again.
_INPUTS, _AGAIN = 256, 16
#: Shares of inputs and bits that a search keeps.
_SHARES = 1 << 21
#: A share counts if it is so many standard deviations from that of all inputs.
_FAR = 4.0


#: What draws chains: the ``randomize`` of a mechanism, or something in its place.
Sampler: TypeAlias = "Callable[[Any, Words, Words, Source], Bytes]"


def attack(
    mechanism: Mechanism,
    source: Source,
    *,
    trials: int = 200_000,
    confidence: float = 0.95,
    levels: int | None = None,
    pair: tuple[Any, Any] | None = None,
    sampler: Sampler | None = None,
) -> Attack:
    """Distinguish inputs by whole chains, as somebody would who sees every level.

    Three pairs of inputs are attacked: the one with the largest certified loss, one that a search
    among inputs drawn at random found suspicious, and one at random; or ``pair`` alone. The
    attacker knows the mechanism and the public coins of every chain. ``sampler`` is what is
    attacked in the place of ``mechanism.randomize``; ``source``, also of the secrets, is in
    production :class:`.SystemSource`.

    Parameters
    ----------
    trials : int
        At least 10: how many chains of each input of the worst pair are drawn, on average. A fair
        secret bit decides of each of twice as many. The suspicious pair has a quarter of that, the
        random one an eighth, and the search a quarter.
    confidence : float in (0, 1)
        The bound is above the true loss with probability ``1 - confidence`` at most. What to look
        at is chosen before the chains are drawn that count; of the pairs every one has its part of
        that probability (Bonferroni).
    levels : int, optional
        The levels that are released, from the weakest on; all by default.

    Examples
    --------
    >>> from mechanisms.registry import build
    >>> from mechanisms.testing import SeededSource
    >>> grr = build({"name": "grr", "domain_size": 4}, [500_000, 1_000_000], "colour")
    >>> found = attack(grr, SeededSource(1), trials=50_000)
    >>> 0.95 < found.epsilon < 1.01
    True
    """
    if not 10 <= trials <= MAX_TRIALS:
        raise ParameterError(f"trials must lie in [10, {MAX_TRIALS}], not {trials}")
    shown = mechanism.levels if levels is None else levels
    if not 1 <= shown <= mechanism.levels:
        raise ParameterError(f"levels must lie in [1, {mechanism.levels}], not {shown}")
    target = _Target(mechanism, sampler or mechanism.randomize, shown, source)
    if pair is not None:
        found = [target.guesses(pair, trials, 1.0)]
    else:
        others = _other_pairs(target, int(_SEARCH * trials))
        worst = mechanism.worst_inputs(shown - 1)
        found = [target.guesses(worst, trials, _WORST if others else 1.0)]
        for other, part in zip(others, _OTHERS, strict=False):
            share = (1 - _WORST) / len(others)
            found.append(target.guesses(other, max(10, int(part * trials)), share))
    return Attack(tuple(found), target.drawn, confidence)


@dataclass
class _Target:
    """A mechanism, its sampler, the levels that are seen, and how many chains were drawn."""

    mechanism: Mechanism
    draw: Sampler
    levels: int
    source: Source
    drawn: int = 0

    def guesses(self, pair: tuple[Any, Any], trials: int, share: float) -> Guesses:
        """Guess which of two inputs chains hide, ``trials`` of either on average.

        A fifth of the chains, less where they are very wide, teaches the rule; the later ones
        count.
        """
        part = min(2 * trials // PART, max(_FEWEST, _LEARNT // self._row))
        secrets = fair_bits(2 * part, self.source)
        first, second = (self._seen(pair, half) for half in np.split(secrets, 2))
        views = views_of(first, secrets[:part])
        keys = {name: np.concatenate([view(first), view(second)]) for name, view in views.items()}
        name, rule = best_rule(keys, secrets)
        del first, second, keys
        right = guesses = 0
        left = 2 * trials - 2 * part
        for start in range(0, left, self._block):
            secrets = fair_bits(min(self._block, left - start), self.source)
            counts = rule.score(views[name](self._seen(pair, secrets)), secrets)
            right, guesses = right + counts[0], guesses + counts[1]
        return Guesses(right, guesses, name, share)

    def columns(self, values: Sequence[Any], chains: int) -> Iterator[tuple[Any, Bytes, Words]]:
        """Draw about so many chains, of each value in turn: the values, payloads and ids."""
        turns, each = max(1, chains // len(values)), max(1, self._block // (8 * len(values)))
        for start in range(0, turns, each):
            places = np.tile(np.arange(len(values)), min(each, turns - start))
            column = column_of(values, places)
            yield column, *self._drawn(column, len(places))

    @property
    def _block(self) -> int:
        return max(64, min(_BLOCK, _BYTES // self._row))

    @property
    def _row(self) -> int:
        return self.mechanism.levels * self.mechanism.payload_width

    def _seen(self, pair: tuple[Any, Any], secrets: Bools) -> Seen:
        column = column_of(pair, secrets.astype(int))
        return Seen(self.mechanism, pair, *self._drawn(column, len(secrets)))

    def _drawn(self, column: Any, n: int) -> tuple[Bytes, Words]:
        chains = self.source.words(2 * n).reshape(n, 2)
        names = np.tile(np.frombuffer(NO_ID, dtype="<u8").astype(np.uint64), (n, 1))
        self.drawn += n
        return self.draw(column, chains, names, self.source)[:, : self.levels], chains


def _other_pairs(target: _Target, chains: int) -> list[tuple[Any, Any]]:
    """Return a suspicious pair of inputs, and one at random; nothing where there are but two.

    A fault can depend on the input. Chains of many inputs, drawn at random, are compared level by
    level: bit by bit, or as a whole where a report is one byte; in how a level differs from the
    next; and in how often a report is what public coins make of its input. The inputs that are
    farthest from all others are compared again, with more chains, and the two that differ most are
    attacked. All of this only chooses a pair: the chains of the attack are drawn afterwards.
    """
    width = target.mechanism.levels * target.mechanism.payload_width
    count = max(4, min(_INPUTS, _SHARES // (16 * width)))
    inputs = list(target.mechanism.some_inputs(count, target.source))
    if len(inputs) < 3:
        return []
    first = uniform_below(len(inputs), target.source)
    second = (first + 1 + uniform_below(len(inputs) - 1, target.source)) % len(inputs)
    random = inputs[first], inputs[second]
    if len(inputs) > _AGAIN:
        chains //= 2
        far = _differences(*_logs(target, inputs, chains))
        inputs = [inputs[place] for place in np.argsort(-far, kind="stable")[:_AGAIN]]
    logs, _ = _logs(target, inputs, chains)
    table = np.array([_differences(logs, row[None]) for row in logs])
    one, other = divmod(int(table.argmax()), len(inputs))
    return [(inputs[one], inputs[other]) if one != other else (inputs[0], inputs[1]), random]


def _differences(logs: Floats, other: Floats) -> Floats:
    """Return how far reports differ, summed over the cells of a plane, of the best plane."""
    gaps: Floats = np.abs(logs - other).max(axis=2)
    return np.asarray(gaps.sum(axis=2).max(axis=1))


def _logs(target: _Target, inputs: Sequence[Any], chains: int) -> tuple[Floats, Floats]:
    """Return the logarithms of the shares of every cell, and of all but it, of reports.

    By input, ``(inputs, planes, 2, cells)``, what chance could have moved as that of all inputs;
    and of all inputs, ``(1, planes, 2, cells)``.
    """
    turns, ones = 0, np.zeros(1, dtype=np.int64)
    for column, payloads, ids in target.columns(inputs, chains):
        changes = payloads[:, 1:] ^ payloads[:, :-1]
        found = _tally(np.concatenate([payloads, changes], axis=1), len(inputs))
        true = target.mechanism.truths(column, ids)[:, None] == target.mechanism.answers(payloads)
        if true.shape[2]:
            agreed = true.reshape(-1, len(inputs), *true.shape[1:]).sum(axis=0)
            room = (0, 0), (0, 0), (0, found.shape[2] - agreed.shape[2])
            found = np.concatenate([found, np.pad(agreed, room)], axis=1)
        turns, ones = turns + len(payloads) // len(inputs), ones + found
    # Half of a one and of a zero more, so that no share is 0 or 1.
    shares, common = (ones + 0.5) / (turns + 1), (ones.mean(axis=0) + 0.5) / (turns + 1)
    spread = np.sqrt(common * (1 - common) / turns)
    shares = np.where(np.abs(shares - common) > _FAR * spread, shares, common)
    logs = [np.log(np.stack([part, 1 - part], axis=-2)) for part in (shares, common[None])]
    return logs[0], logs[1]


def _tally(planes: Bytes, inputs: int) -> Ints:
    """Count set bits, or of planes of one byte its values: ``(inputs, planes, cells)``."""
    n, count, width = planes.shape
    turns = np.arange(n) % inputs
    if width > 1:
        sums = grouped_bit_sums(planes.reshape(n, -1), turns, inputs)
        return sums.reshape(inputs, count, 8 * width)
    cells = count * turns[:, None] + np.arange(count)
    counts = grouped_counts(planes.ravel(), cells.ravel(), inputs * count, 256)
    return counts.reshape(inputs, count, 256)
