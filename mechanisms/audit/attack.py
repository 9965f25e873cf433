"""Attack what makes reports, of a device or a batch, and bound its loss from below."""

from __future__ import annotations

from typing import Any

import numpy as np

from mechanisms.audit.guessing import PART, Attack, best_rule, fair_bits
from mechanisms.audit.reports import Sampler
from mechanisms.audit.seen import Seen, views_of
from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.randomness import Source

#: Chains drawn at a time, and bytes of their payloads.
_BLOCK, _BYTES = 1 << 15, 1 << 23
#: Bytes of payloads from which a rule is learnt, and the fewest chains where they are wide.
_LEARNT, _FEWEST = 1 << 26, 1000
#: So many inputs of either kind are as many as anybody should wait for.
MAX_TRIALS = 50_000_000


def attack(
    mechanism: Mechanism,
    sampler: Sampler,
    source: Source,
    *,
    trials: int = 200_000,
    confidence: float = 0.95,
    levels: int | None = None,
    pair: tuple[Any, Any] | None = None,
) -> Attack:
    """Distinguish two inputs by whole chains, as somebody would who sees every level.

    The attacker knows the mechanism and the public coins of every chain. A fifth of the chains,
    less where they are very wide, teaches the rule; the later ones count.

    Parameters
    ----------
    sampler : Sampler
        Makes the reports: a device's (``sotto_cli.simulation.sampler``), or :func:`.batch_sampler`.
    source : Source
        Draws the secrets, and what a batch draws; in production :class:`.SystemSource`.
    trials : int
        At least 10: how many chains of each input are drawn, on average. A fair secret bit decides
        of each of twice as many.
    confidence : float in (0, 1)
        The bound is above the true loss with probability ``1 - confidence`` at most.
    levels : int, optional
        The levels that are released, from the weakest on; all by default.
    pair : optional
        The inputs; by default those with the largest certified loss.

    Examples
    --------
    >>> from mechanisms.audit.reports import batch_sampler
    >>> from mechanisms.registry import build
    >>> from mechanisms.testing import SeededSource
    >>> grr = build({"name": "grr", "domain_size": 4}, [500_000, 1_000_000], "colour")
    >>> found = attack(grr, batch_sampler(grr), SeededSource(1), trials=50_000)
    >>> 0.95 < found.epsilon < 1.01
    True
    """
    if not 10 <= trials <= MAX_TRIALS:
        raise ParameterError(f"trials must lie in [10, {MAX_TRIALS}], not {trials}")
    shown = mechanism.levels if levels is None else levels
    if not 1 <= shown <= mechanism.levels:
        raise ParameterError(f"levels must lie in [1, {mechanism.levels}], not {shown}")
    inputs = mechanism.worst_inputs(shown - 1) if pair is None else pair

    def seen(secrets: Any) -> Seen:
        reports = sampler(inputs, secrets.astype(np.int64), source)
        return Seen(mechanism, inputs, reports.payloads[:, :shown], reports.chains)

    row = mechanism.levels * mechanism.payload_width
    part = min(2 * trials // PART, max(_FEWEST, _LEARNT // row))
    secrets = fair_bits(2 * part, source)
    first, second = (seen(half) for half in np.split(secrets, 2))
    views = views_of(first, secrets[:part])
    keys = {name: np.concatenate([view(first), view(second)]) for name, view in views.items()}
    name, rule = best_rule(keys, secrets)
    del first, second, keys
    right = guesses = 0
    left, block = 2 * trials - 2 * part, max(64, min(_BLOCK, _BYTES // row))
    for start in range(0, left, block):
        secrets = fair_bits(min(block, left - start), source)
        counts = rule.score(views[name](seen(secrets)), secrets)
        right, guesses = right + counts[0], guesses + counts[1]
    return Attack(right, guesses, name, 2 * trials, confidence)
