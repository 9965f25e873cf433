"""Which candidates are named, by familywise error and by false discovery rate; shares to show.

Strings: 105 candidates of which ten are there, and three strings that are no candidates, through
Bloom filters of 128 bits in 16 cohorts at epsilon 1 and 4. Shown shares: 74 categories through
generalized randomized response at epsilon 1; squared errors of Norm-Sub, and of clipping below
zero and scaling, over that of what is shown.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Table
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.estimators.frequency import consistent_shares, norm_sub
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource

SEED = 20_261_122
CANDIDATES = [f"port {number}" for number in range(105)]
#: Ten of the candidates are there; the last three strings are not listed.
SHARES = np.array([0.2, 0.15, 0.1, 0.1, 0.08, 0.05, 0.04, 0.03, 0.03, 0.02, 0.1, 0.06, 0.04])
REPEATS = 60
#: False discovery rates; 0 stands for the familywise error of 5 %.
RATES = (0.0, 0.05, 0.1, 0.2)


def names(reports: int) -> list[tuple[float, float, float]]:
    """Return true names, false names and ``false_names`` on average, by rate (0: familywise)."""
    rappor = Rappor(epsilon=(1.0, 4.0), bits=128, hashes=2, cohorts=16, metric="port")
    rng, source = np.random.default_rng(SEED), SeededSource(SEED)
    sums = np.zeros((len(RATES), 3))
    for repeat in range(REPEATS):
        listed = [name.encode() for name in CANDIDATES[:10]]
        strings = [*listed, *(f"{number} not listed {repeat}".encode() for number in range(3))]
        drawn = rng.choice(len(strings), reports, p=SHARES)
        ids = source.words(2 * reports).reshape(-1, 2)
        payloads = rappor.randomize([strings[i] for i in drawn], ids, ids, source)[:, 1]
        counts = np.zeros((2, rappor.count_length), dtype=np.int64)
        counts[1] = rappor.accumulate(payloads, ids, ids, np.zeros(reports, dtype=np.int64), 1)[0]
        for row, rate in enumerate(RATES):
            found = rappor.decode(counts, CANDIDATES, false_discovery_rate=rate or None)
            named = [item.significant for item in found.items]
            sums[row] += sum(named[:10]), sum(named[10:]), found.false_names or 0.0
    return [tuple(row) for row in (sums / REPEATS).tolist()]


def shown(reports: int, power: float) -> tuple[float, float]:
    """Return the squared errors of Norm-Sub, and of scaling, over that of what is shown."""
    m = 74
    grr = GeneralizedRandomizedResponse(epsilon=1.0, domain_size=m)
    [(p, q)] = grr.support_pairs()
    rng = np.random.default_rng(SEED)
    weights = 1 / np.arange(1, m + 1) ** power
    truth = rng.multinomial(reports, weights / weights.sum())
    squares = np.zeros(3)
    for _ in range(200):
        kept = rng.binomial(truth, p - q)
        counts = kept + rng.multinomial(reports - kept.sum(), np.full(m, 1 / m))
        made = grr.frequencies(counts[None])
        values = np.array([each.value for each in made])
        scaled: NDArray[np.float64] = np.maximum(values, 0) / np.maximum(values, 0).sum()
        picked = consistent_shares(values, [each.standard_error for each in made])
        off = np.stack([picked, norm_sub(values), scaled]) - truth / reports
        squares += (off**2).sum(axis=1)
    return float(squares[1] / squares[0]), float(squares[2] / squares[0])


def main() -> None:
    """Print both tables."""
    table = Table(
        "reports", "significance by            <", "true names of 10", "false names", "false_names"
    )
    for reports in (5_000, 20_000):
        for rate, row in zip(RATES, names(reports), strict=True):
            by = f"false discovery rate {rate:g}" if rate else "familywise error 5 %"
            promised = f"{row[2]:.2f}" if rate else ""
            table.row(reports, by, f"{row[0]:.1f}", f"{row[1]:.2f}", promised)
    table = Table("reports", "shares", "Norm-Sub / shown", "scaled / shown")
    for reports in (1_000, 10_000, 100_000):
        for name, power in (("equal", 0.0), ("1/rank", 1.0), ("1/rank²", 2.0)):
            one, other = shown(reports, power)
            table.row(reports, name, f"{one:.2f}", f"{other:.2f}")


if __name__ == "__main__":
    main()
