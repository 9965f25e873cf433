"""What the library has beside ladders: selections by score, and constant values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mechanisms.audit.cases import Case, Release, Views
from mechanisms.audit.guessing import key_of, score_key
from mechanisms.category.grr import GrrLadder, grr_ladder
from mechanisms.exact import MICRO
from mechanisms.randomness import Source
from mechanisms.top_item.exponential import ExponentialMechanism
from mechanisms.top_item.mechanism import SelectionMechanism
from mechanisms.top_item.permute_and_flip import PermuteAndFlip

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: Periods in which a constant value is reported.
_PERIODS = 52


def beside() -> tuple[Case, ...]:
    """Return all of them, with what they are certified at as what is true."""
    selections = [
        _selection("exponential mechanism", "McSherry, Talwar 2007", ExponentialMechanism(1.0)),
        _selection("permute-and-flip", "McKenna, Sheldon 2020", PermuteAndFlip(1.0)),
    ]
    return (*selections, _constant())


def _selection(name: str, source: str, mechanism: SelectionMechanism) -> Case:
    """Return a selection between neighbours that change both of two scores."""
    scores = [0, 6], [1, 5]
    return Case(
        f"{name}, scores (0, 6) and (1, 5)",
        source,
        mechanism.epsilon,
        mechanism.certified / MICRO,
        _selected(mechanism, scores),
        "",
        4,
    )


def _selected(mechanism: SelectionMechanism, scores: Sequence[Sequence[int]]) -> Release:
    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        items = [mechanism.select(scores[secret], source) for secret in secrets.tolist()]
        return {"the item": key_of(np.array(items, dtype=np.int64)[:, None])}

    return release


def _constant() -> Case:
    """Return one value in all periods of a year, all of them linked."""
    ladder = grr_ladder(2, [500_000, 1_000_000, 2_000_000], "audit")
    return Case(
        f"a constant value, {_PERIODS} linked periods at 0.5 and 1",
        "Erlingsson et al., CCS 2014",
        2.0,
        ladder.certified(2) / MICRO,
        _periods(ladder),
        "",
        4,
    )


def _periods(ladder: GrrLadder) -> Release:
    def release(secrets: NDArray[np.bool_], source: Source) -> Views:
        import numpy as np

        ids = np.zeros((len(secrets), 2), dtype=np.uint64)
        drawn = ladder.randomize(secrets.astype(np.int64), ids, ids, source)
        permanent = drawn[:, -1, 0].astype(np.int64)
        said = np.zeros(len(secrets))
        for _ in range(_PERIODS):
            report = permanent
            for step in reversed(ladder.chain.degradations):  # type: ignore[attr-defined]
                report = step.apply_many(report, source.words(len(report)))
            said += 2.0 * report - 1
        return {"all periods": score_key(said), "whether most say 1": score_key(np.sign(said))}

    return release
