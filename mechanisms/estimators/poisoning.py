"""Do counts follow the law that reports of honest devices have, whatever their values?

Four checks, each with a false alarm of at most 1e-9 for a window as it is when it is looked at:

* *coins*: a public coin is a hash of an id that an honest device draws at random, so that its law
  is known. Devices that choose their ids, to answer only what serves them, crowd some coins.
* *levels*: a chain's weaker report is drawn from the next stronger one, without the value. So the
  share of pairs of equal reports is known. Devices that repeat an answer at every level have too
  many, devices that draw every level from the value too few.
* *bits*: a unary vector has one true bit and a Bloom filter a few, so that the number of bits that
  are set has a known law, or known bounds.
* *cells*: no share is below 0 or above 1, so that an answer is neither rarer than in reports that
  it is never true of, nor more frequent than in those that it always is.

No check can see devices that follow the protocol with values of their choice: of each
:meth:`mechanisms.estimate.Estimate.under` states what they can do.

References
----------
A. Cheu, A. Smith, J. Ullman, "Manipulation Attacks in Local Differential Privacy", IEEE S&P 2021.
X. Cao, J. Jia, N. Gong, "Data Poisoning Attacks to Local Differential Privacy Protocols", USENIX
Security 2021.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from mechanisms.arrays import Bools, Ints
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError, check_at_least
from mechanisms.estimators.expectation import GAP, ROUNDING, largest_likelihood
from mechanisms.estimators.frequency import count_table
from mechanisms.estimators.tails import binomial_tail, first_below, multinomial_tail, sum_tail
from mechanisms.items import Context

#: How often, at most, a check raises an alarm about honest devices.
FALSE_ALARM = 1e-9
#: The checks.
KINDS = ("coins", "levels", "bits", "cells")
#: Very few repeated payloads are proof if they are hardly ever equal. They are an alarm from one
#: pair in so many on, since fewer devices move nothing.
_NEGLIGIBLE = 0.001
#: Payloads of more bytes are compared by a tag, that different ones share with a probability of at
#: most so much (:func:`pipelines.aggregation.table.payload_tags`).
_COMPARED, _SHARED_TAG = 4, 2.0**-32
_LOG_RATE = math.log(FALSE_ALARM)
#: Probabilities that depend on a report are rounded up to such a part, to be looked at together.
_FINE = 4000
#: So much of the false alarms that are allowed is that of all pairs of levels together.
_TOGETHER = 0.9

#: Numbers of trials, each with the probability of a yes.
Groups: TypeAlias = list[tuple[float, float]]


@dataclass(frozen=True)
class Irregularity:
    """The finding of a check; an alarm where ``p_value`` is at most 1e-9, beyond the threshold.

    Attributes
    ----------
    kind : str
        ``coins``, ``levels``, ``bits`` or ``cells``.
    statistic, expected, threshold : float
        A share that was seen, the nearest one that honest devices have on average, and the one from
        which on it is an alarm. For ``coins`` and ``cells``, where no single one of them stands
        out, the relative entropy of their shares to the (nearest) law, in nats, times the reports.
    p_value : float
        Bound of the probability that honest devices show as much, by chance.
    n : int
        Reports, pairs, or bits that the share is of.
    message : str
        The finding in words.
    """

    kind: str
    statistic: float
    expected: float
    #: Returns the threshold: most of a check's work, for alarms alone.
    limit: Callable[[], float] = field(repr=False, compare=False)
    p_value: float
    n: int
    message: str

    @cached_property
    def threshold(self) -> float:
        return self.limit()


def pair_columns(levels: int) -> int:
    """Return the length of a vector of pairs: for every weaker level, pairs and equal ones."""
    return 2 * levels


def alarms(
    mechanism: Mechanism, counts: ArrayLike, pairs: ArrayLike, context: Context, together: int = 1
) -> Iterator[Irregularity]:
    """Yield what honest devices do not do, at most one finding of each kind.

    Parameters are those of :func:`findings`.
    """
    for found in findings(mechanism, counts, pairs, context, together):
        seen = abs(found.statistic - found.expected)
        if found.p_value <= FALSE_ALARM and seen >= abs(found.threshold - found.expected):
            yield found


def findings(
    mechanism: Mechanism, counts: ArrayLike, pairs: ArrayLike, context: Context, together: int = 1
) -> Iterator[Irregularity]:
    """Yield what every check finds that has something to look at.

    Parameters
    ----------
    counts : array_like, shape (levels, count_length)
        Of the newest reports of chains, by level, as :meth:`Mechanism.accumulate` lays them out.
    pairs : array_like, shape (levels, 2 levels)
        Row k has, of chains of which a report of level k was seen and j is the next weaker level
        that was, at 2 j their number and at 2 j + 1 of how many the two reports are equal.
    context : Context
        ``labels`` name categories; of ``limit`` and ``least`` see there. Fewer than ``least``
        reports are never looked at.
    together : int
        How many reports of a window may be drawn from one permanent response.

    Notes
    -----
    The exponent of a bound is divided by the number of reports that depend on each other: by
    Hölder's inequality, a sum of that many parts, each of independent reports, has at most the
    corresponding root of the tail that independence would give. The evidence is divided in relative
    entropy, since each part shows some of it by chance.
    """
    table = count_table(mechanism, counts)
    seen = np.asarray(pairs, dtype=np.int64)
    if seen.shape != (mechanism.levels, pair_columns(mechanism.levels)) or (seen < 0).any():
        raise ParameterError("pairs must be (levels, 2 levels) numbers that are not negative")
    check_at_least("together", together, 1)
    strata = table.reshape(mechanism.levels, mechanism.strata, -1)
    for found in (
        _coins(mechanism, strata, context),
        _levels(mechanism, strata, seen, context),
        _bits(mechanism, strata, context, together),
        _cells(mechanism, table, context, together),
    ):
        if found is not None:
            yield found


def _coins(mechanism: Mechanism, strata: Ints, context: Context) -> Irregularity | None:
    _, answers = mechanism.chain.hits(strata)
    seen = answers.sum(axis=0)
    n, outcomes = int(seen.sum()), seen.size
    if outcomes == 1 or n < context.least or not n:
        return None
    law = mechanism.coin_law()
    # All reports of a pseudonym share a coin that is hashed from it.
    together = context.limit if mechanism.coins == "pseudonym" else 1
    tests = math.log(2 * outcomes * 2)
    each = binomial_tail(seen, n, law, law) / together + tests
    worst = int(each.argmin())
    log_p, share = float(each[worst]), float(law[worst])
    if together == 1 and mechanism.independent_coins:
        known = seen > 0
        evidence = float((seen[known] * np.log(seen[known] / n / law[known])).sum())
        whole = multinomial_tail(evidence, outcomes) + math.log(2)
        if whole < log_p:
            end = partial(
                first_below,
                lambda x: multinomial_tail(x, outcomes) + math.log(2),
                outcomes - 1.0,
                100.0 * (outcomes + 1),
                _LOG_RATE,
            )
            message = f"the {outcomes:,} coins are not shared among {n:,} reports as chance does"
            return Irregularity(
                "coins", evidence, (outcomes - 1) / 2, end, _probability(whole), n, message
            )
    found = int(seen[worst]) / n
    limit = partial(_limit, found, share, share, n, together, tests)
    ids = "pseudonyms" if mechanism.coins == "pseudonym" else "chains"
    message = (
        f"{_percent(found)} of {n:,} reports have {ids} with coin {worst + 1} of {outcomes:,}, "
        f"not {_percent(share)} as ids drawn at random have"
    )
    return Irregularity("coins", found, share, limit, _probability(log_p), n, message)


def _levels(
    mechanism: Mechanism, strata: Ints, pairs: Ints, context: Context
) -> Irregularity | None:
    each = [
        (upper, lower)
        for upper in range(1, mechanism.levels)
        for lower in range(upper)
        if pairs[upper, 2 * lower] >= max(context.least, 1)
    ]
    # Few pairs of two levels are left out of the sum over all levels, too.
    if not each:
        return None
    looks: list[tuple[str, int, int, dict[bool, Groups]]] = []
    together: dict[bool, Groups] = {True: [], False: []}
    for upper, lower in each:
        n, equal = pairs[upper, 2 * lower : 2 * lower + 2].tolist()
        which = f"levels {lower + 1} and {upper + 1}"
        looks.append((which, n, equal, _kept(mechanism, strata, lower, upper, n)))
        low, high = mechanism.chain.repeats(lower, upper)
        together[True].append((n, _or_same_tag(mechanism, high)))
        together[False].append((n, 1 - low))
    parts = [1.0]
    if len(each) > 1:
        # Pairs of one chain depend on each other, but each has these bounds given the others.
        every = (sum(look[1] for look in looks), sum(look[2] for look in looks))
        looks.append(("successive levels", *every, together))
        parts = [*[(1 - _TOGETHER) / len(each)] * len(each), _TOGETHER]
    logs = [
        min(sum_tail(groups[True], equal), sum_tail(groups[False], n - equal)) + math.log(2 / part)
        for part, (_, n, equal, groups) in zip(parts, looks, strict=True)
    ]
    worst = min(range(len(looks)), key=logs.__getitem__)
    which, n, equal, groups = looks[worst]
    tests = math.log(2 / parts[worst])
    ends = {many: sum(number * p for number, p in groups[many]) / n for many in groups}
    many = equal / n > ends[True]
    expected = ends[True] if many else max(1 - ends[False], 0.0)
    if not many and equal / n > expected:
        expected = equal / n

    def bound(share: float) -> float:
        return sum_tail(groups[many], n * (share if many else 1 - share)) + tests

    def limit() -> float:
        found = first_below(bound, expected, float(many), _LOG_RATE)
        return max(found, expected + _NEGLIGIBLE * (1 - expected)) if many else found

    what = "devices repeat answers" if many else "devices draw every level from the value"
    message = (
        f"{_percent(equal / n)} of {n:,} pairs of {which} of a chain are equal, "
        f"not {_percent(expected)}: {what}"
    )
    return Irregularity("levels", equal / n, expected, limit, _probability(logs[worst]), n, message)


def _kept(mechanism: Mechanism, strata: Ints, lower: int, upper: int, n: int) -> dict[bool, Groups]:
    """Return of how many of ``n`` pairs of two levels which share is equal, at most, and is not.

    The shares are those of the reports that there are if they depend on the report that counts: of
    the ``n`` of them that have most, where some have no pair.
    """
    chain = mechanism.chain
    low, high = chain.repeats(lower, upper)
    ends = {True: _or_same_tag(mechanism, high), False: 1 - low}
    newest = [chain.kept(lower, upper, level) for level in range(upper, mechanism.levels)]
    known = np.concatenate([each for each in newest if each is not None] or [np.empty(0)])
    found: dict[bool, Groups] = {}
    for many, end in ends.items():
        shares = np.minimum(np.ceil((known if many else 1 - known) * _FINE) / _FINE, end)
        values, place = np.unique(-shares, return_inverse=True)
        reports = chain.hits(strata)[0].sum(axis=1)[upper:].reshape(-1)[: known.size]
        seen = np.bincount(place, reports, values.size)
        taken = np.diff(np.minimum(np.cumsum(seen), n), prepend=0.0)
        found[many] = [*zip(taken.tolist(), (-values).tolist(), strict=True)]
        found[many].append((n - float(taken.sum()), end))
    return found


def _or_same_tag(mechanism: Mechanism, equal: float) -> float:
    """Return the probability that payloads look equal."""
    wide = mechanism.payload_width > _COMPARED
    return equal + (1 - equal) * _SHARED_TAG if wide else equal


def _bits(
    mechanism: Mechanism, strata: Ints, context: Context, together: int
) -> Irregularity | None:
    if mechanism.true_bits is None:
        return None
    hits, reports = mechanism.chain.hits(strata)
    width = hits.shape[-1]
    worst: Irregularity | None = None
    tests = math.log(2 * mechanism.levels)
    for level, (p, q) in enumerate(mechanism.pairs().tolist()):
        n, ones = int(reports[level].sum()), int(hits[level].sum())
        if n < context.least or not n:
            continue
        ends = [true * p + (width - true) * q for true in mechanism.true_bits]
        many = ones / n > ends[1]
        true = mechanism.true_bits[many]
        groups: Groups = [(n * true, p), (n * (width - true), q)]
        if not many:
            groups = [(number, 1 - share) for number, share in groups]
        expected = min(max(ones / n, ends[0]), ends[1])
        bound = partial(_bits_bound, groups, n, width, many, together, tests)
        log_p = bound(ones / n)
        if worst is not None and _probability(log_p) >= worst.p_value:
            continue
        limit = partial(first_below, bound, expected, float(width * many), _LOG_RATE)
        message = (
            f"{n:,} reports of level {level + 1} have {ones / n:.4g} bits set on average, not "
            f"{expected:.4g}"
        )
        worst = Irregularity("bits", ones / n, expected, limit, _probability(log_p), n, message)
    return worst


def _bits_bound(
    groups: Groups,
    n: int,
    width: int,
    many: bool,
    together: int,
    tests: float,
    mean: float,
) -> float:
    total = n * mean if many else n * (width - mean)
    return sum_tail(groups, total) / together + tests


def _cells(
    mechanism: Mechanism, table: Ints, context: Context, together: int
) -> Irregularity | None:
    hits, reports, *ends = mechanism.bounded_cells(table)
    if len(mechanism.joins) > 1:
        # Strata that estimates do not tell apart are not told apart here either.
        starts = [each for each in mechanism.joins if len(each) <= context.strata][-1]
        hits, reports = (np.add.reduceat(each, starts, axis=1) for each in (hits, reports))
    # A stratum of few reports is left alone, and so is one that leaves few others of its level.
    fewest = max(context.least, 1)
    rest = reports.sum(axis=1, keepdims=True) - reports
    looked = (reports >= fewest) & ((rest >= fewest) | (rest == 0))
    if mechanism.quantities > 1:
        # Each has an estimate of its own, which joins all its strata where one has few reports.
        own = reports.reshape(len(reports), mechanism.quantities, -1)
        short = ((own > 0) & (own < fewest)).any(axis=2)
        looked &= ~np.repeat(short, own.shape[2], axis=1)
    if not looked.any():
        return None
    low, high = (np.broadcast_to(end, hits.shape) for end in ends)
    trials = np.maximum(reports, 1)[..., None]
    # Each has half of the false alarms if all answers of a level are looked at together, too.
    tests = math.log(2 * hits.size * (1 + (mechanism.chain.mixed(0) is not None)))
    logs = binomial_tail(hits, trials, low, high) / together + tests
    logs[~looked] = math.inf
    at = np.unravel_index(int(logs.argmin()), logs.shape)
    level, stratum, cell = (int(place) for place in at)
    n, least, most = int(reports[level, stratum]), float(low[at]), float(high[at])
    found = int(hits[at]) / n
    name = f"answer {cell + 1}" + (f" to coin {stratum + 1}" if hits.shape[1] > 1 else "")
    if hits.shape[1:] == (1, len(context.labels)):
        name = context.labels[cell]
    nearest = min(max(found, least), most)
    truth = "everybody" if found > least else "nobody"
    message = (
        f"{_percent(found)} of {n:,} reports of level {level + 1} say {name}, as if it were true "
        f"of {'more than' if found > least else 'less than'} {truth}: of {truth}, "
        f"{_percent(nearest)} would"
    )
    limit = partial(_limit, found, least, most, n, together, tests)
    cell_alone = Irregularity(
        "cells", found, nearest, limit, _probability(float(logs[at])), n, message
    )
    mixed = _mixture(mechanism, hits, looked, together, fewest)
    return cell_alone if mixed is None or cell_alone.p_value <= mixed.p_value else mixed


def _mixture(
    mechanism: Mechanism, hits: Ints, looked: Bools, together: int, fewest: int
) -> Irregularity | None:
    """Look at all answers of a level at once: do any values have such shares of them?

    The likelihood of the closest shares is proved to be the largest but for a small gap. The bound
    of :func:`multinomial_tail` holds for values that differ, too: a product of log-convex functions
    of the numbers of answers is largest on average where all reports have the average law.
    """
    worst: Irregularity | None = None
    for level in np.flatnonzero(looked.any(axis=1)).tolist():
        matrix = mechanism.chain.mixed(level)
        if matrix is None:
            continue
        possible = matrix.max(axis=0) > 0
        if 0 < hits[level, ~looked[level]].sum() < fewest:
            continue
        every = np.where(looked[level, :, None], hits[level], 0).sum(axis=0)
        seen, n, outcomes = every[possible], int(every.sum()), int(possible.sum())
        values, _, proved = largest_likelihood(matrix[:, possible], seen)
        if not proved or n > seen.sum():
            continue
        known = seen > 0
        law = (values @ matrix[:, possible])[known]
        evidence = float((seen[known] * np.log(seen[known] / n / law)).sum())
        evidence = max(evidence - max(GAP, n * ROUNDING), 0.0)
        bound = partial(_mixture_bound, outcomes, together, math.log(2 * mechanism.levels))
        p_value = _probability(bound(evidence))
        if worst is not None and p_value >= worst.p_value:
            continue
        highest = 100.0 * (outcomes + 1) * together
        end = partial(first_below, bound, outcomes - 1.0, highest, _LOG_RATE)
        message = f"no values have the shares of answers in {n:,} reports of level {level + 1}"
        worst = Irregularity("cells", evidence, (outcomes - 1) / 2, end, p_value, n, message)
    return worst


def _mixture_bound(outcomes: int, together: int, tests: float, evidence: float) -> float:
    # Relative entropy is convex: that of all reports is at most the sum of its parts'. By Hölder's
    # inequality, a part of independent reports then has so much less of it to show.
    return multinomial_tail(evidence / together, outcomes) + tests


def _limit(found: float, low: float, high: float, n: int, together: int, tests: float) -> float:
    """Return the share, on the side of ``found``, from which on it is an alarm."""
    many = found >= high

    def bound(share: float) -> float:
        return float(binomial_tail(share * n, n, low, high)) / together + tests

    return first_below(bound, high if many else low, float(many), _LOG_RATE)


def _probability(log_p: float) -> float:
    return math.exp(min(log_p, 0.0))


def _percent(share: float) -> str:
    """Return a share for people.

    >>> _percent(0.123462), _percent(0.00012)
    ('12.35 %', '0.012 %')
    """
    return f"{100 * share:.4g} %"
