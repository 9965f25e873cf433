"""The cost of LOLOHA's memoization if a value changes once.

A device hashes its value to one of g cells, by a public hash function of its own. It keeps one
permanent randomized response for every cell, and reports in every collection a fresh randomized
response to the permanent one of its present cell. The claim is g times the epsilon of a permanent
response, because there are g of them. That bounds what the permanent responses disclose. But which
of them a report is about depends on the value too, and that is disclosed anew by every report:
after enough reports it is plain that the value changed, and when.

References
----------
H. H. Arcolezi, C. Pinzón, C. Palamidessi, S. Gambs, "Frequency Estimation of Evolving Data Under
Local Differential Privacy", EDBT 2023, arXiv:2210.00262.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from mechanisms.arrays import Bools
from mechanisms.audit.cases import Case, Views, unit
from mechanisms.audit.guessing import key_of, score_key
from mechanisms.errors import ParameterError
from mechanisms.exact import log_ratio
from mechanisms.randomness import Source

_LARGEST = 16


@dataclass(frozen=True)
class BinaryLoloha:
    """LOLOHA with two cells (BiLOLOHA).

    ``permanent`` is the epsilon of a permanent response, the paper's ε∞; ``first`` that of a first
    report, ε1, in (0, permanent).

    >>> loloha = BinaryLoloha(2.0, 1.0)
    >>> loloha.claimed
    4.0
    >>> round(loloha.instantaneous, 4)
    1.4076
    """

    permanent: float
    first: float

    def __post_init__(self) -> None:
        if not 0 < self.first < self.permanent:
            raise ParameterError(f"first must lie in (0, {self.permanent}), not {self.first}")

    @property
    def claimed(self) -> float:
        """The claim for all reports together: g ε∞."""
        return 2 * self.permanent

    @property
    def instantaneous(self) -> float:
        """The epsilon of a report about its permanent response: ε_IRR, for two cells."""
        both, rest = -(self.permanent + self.first), self.first - self.permanent
        return self.first + math.log(math.expm1(both) / math.expm1(rest))

    @property
    def kept(self) -> tuple[float, float]:
        """With which probability a permanent response, and a report, is what it is about."""
        return _kept(self.permanent), _kept(self.instantaneous)

    def laws(self, before: int, after: int) -> tuple[list[list[Fraction]], list[list[Fraction]]]:
        """Return the likelihoods of reports under two histories.

        In the first, the value lies in cell 1 throughout; in the second, it does so in the first
        ``before`` collections and lies in cell 0 in the ``after`` ones that follow. A likelihood is
        that of any given reports with so many ones before (row) and after (column), exact for
        :attr:`kept` as floats.
        """
        right, report = map(Fraction, self.kept)
        # By the permanent response that they are about: how likely given reports are.
        early, late = (
            [[_given(report, ones, size, bit) for bit in (0, 1)] for ones in range(size + 1)]
            for size in (before, after)
        )
        same = [[(1 - right) * a[0] * b[0] + right * a[1] * b[1] for b in late] for a in early]
        first = [(1 - right) * a[0] + right * a[1] for a in early]
        then = [right * b[0] + (1 - right) * b[1] for b in late]
        return same, [[a * b for b in then] for a in first]

    def loss(self, before: int, after: int) -> float:
        """Return the largest logarithm of a likelihood ratio between both histories."""
        return max(abs(ratio) for row in self._log_ratios(before, after) for ratio in row)

    def _log_ratios(self, before: int, after: int) -> list[list[float]]:
        same, changed = self.laws(before, after)
        return [
            [log_ratio(c, s) for s, c in zip(*rows, strict=True)]
            for rows in zip(same, changed, strict=True)
        ]

    def release(self, before: int, after: int, secrets: Bools, source: Source) -> Views:
        """Draw the reports of the first history, or of the second one."""
        right, report = self.kept
        n, ones = len(secrets), []
        response = unit(n, source) < right
        for size in (before, after):
            total = np.zeros(n, dtype=np.int64)
            for _ in range(size):
                total += response ^ (unit(n, source) >= report)
            ones.append(total)
            # Cell 0 has a permanent response of its own.
            response = np.where(secrets, unit(n, source) >= right, response)
        ratios = np.array(self._log_ratios(before, after))[ones[0], ones[1]]
        # No number of chains that can be drawn distinguishes larger ratios.
        whole = score_key(np.clip(np.rint(ratios), -_LARGEST, _LARGEST))
        return {"the likelihood ratio": whole, "the counts": key_of(np.stack(ones, axis=1))}


def claims(before: int = 26, after: int = 26) -> list[Case]:
    """Return the claim for ε∞ = 2 and ε1 = 1, and one change among so many collections."""
    binary = BinaryLoloha(2.0, 1.0)
    return [
        Case(
            f"BiLOLOHA, 2 and 1, value changed once in {before + after} reports",
            "Arcolezi et al. (LOLOHA), EDBT 2023",
            binary.claimed,
            binary.loss(before, after),
            partial(binary.release, before, after),
            "which permanent response is used depends on the value",
            8,
        )
    ]


def _kept(epsilon: float) -> float:
    return 1 / (1 + math.exp(-epsilon))


def _given(report: Fraction, ones: int, size: int, bit: int) -> Fraction:
    """Return how likely given reports about a permanent response are."""
    agreeing = ones if bit else size - ones
    return report**agreeing * (1 - report) ** (size - agreeing)
