"""Candidates for a question, ranked by their predicted error, each with a sentence of advice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.planner.predictions import mean_variance
from mechanisms.registry import build

Spec = Mapping[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A mechanism and how well it would do.

    Attributes
    ----------
    spec : mapping
        Its name and parameters, as :func:`mechanisms.registry.build` takes them.
    error : float
        Predicted root mean squared error: of a share, averaged over the categories; of a mean or
        a quantile, in parts of the range.
    excess : float
        By what part the error is larger than that of the best candidate.
    payload : int
        Bytes of a report's payload.
    certified : int
        Micro-epsilon of the last rung.
    relaxable : bool
        Whether the ladder asked for has more than one rung, all of them degradations of the last.
    advice : str
        One sentence.
    """

    spec: Spec
    error: float
    excess: float
    payload: int
    certified: int
    relaxable: bool
    advice: str


@dataclass(frozen=True)
class Ranking:
    """All candidates for a question, the one with the least predicted error first.

    Attributes
    ----------
    question : str
    n : int
        Reports.
    candidates : tuple of Candidate
    refused : mapping of str to str
        Mechanisms that cannot be had, and why.
    """

    question: str
    n: int
    candidates: tuple[Candidate, ...]
    refused: Mapping[str, str]

    @property
    def best(self) -> Candidate:
        """The candidate with the least predicted error."""
        return self.candidates[0]

    @property
    def sentence(self) -> str:
        """What to do, and what the next best would cost."""
        best = self.best
        text = f"{best.spec['name']}: predicted error {best.error:.3g} of {self.question}"
        text += f" from {self.n} reports at epsilon {best.certified / MICRO:g}"
        if len(self.candidates) > 1:
            other = self.candidates[1]
            text += f"; {other.spec['name']} would have {100 * other.excess:.3g} % more"
        return f"{text}. {best.advice}"


def rank(
    question: str,
    specs: Iterable[Spec],
    ladder: Sequence[int],
    n: int,
    error: Callable[[Mechanism, int], float],
) -> Ranking:
    """Build the mechanisms, predict their errors and put them in order.

    Parameters
    ----------
    question : str
    specs : iterable of mapping
        Mechanisms, as :func:`mechanisms.registry.build` takes them; of those that are alike, the
        ones with the smaller payload and then the ones given first are put first.
    ladder : sequence of int
    n : int
    error : callable
        From a mechanism and a level to its error.

    Raises
    ------
    ParameterError
        None can be built.
    """
    found: list[tuple[float, Spec, Mechanism]] = []
    refused: dict[str, str] = {}
    for spec in specs:
        try:
            mechanism = build(spec, ladder, "choice")
        except ParameterError as problem:
            refused[str(spec["name"])] = str(problem)
            continue
        found.append((error(mechanism, len(ladder) - 1), spec, mechanism))
    if not found:
        raise ParameterError("; ".join(dict.fromkeys(refused.values())) or "no mechanism")
    found.sort(key=lambda item: (float(f"{item[0]:.9g}"), item[2].payload_width))
    least = found[0][0]
    candidates = tuple(
        Candidate(
            spec,
            each,
            max(each / least - 1, 0.0),
            mechanism.payload_width,
            mechanism.certified(len(ladder) - 1),
            len(ladder) > 1,
            _ADVICE[str(spec["name"])],
        )
        for each, spec, mechanism in found
    )
    return Ranking(question, n, candidates, refused)


def crossover(first: Spec, second: Spec, low: int, high: int, *, n: int = 10**9) -> int:
    """Return the micro-epsilon from which on ``second`` has the smaller worst-case variance.

    Parameters
    ----------
    first, second : mapping
        Mechanisms for a number, as :func:`mechanisms.registry.build` takes them.
    low, high : int
        Micro-epsilon at which ``first`` is better, and at which ``second`` is.
    n : int
        Reports.

    Examples
    --------
    >>> threshold = {"name": "threshold", "missing": False}
    >>> crossover(threshold, {"name": "duchi", "missing": False}, 1, 2)
    Traceback (most recent call last):
    mechanisms.errors.ParameterError: the first must be better at low, the second at high
    """

    def better(micro: int) -> bool:
        one, other = (build(spec, [micro], "") for spec in (first, second))
        return mean_variance(one, 0, n=n) <= mean_variance(other, 0, n=n)

    if not (low < high and better(low) and not better(high)):
        raise ParameterError("the first must be better at low, the second at high")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if better(middle) else (low, middle)
    return high


_ADVICE = {
    "grr": "The least payload and the simplest; best for few categories or a large epsilon.",
    "oue": "A bit a category; as good as local hashing, and counted fastest.",
    "sue": "A bit a category; never better than oue at the same epsilon.",
    "local_hashing": "A few bits whatever the domain; the aggregator works for every category.",
    "subset": "The least error of all in theory; a report names many categories.",
    "hadamard": "A few bits and a fast transform; close to the least error.",
    "rappor": "Finds strings nobody has listed; with a list, local hashing varies far less.",
    "threshold": "Also gives the distribution with intervals; needs a coin from the chain id.",
    "duchi": "One bit without a coin; nothing but the mean.",
    "hybrid": "The least worst case without a coin; nothing but the mean.",
    "piecewise": "Less than the hybrid unless values crowd at the ends of the range.",
    "square_wave": "Made for the shape of a smooth distribution, which it estimates with a bias.",
    "sampled_bit": "Also gives the means of the bits; better than one bit only on skewed data.",
    "sampled_bits": "Also gives the means of the bits; more draws pay at a large epsilon.",
    "split_bits": "For the means of all bits at once; the mean itself varies much more.",
}
