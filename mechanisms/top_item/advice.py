"""Which selection mechanism to use when, with the numbers that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, expm1, fsum, log

from mechanisms.errors import ParameterError
from mechanisms.exact import to_micro
from mechanisms.levels import GRAINS
from mechanisms.papers.exponential_randomized_response import ExponentialRandomizedResponse
from mechanisms.top_item.exponential import ExponentialMechanism
from mechanisms.top_item.flip_ladder import last_threshold
from mechanisms.top_item.flipping import float_flips
from mechanisms.top_item.mechanism import expected_error
from mechanisms.top_item.permute_and_flip import PermuteAndFlip
from mechanisms.top_item.propose_test_release import ProposeTestRelease
from mechanisms.top_item.scores import gaps

#: Up to so many items the loss of exponential randomized response is taken over all neighbours.
_ENUMERATED = 6


@dataclass(frozen=True)
class Candidate:
    """A mechanism on given scores.

    Parameters
    ----------
    name : str
    epsilon : float
        What it costs; of exponential randomized response what it loses at least, whatever its
        nominal amount.
    delta : float
    expected_error : float
        By how much the selected score is below the best, on average.
    wrong : float
        Probability that it is below the best.
    private : bool
        Whether epsilon and delta are proved for all scores.
    """

    name: str
    epsilon: float
    delta: float
    expected_error: float
    wrong: float
    private: bool


@dataclass(frozen=True)
class Advice:
    """The best private mechanism for given scores, and all that were weighed.

    Parameters
    ----------
    best : str
        Name of the private one with the least expected error.
    why : str
    candidates : tuple of Candidate
    """

    best: str
    why: str
    candidates: tuple[Candidate, ...]


def advise(
    scores: Sequence[int],
    epsilon: float,
    sensitivity: int = 1,
    *,
    delta: float = 0.0,
    p: float = 0.5,
    whole: bool = False,
) -> Advice:
    """Compare the mechanisms on scores that are typical of what is to be collected.

    The scores are those of a guess or of public data: on private ones the advice itself leaks.

    Parameters
    ----------
    scores : sequence of int, shape (n,), n >= 2
    epsilon : float
        In [2e-3, 40], the whole amount; propose-test-release splits it evenly.
    sensitivity : int
        Δ; with ``whole`` the bound to which scores are clipped.
    delta : float
        In (0, 1/2] to weigh propose-test-release too.
    p : float
        Of exponential randomized response, which is listed and never advised.
    whole : bool
        Whether all scores are one person's, as on a device: then any two vectors in [0, Δ] are
        neighbours, permute-and-flip is scaled to that, and generalized randomized response on the
        best item is weighed too.

    Returns
    -------
    Advice

    Raises
    ------
    ParameterError
        A parameter is outside its range.

    Examples
    --------
    >>> advice = advise([30, *[0] * 19], 1.0, delta=1e-6)
    >>> for c in advice.candidates:
    ...     print(f"{c.name:32}{c.wrong:.1e}{c.epsilon:6.2f}")
    exponential                     5.8e-06  1.00
    permute_and_flip                2.9e-06  1.00
    propose_test_release            5.2e-03  1.00
    exponential_randomized_response 2.9e-06  1.00
    >>> advice.best
    'permute_and_flip'
    >>> advise([9, 3, 0, 0, 0], 1.0, 10, whole=True).best
    'top_response'
    """
    if len(scores) < 2:
        raise ParameterError("scores must be at least two")
    weighed = [
        _candidate(name, epsilon, 0.0, scores, mechanism(epsilon, sensitivity).pmf(scores))
        for name, mechanism in (
            ("exponential", ExponentialMechanism),
            ("permute_and_flip", PermuteAndFlip),
        )
    ]
    if delta > 0:
        test = ProposeTestRelease(epsilon / 2, epsilon / 2, delta, sensitivity)
        law = test.pmf(scores)
        weighed.append(_candidate("propose_test_release", epsilon, delta, scores, law))
    if whole:
        if not all(0 <= score <= sensitivity for score in scores):
            raise ParameterError(f"scores of one person must lie in [0, {sensitivity}]")
        law = _clipped_flips(scores, epsilon, sensitivity)
        weighed[1] = _candidate("permute_and_flip", epsilon, 0.0, scores, law)
        weighed.append(
            _candidate("top_response", epsilon, 0.0, scores, _best_kept(scores, epsilon))
        )
    best = min(weighed, key=lambda candidate: candidate.expected_error)
    published = ExponentialRandomizedResponse(p, epsilon, sensitivity)
    weighed.append(
        Candidate(
            "exponential_randomized_response",
            least_loss(published, scores),
            0.0,
            expected_error(scores, published.pmf(scores)),
            _wrong(scores, published.pmf(scores)),
            private=False,
        )
    )
    return Advice(best.name, _WHY[best.name], tuple(weighed))


_WHY = {
    "exponential": "as good as permute-and-flip on these scores",
    "permute_and_flip": "never worse than the exponential mechanism, and exactly epsilon",
    "propose_test_release": "the best item is so far ahead, of so many, that delta pays",
    "top_response": "one person's scores can all change at once: randomize the best item",
}


def least_loss(published: ExponentialRandomizedResponse, scores: Sequence[int]) -> float:
    """Return what exponential randomized response loses between these scores and neighbours.

    All neighbours with changes of 0 and ±Δ up to 6 items; of more items those in which one of the
    best changes, and all others stay or change the other way.
    """
    step, n = published.sensitivity, len(scores)
    if n <= _ENUMERATED:
        moves = list(product((-1, 0, 1), repeat=n))
    else:
        moves = [
            tuple(sign if place == at else rest for place in range(n))
            for at in _first_of_each(scores)
            for sign in (-1, 1)
            for rest in (0, -sign)
        ]
    return max(
        published.loss(scores, [q + step * m for q, m in zip(scores, move, strict=True)])
        for move in moves
    )


def _first_of_each(scores: Sequence[int]) -> list[int]:
    """Return the places of one item of each of the best scores."""
    first = {score: place for place, score in reversed(list(enumerate(scores)))}
    return [first[score] for score in sorted(first, reverse=True)[:_ENUMERATED]]


def _candidate(
    name: str, epsilon: float, delta: float, scores: Sequence[int], law: Sequence[float]
) -> Candidate:
    error = expected_error(scores, law)
    return Candidate(name, epsilon, delta, error, _wrong(scores, law), private=True)


def _wrong(scores: Sequence[int], law: Sequence[float]) -> float:
    best = max(scores)
    return fsum(share for score, share in zip(scores, law, strict=True) if score < best)


def _clipped_flips(scores: Sequence[int], epsilon: float, clip: int) -> list[float]:
    """Return the law of permute-and-flip on one person's clipped scores."""
    slope = log(last_threshold(len(scores), to_micro(epsilon)) / GRAINS) / clip
    return float_flips([slope * gap for gap in gaps(scores)])


def _best_kept(scores: Sequence[int], epsilon: float) -> list[float]:
    """Return the law of generalized randomized response on the best item, ties at random."""
    n, best = len(scores), max(scores)
    other = exp(-epsilon) / (1 + (n - 1) * exp(-epsilon))
    more = -expm1(-epsilon) / (1 + (n - 1) * exp(-epsilon))
    ties = list(scores).count(best)
    return [other + (more / ties if score == best else 0.0) for score in scores]
