"""Find two inputs that a sampler may tell apart better than it should, from a few chains of many.

A fault can depend on the input. Chains of many inputs, drawn at random, are compared rung by rung:
bit by bit, or as a whole where a report is one byte; in how a rung differs from the next; and in
how often a report is what public coins make of its input. The inputs that are farthest from all
others are compared again, with more chains, and the two that differ most are attacked. All of this
only chooses a pair: the chains of the attack are drawn afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mechanisms.audit.pairs import Pair, some_inputs
from mechanisms.audit.views import answers, truths
from mechanisms.base import Mechanism
from mechanisms.randomness import Source
from mechanisms.sampling import uniform_below

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Inputs that are compared, fewer where reports are very wide, and those that are compared again.
_INPUTS, _AGAIN = 256, 16
#: Shares of inputs and bits that are kept.
_SHARES = 1 << 21
#: A share counts if it is so many standard deviations from that of all inputs.
_FAR = 4.0


class Drawer(Protocol):
    """What draws chains of many inputs; :class:`mechanisms.audit.attack.Target`."""

    @property
    def mechanism(self) -> Mechanism:
        """What is drawn."""
        ...

    @property
    def source(self) -> Source:
        """What inputs are chosen with."""
        ...

    def columns(
        self, values: Sequence[Any], chains: int
    ) -> Iterator[tuple[Any, NDArray[np.uint8], NDArray[np.uint64]]]:
        """Draw chains of each value in turn: the values, payloads and ids, in whole turns."""
        ...


def other_pairs(target: Drawer, chains: int) -> list[Pair]:
    """Return a suspicious pair of inputs, and one at random; nothing where there are but two.

    Parameters
    ----------
    target : Drawer
    chains : int
        About as many are drawn.
    """
    width = target.mechanism.levels * target.mechanism.payload_width
    count = max(4, min(_INPUTS, _SHARES // (16 * width)))
    inputs = some_inputs(target.mechanism, count, target.source)
    if len(inputs) < 3:
        return []
    first = uniform_below(len(inputs), target.source)
    second = (first + 1 + uniform_below(len(inputs) - 1, target.source)) % len(inputs)
    return [_suspicious(target, inputs, chains), Pair((inputs[first], inputs[second]))]


def _suspicious(target: Drawer, inputs: list[Any], chains: int) -> Pair:
    import numpy as np

    if len(inputs) > _AGAIN:
        chains //= 2
        logs, common = _logs(target, inputs, chains)
        far = _differences(logs, common)
        inputs = [inputs[place] for place in np.argsort(-far, kind="stable")[:_AGAIN]]
    logs, _ = _logs(target, inputs, chains)
    table = np.array([_differences(logs, row[None]) for row in logs])
    one, other = divmod(int(table.argmax()), len(inputs))
    if one == other:
        one, other = 0, 1
    return Pair((inputs[one], inputs[other]))


def _differences(logs: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how much reports could tell, summed over the cells of a plane, of the best plane."""
    import numpy as np

    gaps: NDArray[np.float64] = np.abs(logs - other).max(axis=2)
    return np.asarray(gaps.sum(axis=2).max(axis=1))


def _logs(
    target: Drawer, inputs: Sequence[Any], chains: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the logarithms of the shares of every cell, and of all but it, of reports.

    Returns
    -------
    ndarray, shape (inputs, planes, 2, cells)
        By input. Shares that chance could have moved are those of all inputs.
    ndarray, shape (1, planes, 2, cells)
        Of all inputs.
    """
    import numpy as np

    turns, ones = _counts(target, inputs, chains)
    # Half of a one and of a zero more, so that no share is 0 or 1.
    shares, common = (ones + 0.5) / (turns + 1), (ones.mean(axis=0) + 0.5) / (turns + 1)
    spread = np.sqrt(common * (1 - common) / turns)
    shares = np.where(np.abs(shares - common) > _FAR * spread, shares, common)
    logs = [np.log(np.stack([part, 1 - part], axis=-2)) for part in (shares, common[None])]
    return logs[0], logs[1]


def _counts(target: Drawer, inputs: Sequence[Any], chains: int) -> tuple[int, NDArray[np.int64]]:
    """Return how many chains each input had, and how many of them had what in every plane."""
    import numpy as np

    turns, total = 0, np.zeros(1, dtype=np.int64)
    for column, payloads, ids in target.columns(inputs, chains):
        changes = payloads[:, 1:] ^ payloads[:, :-1]
        found = _tally(np.concatenate([payloads, changes], axis=1), len(inputs))
        true = truths(target.mechanism, column, ids)[:, None] == answers(target.mechanism, payloads)
        if true.shape[2]:
            agreed = true.reshape(-1, len(inputs), *true.shape[1:]).sum(axis=0)
            room = (0, 0), (0, 0), (0, found.shape[2] - agreed.shape[2])
            found = np.concatenate([found, np.pad(agreed, room)], axis=1)
        turns, total = turns + len(payloads) // len(inputs), total + found
    return turns, total


def _tally(planes: NDArray[np.uint8], inputs: int) -> NDArray[np.int64]:
    """Count set bits, or of planes of one byte its values: ``(inputs, planes, cells)``."""
    import numpy as np

    n, count, width = planes.shape
    if width > 1:
        bits = np.unpackbits(planes, axis=2, bitorder="little")
        by_turn = bits.reshape(-1, inputs, count, 8 * width)
        return np.asarray(by_turn.sum(axis=0, dtype=np.int64))
    rows = count * (np.arange(n) % inputs)[:, None] + np.arange(count)
    cells = 256 * rows + planes[:, :, 0]
    return np.bincount(cells.ravel(), minlength=256 * inputs * count).reshape(inputs, count, 256)
