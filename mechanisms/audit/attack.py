"""Attack a mechanism through its own sampler, and bound its loss from below."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mechanisms.audit.bounds import Attack, Guesses
from mechanisms.audit.guessing import PART, best_rule, fair_bits
from mechanisms.audit.learnt import Seen, views_of
from mechanisms.audit.pairs import NAME, Pair, column_of, worst_pair
from mechanisms.audit.suspects import other_pairs
from mechanisms.audit.views import Reader
from mechanisms.errors import ParameterError
from mechanisms.randomness import Source
from mechanisms.registry import LadderedMechanism

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

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


class Sampler(Protocol):
    """What draws chains: the ``randomize`` of a mechanism, or something in its place."""

    def __call__(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
        /,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``(n,)`` values: ``(n, levels, payload_width)`` ``uint8``."""
        ...


def attack(
    mechanism: LadderedMechanism,
    source: Source,
    *,
    trials: int = 200_000,
    confidence: float = 0.95,
    levels: int | None = None,
    pair: Pair | None = None,
    sampler: Sampler | None = None,
) -> Attack:
    """Tell inputs apart from whole chains, as somebody would who sees every rung.

    Three pairs of inputs are attacked: the one with the largest certified loss, one that a search
    among inputs drawn at random found suspicious, and one at random.

    Parameters
    ----------
    mechanism : LadderedMechanism
        The attacker knows it, and the public coins of every chain.
    source : Source
        Also of the secrets; the production sampler's is :class:`.SystemSource`.
    trials : int
        At least 10: how many chains of each input of the worst pair are drawn, on average. A fair
        secret bit decides of each of twice as many. The suspicious pair has a quarter of that, the
        random one an eighth, and the search a quarter.
    confidence : float
        In (0, 1), of the bound.
    levels : int, optional
        The rungs that are released, from the weakest on; all by default.
    pair : Pair, optional
        The inputs that alone are told apart; by default :func:`.worst_pair` and
        :func:`.other_pairs`.
    sampler : callable, optional
        What is attacked in the place of ``mechanism.randomize``.

    Returns
    -------
    Attack
        Its bound is above the true loss with probability ``1 - confidence`` at most. What to look
        at is chosen before the chains are drawn that count; of the pairs every one has its part of
        that probability (Bonferroni).

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
    draw = mechanism.randomize if sampler is None else sampler
    target = Target(mechanism, draw, shown, source)
    found = _several(target, trials) if pair is None else [target.guesses(pair, trials, 1.0)]
    return Attack(tuple(found), target.drawn, confidence)


@dataclass
class Target:
    """What is attacked, and how many chains were drawn of it.

    Parameters
    ----------
    mechanism : LadderedMechanism
    draw : callable
        Its sampler.
    levels : int
        The rungs that are seen.
    source : Source
    """

    mechanism: LadderedMechanism
    draw: Sampler
    levels: int
    source: Source
    drawn: int = 0

    def guesses(self, pair: Pair, trials: int, share: float) -> Guesses:
        """Guess which of two inputs chains hide, ``trials`` of either on average.

        A fifth of the chains, less where they are very wide, teaches the rule; the others, drawn
        after that, are counted.
        """
        import numpy as np

        reader = Reader(self.mechanism, pair)
        part = min(2 * trials // PART, max(_FEWEST, _LEARNT // self._row))
        secrets = fair_bits(2 * part, self.source)
        first, second = (self._seen(reader, half) for half in np.split(secrets, 2))
        views = views_of(first, secrets[:part])
        keys = {name: np.concatenate([view(first), view(second)]) for name, view in views.items()}
        name, rule = best_rule(keys, secrets)
        del first, second, keys
        right = guesses = 0
        left = 2 * trials - 2 * part
        for start in range(0, left, self.block):
            secrets = fair_bits(min(self.block, left - start), self.source)
            counts = rule.score(views[name](self._seen(reader, secrets)), secrets)
            right, guesses = right + counts[0], guesses + counts[1]
        return Guesses(right, guesses, name, share)

    def columns(
        self, values: Sequence[Any], chains: int
    ) -> Iterator[tuple[Any, NDArray[np.uint8], NDArray[np.uint64]]]:
        """Draw about so many chains, of each value in turn: the values, payloads and ids."""
        import numpy as np

        turns, each = max(1, chains // len(values)), max(1, self.block // (8 * len(values)))
        for start in range(0, turns, each):
            places = np.tile(np.arange(len(values)), min(each, turns - start))
            column = column_of(values, places)
            yield column, *self._drawn(column, len(places), NAME)

    @property
    def block(self) -> int:
        """Chains to draw at a time."""
        return max(64, min(_BLOCK, _BYTES // self._row))

    @property
    def _row(self) -> int:
        return self.mechanism.levels * self.mechanism.payload_width

    def _seen(self, reader: Reader, secrets: NDArray[np.bool_]) -> Seen:
        pair = reader.pair
        column = pair.column(secrets)
        return Seen(reader, *self._drawn(column, len(secrets), pair.name))

    def _drawn(
        self, column: Any, n: int, name: bytes
    ) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        import numpy as np

        chains = self.source.words(2 * n).reshape(n, 2)
        names = np.tile(np.frombuffer(name, dtype="<u8").astype(np.uint64), (n, 1))
        self.drawn += n
        return self.draw(column, chains, names, self.source)[:, : self.levels], chains


def _several(target: Target, trials: int) -> list[Guesses]:
    """Attack the worst pair, and where there are more than two inputs, two other ones."""
    others = other_pairs(target, int(_SEARCH * trials))
    worst = worst_pair(target.mechanism, target.levels - 1)
    found = [target.guesses(worst, trials, _WORST if others else 1.0)]
    for pair, part in zip(others, _OTHERS, strict=False):
        share = (1 - _WORST) / len(others)
        found.append(target.guesses(pair, max(10, int(part * trials)), share))
    return found
