"""Guess a fair secret bit from what a release shows, by a rule learnt from other releases.

Chains are cut in three. The first part says how likely each *cell*, each thing that is seen, makes
either value; cells are ranked by how sure that is. The second says how many of the leading cells to
guess on, and which view is best: what the best distinguishing event is. Only the third part, which
none of this depends on, is counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mechanisms.audit.bounds import Attack, lower_limit
from mechanisms.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A tenth of the chains ranks the cells, and as many choose among views and events.
PART = 10
#: Numbers that take more values than this are cut into so many quantiles, fewer for few chains.
BINS = 512
#: Chains of a part that a quantile has at least, but for few chains.
_IN_A_BIN = 16
#: How sure a rank, and a choice, is to be: of many events, small ones look good by chance.
_RANKED, _SURE = 0.9, 0.999
#: Where nothing is that sure, for want of chains.
_LESS_SURE = 0.9
#: An event this part as good as the best is taken if it happens more often.
_NEARLY = 0.985
#: A view has to promise more by this factor than one before it.
_BETTER = 1.03


@dataclass(frozen=True)
class Rule:
    """On which cells to guess, and what; ``cells`` are sorted."""

    cells: NDArray[np.uint64]
    says: NDArray[np.bool_]

    def score(self, keys: NDArray[np.uint64], secrets: NDArray[np.bool_]) -> tuple[int, int]:
        """Return how many guesses are right, and how many there are."""
        import numpy as np

        if not len(self.cells):
            return 0, 0
        places = np.minimum(np.searchsorted(self.cells, keys), len(self.cells) - 1)
        known = self.cells[places] == keys
        return int((known & (self.says[places] == secrets)).sum()), int(known.sum())


def guess(
    views: Mapping[str, NDArray[np.uint64]], secrets: NDArray[np.bool_], confidence: float
) -> Attack:
    """Attack releases of which each hides one of two inputs, chosen by a fair secret bit.

    Parameters
    ----------
    views : mapping of str to ndarray, shape (n,), uint64
        Ways to look at a release; any functions of what is seen, the most natural one first. A
        later one is taken only if it promises more by a good part.
    secrets : ndarray, shape (n,), bool
        Independent fair bits.
    confidence : float in (0, 1)

    Returns
    -------
    Attack
        Its bound holds whatever the views are, since no secret of the counted part was looked at
        before the rule was fixed: given all that is seen, the guesses are independent, each right
        with probability at most e^ε/(1+e^ε).
    """
    n = len(secrets)
    first, second = n // PART, 2 * (n // PART)
    if not (first and views):
        raise ParameterError(f"an attack needs a view and at least {PART} chains, not {n}")
    for sure in (_SURE, _LESS_SURE):
        worth, name, rule = _best(views, secrets, (first, second), sure)
        if worth > 0:
            break
    right, guesses = rule.score(views[name][second:], secrets[second:])
    return Attack(right, guesses, n, confidence, name)


def _best(
    views: Mapping[str, NDArray[np.uint64]],
    secrets: NDArray[np.bool_],
    ends: tuple[int, int],
    sure: float,
) -> tuple[float, str, Rule]:
    """Return the best view and its rule, and before them the epsilon that they promise."""
    first, second = slice(ends[0]), slice(*ends)
    found: list[tuple[float, str, Rule]] = []
    for name, keys in views.items():
        worth, rule = learn((keys[first], secrets[first]), (keys[second], secrets[second]), sure)
        if not found or worth > found[-1][0] * _BETTER:
            found.append((worth, name, rule))
    return found[-1]


Part = tuple["NDArray[np.uint64]", "NDArray[np.bool_]"]


def learn(ranking: Part, choosing: Part, confidence: float) -> tuple[float, Rule]:
    """Return a rule, and the epsilon that the best event of it promises.

    Parameters
    ----------
    ranking, choosing : pair of ndarray
        Keys and secrets of two disjoint sets of chains.
    confidence : float
        Of the choice.
    """
    import numpy as np

    cells, places = np.unique(ranking[0], return_inverse=True)
    total = np.bincount(places, minlength=len(cells))
    ones = np.bincount(places[ranking[1]], minlength=len(cells))
    says = 2 * ones > total
    order = np.argsort(-lower_limit(np.maximum(ones, total - ones), total, _RANKED), kind="stable")
    rank = np.empty(len(cells), dtype=np.int64)
    rank[order] = np.arange(len(cells))

    keys, secrets = choosing
    found = np.minimum(np.searchsorted(cells, keys), len(cells) - 1)
    known = cells[found] == keys
    ranks, right = rank[found[known]], says[found[known]] == secrets[known]
    guesses = np.cumsum(np.bincount(ranks, minlength=len(cells)))
    hits = np.cumsum(np.bincount(ranks[right], minlength=len(cells)))
    sure = np.clip(lower_limit(hits, guesses, confidence), 0.5, 1 - 1e-12)
    worth = np.log(sure) - np.log1p(-sure)
    # Of events that are nearly as good the one that happens most often.
    last = int(np.flatnonzero(worth >= _NEARLY * worth.max())[-1])
    taken = np.sort(order[: last + 1])
    return float(worth.max()), Rule(cells[taken], says[taken])


def key_of(columns: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return a number for each row of ``(n, k)`` integers, the same for equal rows.

    Different rows share one by a collision of 64-bit hashes only, which would cost an attack
    power, never its validity.
    """
    import numpy as np

    from mechanisms.coins import mix64s

    key = np.zeros(len(columns), dtype=np.uint64)
    for column in columns.T:
        key = mix64s(key ^ np.ascontiguousarray(column).view(np.uint64))
    return key


def score_key(scores: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return a number for each of ``(n,)`` scores: its millionths, or its quantile if many differ.

    Quantiles are of all scores, which no secret enters.
    """
    import numpy as np

    fine = np.rint(scores * 1e6).astype(np.int64)
    values = np.unique(fine)
    bins = min(BINS, max(8, len(scores) // (PART * _IN_A_BIN)))
    if len(values) > bins:
        edges = np.unique(np.quantile(fine, np.linspace(0, 1, bins + 1)[1:-1], method="nearest"))
        fine = np.searchsorted(edges, fine).astype(np.int64)
    return fine.view(np.uint64)
