"""Forward relaxation, with what has to stay fixed between one report and the next (Algorithm 1).

A report is relaxed given the value and the report before it. Were the value another one, the
rounding of a number drawn again, or one level drawn twice, the reports together would cost more
than the last of them, and it would not even be distributed as it should. (With a number rounded
anew at each of the levels 1, 1.5 and 2 the three cost 2.93.) Devices draw backward chains instead,
which need no state and no value that is kept.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import threading
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError, SottoError
from mechanisms.randomness import Source


class RelaxationStateError(SottoError):
    """A report is not relaxed: something that must stay fixed is not what it was."""


class RelaxationState:
    """The reports of one value so far, and all that is needed to relax the last of them.

    The first report is drawn when the state is made. The state keeps no value but a keyed hash of
    it, in memory alone: who holds key and hash could try all values, so it is never stored, copied
    or used in a process forked from the one that made it.

    The value is given as the mechanism's ``draw`` takes it; ``chain`` and ``pseudonym`` fix the
    public coins; ``level`` is that of the first report, the weakest by default.

    Privacy
    -------
    Any two values are neighbours; all reports together cost what the last of them costs,
    ``certified``. Not protected: the value against whoever reads the memory of the process, which
    holds it anyway to relax the next report.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> from mechanisms.testing import SeededSource
    >>> source = SeededSource(5)
    >>> grr = GeneralizedRandomizedResponse((0.5, 1.0, 2.0), domain_size=4)
    >>> state = RelaxationState(grr, 3, bytes(16), bytes(16), source)
    >>> report = state.relax(3, state.output, source)
    >>> state.level, state.certified
    (1, 1000000)
    >>> state.relax(2, report, source)
    Traceback (most recent call last):
    papers.gradual_release.state.RelaxationStateError: the value is not the one of the \
first report
    """

    def __init__(
        self,
        mechanism: Mechanism,
        symbol: Any,
        chain: bytes,
        pseudonym: bytes,
        source: Source,
        level: int = 0,
    ) -> None:
        if not 0 <= level < mechanism.levels:
            raise ParameterError(f"level must lie in [0, {mechanism.levels}), not {level}")
        self._mechanism, self._chain, self._pseudonym = mechanism, chain, pseudonym
        self._key = source.bits(256).to_bytes(32, "little")
        self._commitment = self._commit(symbol)
        self._level = level
        self._outputs: tuple[bytes, ...] = (
            mechanism.draw(symbol, chain, pseudonym, source)[level],
        )
        self._process, self._lock = os.getpid(), threading.Lock()

    @property
    def level(self) -> int:
        return self._level

    @property
    def output(self) -> bytes:
        """The last report."""
        return self._outputs[-1]

    @property
    def outputs(self) -> tuple[bytes, ...]:
        """All reports, weakest first."""
        return self._outputs

    @property
    def certified(self) -> int:
        """What all reports so far cost together, in micro-epsilon."""
        return self._mechanism.certified(self._level)

    def relax(
        self, symbol: Any, previous: bytes, source: Source, level: int | None = None
    ) -> bytes:
        """Draw the report of a higher level, given the value and the last report, and hold it.

        By default that of the next level; levels between are drawn as well. Raises
        ``RelaxationStateError`` and leaves the state as it was where the value is not the one of
        the first report, ``previous`` is not the last report, the level is not above the last one
        or not of the ladder, or the process was forked.
        """
        with self._lock:
            target = self._level + 1 if level is None else level
            self._check(symbol, previous, target)
            drawn = [previous]
            for higher in range(self._level + 1, target + 1):
                drawn.append(
                    self._mechanism.forward(
                        symbol, drawn[-1], higher, self._chain, self._pseudonym, source
                    )
                )
            self._outputs += tuple(drawn[1:])
            self._level = target
            return drawn[-1]

    def _check(self, symbol: Any, previous: bytes, level: int) -> None:
        if os.getpid() != self._process:
            raise RelaxationStateError("a state is used only by the process that made it")
        if not hmac.compare_digest(self._commit(symbol), self._commitment):
            raise RelaxationStateError("the value is not the one of the first report")
        if previous != self.output:
            raise RelaxationStateError("the previous report is not the last one that was drawn")
        if not level > self._level:
            raise RelaxationStateError(
                f"level {level} is not above {self._level}: amounts only increase, and no level "
                "is drawn twice"
            )
        if not level < self._mechanism.levels:
            raise RelaxationStateError(f"there is no level {level}: the ladder ends below it")

    def _commit(self, symbol: Any) -> bytes:
        return hmac.digest(self._key, _canonical(symbol).encode(), hashlib.sha256)

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a state is neither stored nor copied: two copies would draw a level twice")


def _canonical(symbol: Any) -> str:
    """Return the same text for values that a mechanism treats alike."""
    if symbol is None or isinstance(symbol, bytes):
        return repr(symbol)
    if isinstance(symbol, Integral):
        return str(int(symbol))
    if isinstance(symbol, Real):
        number = float(symbol)
        return str(int(number)) if number.is_integer() else number.hex()
    if hasattr(symbol, "tolist"):
        symbol = symbol.tolist()
    if isinstance(symbol, Sequence) and not isinstance(symbol, str):
        return f"({','.join(_canonical(part) for part in symbol)})"
    raise ParameterError(f"no mechanism takes a value of type {type(symbol).__name__}")
