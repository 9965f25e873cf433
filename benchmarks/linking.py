"""How well arrival times join two pseudonyms of a device that comes back from an outage.

Every device of a fleet has reports due under the pseudonyms of two periods, none of them about to
be too late. The sender in the background sends one of them, either as likely, when the device comes
back, and the other a while later that is uniform between nothing and a window. The observer knows
all that, sees when each pseudonym's message arrives and of which period it is, and guesses for
every pseudonym of the one period which of the other is the same device's: by the marginals of the
matching (Sinkhorn's scaling of the likelihoods), and by the most likely matching as a whole; the
better one counts.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from benchmarks.harness import Table
from clientsdk.sending.backoff import LONGEST

Floats = NDArray[np.float64]

HOUR, DAY = 3600.0, 86_400.0
SIZES = (10, 100, 1000)
#: Pairs that are guessed about for each figure, at least.
PAIRS = 4000
SEED = 20_261_122
#: By how devices come back: how long after the first of them the last one may, in seconds.
RETURNS = {"at once": LONGEST, "within a day": DAY}
#: Seconds: the window of a plan with a resolution of an hour, and that of all plans before.
WINDOWS = {"an hour": HOUR, "5 minutes": 300.0}


def density(times: Floats, returns: str) -> Floats:
    """Return how likely a device comes back at each time, as a density.

    All at once is when a broker comes back: a device's next attempt is then the rest of a pause
    that was drawn uniformly between nothing and ``LONGEST``.
    """
    longest = RETURNS[returns]
    inside = (times >= 0) & (times < longest)
    if returns == "at once":
        return np.where(inside, 2 * (1 - times / longest) / longest, 0.0)
    return np.where(inside, 1 / longest, 0.0)


def arrivals(
    number: int, window: float, returns: str, chance: np.random.Generator
) -> tuple[Floats, Floats]:
    """Return when the messages of both periods arrive, each device's at one index."""
    uniform = chance.random(number)
    share = 1 - np.sqrt(1 - uniform) if returns == "at once" else uniform
    first = share * RETURNS[returns]
    second = first + window * chance.random(number)
    turned = chance.random(number) < 0.5
    return np.where(turned, second, first), np.where(turned, first, second)


def guessed(
    old: Floats, new: Floats, right: NDArray[np.intp], window: float, returns: str
) -> float:
    """Return which share of the n devices the observer guesses right.

    ``old`` and ``new`` say when the messages of each period arrived, in no order that says
    anything, and ``right`` where in ``new`` the device of each of ``old`` is.
    """
    gap = new[None, :] - old[:, None]
    likely = density(old, returns)[:, None] * ((gap >= 0) & (gap < window))
    likely = likely + density(new, returns)[None, :] * ((gap < 0) & (-gap < window))
    _, chosen = linear_sum_assignment(-np.log(np.maximum(likely, 1e-300)))
    whole = float((chosen == right).mean())
    marginal = likely / likely.max() + 1e-12
    for _ in range(200):
        marginal /= marginal.sum(axis=1, keepdims=True)
        marginal /= marginal.sum(axis=0, keepdims=True)
    return max(whole, float((marginal.argmax(axis=1) == right).mean()))


def joined(number: int, window: float, returns: str, pairs: int = PAIRS) -> float:
    """Return how often the best guess is right in a fleet of ``number`` devices."""
    chance = np.random.default_rng([SEED, number, int(window)])
    rounds = -(-pairs // number)
    shares = []
    for _ in range(rounds):
        old, new = arrivals(number, window, returns, chance)
        mixed = chance.permutation(number)
        shares.append(guessed(old, new[mixed], np.argsort(mixed), window, returns))
    return float(np.mean(shares))


def main() -> None:
    """Print the table."""
    table = Table("devices come back", "spaced by up to", *map(str, SIZES))
    for returns in RETURNS:
        for name, window in WINDOWS.items():
            table.row(returns, name, *(f"{joined(n, window, returns):.1%}" for n in SIZES))
