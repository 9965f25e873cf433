"""What to look at in a chain: what is known of its mechanism, and what other chains have shown.

A *view* is a function of what is seen of chains. The first ones follow from the exact channels.
The others look at single bits and bytes, of one rung or of all, and at a linear score of all bits,
so that they also see what the channels do not explain: a bit that should say nothing, and does.
Which bits, and with which weights, is learnt from chains whose inputs are known.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from mechanisms.audit.guessing import Quantiles, key_of
from mechanisms.audit.linear import LinearScore, bit_sums
from mechanisms.audit.views import Reader, answers

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Bits, or bytes, that are compared at most.
_AT_ONCE = 1 << 24
#: How many standard deviations a share may be too large by chance, where bits are compared.
_SURE = 3.0


@dataclass(frozen=True, eq=False)
class Seen:
    """Chains, as an attacker sees them.

    Parameters
    ----------
    reader : Reader
    payloads : ndarray, shape (n, levels, payload_width), uint8
    chains : ndarray, shape (n, 2), uint64
    """

    reader: Reader
    payloads: NDArray[np.uint8]
    chains: NDArray[np.uint64]
    _ratios: dict[int, NDArray[np.float64]] = field(default_factory=dict)

    def ratio(self, level: int) -> NDArray[np.float64]:
        """Logarithms of likelihood ratios of one rung, ``(n,)``; e^-1000 stands for impossible."""
        import numpy as np

        level %= self.payloads.shape[1]
        if level not in self._ratios:
            found = self.reader.log_ratio(self.payloads[:, level], self.chains, level)
            self._ratios[level] = np.nan_to_num(np.clip(found, -1000, 1000))
        return self._ratios[level]

    @cached_property
    def ratios(self) -> NDArray[np.float64]:
        """Those of all rungs, ``(n, levels)``."""
        import numpy as np

        return np.stack([self.ratio(level) for level in range(self.payloads.shape[1])], axis=1)

    @cached_property
    def answers(self) -> NDArray[np.int64]:
        """The symbols that are reported, ``(n, levels, answers)``, if reports are symbols."""
        return answers(self.reader.mechanism, self.payloads)

    @cached_property
    def truths(self) -> NDArray[np.int64]:
        """What public coins make of both inputs, ``(n, 2, answers)``."""
        import numpy as np

        return np.stack(self.reader.asked(self.chains), axis=1)

    @cached_property
    def planes(self) -> NDArray[np.uint8]:
        """The bytes of all rungs, and in what every rung differs from the one below it."""
        import numpy as np

        changes = self.payloads[:, 1:] ^ self.payloads[:, :-1]
        return np.concatenate([self.payloads, changes], axis=1).reshape(len(self.payloads), -1)

    @cached_property
    def numbers(self) -> NDArray[np.float64]:
        """What of all rungs is no bit: ratios, and which input every answer is that of."""
        import numpy as np

        if self.answers.shape[2] < 2:
            return self.ratios
        one, other = self.truths[:, None, 0], self.truths[:, None, 1]
        agreed = (self.answers == other).astype(float) - (self.answers == one)
        return np.concatenate([self.ratios, agreed.reshape(len(agreed), -1)], axis=1)


View: TypeAlias = "Callable[[Seen], NDArray[np.uint64]]"


def views_of(seen: Seen, secrets: NDArray[np.bool_]) -> dict[str, View]:
    """Return views, the most natural one first, learnt from chains and the bits behind them.

    Parameters
    ----------
    seen : Seen
    secrets : ndarray, shape (n,), bool
        Which input each chain hides.
    """
    import numpy as np

    levels = seen.payloads.shape[1]
    views: dict[str, View] = {"the last rung": _number(seen, lambda seen: seen.ratio(-1))}
    if levels > 1:
        views["all rungs"] = lambda seen: key_of(np.rint(seen.ratios * 1e6).astype(np.int64))
        total = _number(seen, lambda seen: seen.ratios.sum(axis=1))
        views["the sum of all rungs"] = total
    if seen.answers.shape[2] == 1:
        views["the public coins and the answers"] = lambda seen: key_of(
            np.concatenate([seen.truths, seen.answers], axis=1)[:, :, 0]
        )
    views["the bytes"] = lambda seen: key_of(_words(seen.payloads))
    views |= _single(seen, secrets)
    score = LinearScore.fit(seen.planes, seen.numbers, secrets)
    views["a linear score of all bits"] = _number(
        seen, lambda seen: score(seen.planes, seen.numbers)
    )
    return views


def _number(seen: Seen, number: Callable[[Seen], NDArray[np.float64]]) -> View:
    """Return the cells of a number, their edges those of the chains that are learnt from."""
    quantiles = Quantiles.of(number(seen))
    return lambda seen: quantiles.keys(number(seen))


def _single(seen: Seen, secrets: NDArray[np.bool_]) -> dict[str, View]:
    """Return the most telling bit and byte of a rung, and those of all rungs together."""
    _, levels, width = seen.payloads.shape
    every = list(range(levels))
    level, bit = divmod(_best_bit(seen, secrets), 8 * width)
    views = {f"bit {bit} of rung {level + 1}": _bits([level], bit)}
    level, byte = divmod(_best_byte(seen, secrets), width)
    views[f"byte {byte} of rung {level + 1}"] = _bytes([level], byte)
    if levels > 1:
        bit = _best_joint_bit(seen, secrets)
        views[f"bit {bit} of all rungs"] = _bits(every, bit)
        # Of payloads of a byte these are all bytes.
        for column in sorted({byte, bit >> 3}) if width > 1 else ():
            views[f"byte {column} of all rungs"] = _bytes(every, column)
    return views


def _bits(levels: list[int], bit: int) -> View:
    import numpy as np

    def view(seen: Seen) -> NDArray[np.uint64]:
        return key_of(seen.payloads[:, levels, bit >> 3].astype(np.int64) >> (bit & 7) & 1)

    return view


def _bytes(levels: list[int], column: int) -> View:
    import numpy as np

    return lambda seen: key_of(seen.payloads[:, levels, column].astype(np.int64))


def _best_bit(seen: Seen, secrets: NDArray[np.bool_]) -> int:
    import numpy as np

    n, levels, width = seen.payloads.shape
    ones = bit_sums(seen.payloads.reshape(n, levels * width), secrets)
    totals = np.bincount(secrets, minlength=2)[:, None]
    return int(_worth(np.stack([ones, totals - ones], axis=2)).argmax())


def _best_joint_bit(seen: Seen, secrets: NDArray[np.bool_]) -> int:
    """Return the bit whose values at all rungs tell most."""
    import numpy as np

    _, levels, width = seen.payloads.shape
    some = slice(max(1000, _AT_ONCE // (8 * width)))
    cells = np.zeros((len(secrets[some]), 8 * width), dtype=np.int64)
    for level in range(levels):
        cells = cells << 1 | np.unpackbits(seen.payloads[some, level], axis=1, bitorder="little")
    return int(_worth(_table(cells, secrets[some], 1 << levels)).argmax())


def _best_byte(seen: Seen, secrets: NDArray[np.bool_]) -> int:
    import numpy as np

    n, levels, width = seen.payloads.shape
    some = slice(max(1000, _AT_ONCE // (levels * width)))
    cells = seen.payloads.reshape(n, levels * width)[some].astype(np.int64)
    return int(_worth(_table(cells, secrets[some], 256)).argmax())


def _table(cells: NDArray[np.int64], secrets: NDArray[np.bool_], size: int) -> NDArray[np.int64]:
    """Count cells by column and secret: ``(2, columns, size)``."""
    import numpy as np

    columns = cells.shape[1]
    places = cells + size * np.arange(columns) + size * columns * secrets[:, None]
    return np.bincount(places.ravel(), minlength=2 * columns * size).reshape(2, columns, size)


def _worth(table: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return for each column of ``(2, columns, cells)`` counts how sure a guess can be at best.

    The lower limit is E. B. Wilson's (1927): cheaper than the exact one, to choose by.
    """
    import numpy as np

    total, square = np.maximum(table.sum(axis=0), 1), _SURE**2
    share = table.max(axis=0) / total
    spread = _SURE * np.sqrt(share * (1 - share) / total + square / (4 * total**2))
    limit: NDArray[np.float64] = (share + square / (2 * total) - spread) / (1 + square / total)
    return np.asarray(limit.max(axis=1))


def _words(payloads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bytes of every chain as ``(n, k)`` words, padded with zeros."""
    import numpy as np

    flat = payloads.reshape(len(payloads), -1)
    padded = np.zeros((len(flat), -(-flat.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.int64)
