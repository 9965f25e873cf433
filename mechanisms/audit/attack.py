"""Attack a mechanism through its own sampler, and bound its loss from below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mechanisms.audit.bounds import Attack
from mechanisms.audit.guessing import guess, key_of, score_key
from mechanisms.audit.pairs import Pair, worst_pair
from mechanisms.audit.views import Reader
from mechanisms.errors import ParameterError
from mechanisms.ladders import LadderedMechanism
from mechanisms.randomness import Source

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Chains drawn at a time, and bytes of their payloads.
_BLOCK, _BYTES = 1 << 15, 1 << 23
#: So many inputs of either kind are as many as anybody should wait for.
MAX_TRIALS = 50_000_000


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
    """Tell two inputs apart from whole chains, as somebody would who sees every rung.

    Parameters
    ----------
    mechanism : LadderedMechanism
        The attacker knows it, and the public coins of every chain.
    source : Source
        Also of the secrets; the production sampler's is :class:`.SystemSource`.
    trials : int
        At least 10: how many chains of each of both inputs are drawn, on average. A fair secret bit
        decides of each of twice as many.
    confidence : float
        In (0, 1), of the bound.
    levels : int, optional
        The rungs that are released, from the weakest on; all by default.
    pair : Pair, optional
        The inputs; by default :func:`.worst_pair`.
    sampler : callable, optional
        What is attacked in the place of ``mechanism.randomize``.

    Returns
    -------
    Attack
        Its bound is above the true loss with probability ``1 - confidence`` at most.

    Examples
    --------
    >>> from mechanisms.ladders import build
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
    inputs = worst_pair(mechanism, shown - 1) if pair is None else pair
    draw = mechanism.randomize if sampler is None else sampler
    secrets = fair_bits(2 * trials, source)
    views = _views(mechanism, inputs, secrets, draw, shown, source)
    return guess(views, secrets, confidence)


def fair_bits(n: int, source: Source) -> NDArray[np.bool_]:
    """Return ``(n,)`` independent fair bits."""
    import numpy as np

    bits: NDArray[np.bool_] = (source.words(n) >> np.uint64(63)).astype(bool)
    return bits


def _views(
    mechanism: LadderedMechanism,
    pair: Pair,
    secrets: NDArray[np.bool_],
    draw: Sampler,
    levels: int,
    source: Source,
) -> dict[str, NDArray[np.uint64]]:
    """Draw chains and return what is seen of them: ratios by rung, their sum, and the bytes."""
    import numpy as np

    n, reader = len(secrets), Reader(mechanism, pair)
    ratios, raw = np.empty((n, levels)), np.empty(n, dtype=np.uint64)
    names = np.frombuffer(pair.name, dtype="<u8").astype(np.uint64)
    block = max(64, min(_BLOCK, _BYTES // (mechanism.levels * mechanism.payload_width)))
    for start in range(0, n, block):
        part = slice(start, min(start + block, n))
        size = part.stop - start
        chains = source.words(2 * size).reshape(size, 2)
        pseudonyms = np.tile(names, (size, 1))
        payloads = draw(pair.column(secrets[part]), chains, pseudonyms, source)[:, :levels]
        ratios[part] = reader.log_ratios(payloads, chains)
        raw[part] = key_of(_words(payloads))
    # What cannot be under an input is as likely as e^-1000.
    ratios = np.nan_to_num(np.clip(ratios, -1000, 1000))
    views = {"the last rung": score_key(ratios[:, -1])}
    if levels > 1:
        views["all rungs"] = key_of(np.rint(ratios * 1e6).astype(np.int64))
        views["the sum of all rungs"] = score_key(ratios.sum(axis=1))
    views["the bytes"] = raw
    return views


def _words(payloads: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the bytes of every chain as ``(n, k)`` words, padded with zeros."""
    import numpy as np

    flat = payloads.reshape(len(payloads), -1)
    padded = np.zeros((len(flat), -(-flat.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : flat.shape[1]] = flat
    return padded.view(np.int64)
