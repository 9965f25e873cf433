"""What the library claims: every mechanism, with parameters at which an audit attacks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from typing import TypeAlias

import numpy as np

from mechanisms.arrays import Bools
from mechanisms.audit.attack import attack
from mechanisms.audit.cases import Case, Views
from mechanisms.audit.guessing import Attack, key_of, score_key
from mechanisms.base import Mechanism
from mechanisms.category.grr import GeneralizedRandomizedResponse
from mechanisms.exact import MICRO, loss_micro, to_micro
from mechanisms.randomness import Source
from mechanisms.registry import build
from mechanisms.survey.design import cards_of
from mechanisms.top_item.selection import (
    ExponentialMechanism,
    PermuteAndFlipSelection,
    SelectionMechanism,
)

#: A parameter of a mechanism.
Parameter: TypeAlias = object
#: Periods in which a constant value is reported.
_PERIODS = 52
#: What chance may do to a verdict: of all verdicts of an audit together.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Claim:
    """A mechanism of the registry and where it comes from.

    ``parameters`` are those of an audit; one that depends on epsilon is a function of the strongest
    amount.
    """

    name: str
    source: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def spec(self, micro: int) -> dict[str, Parameter]:
        """Return the mechanism as the registry takes it."""
        spec: dict[str, Parameter] = {"name": self.name}
        for key, value in self.parameters.items():
            spec[key] = value(micro) if callable(value) else value
        return spec

    def build(self, ladder: Sequence[int]) -> Mechanism:
        """Return the mechanism with a ladder in micro-epsilon."""
        return build(self.spec(ladder[-1]), ladder, "audit")


def _cards(micro: int) -> tuple[int, int, int]:
    return cards_of(Fraction(micro, MICRO), Fraction(1, 100))


_NUMBER: Mapping[str, Parameter] = {"points": 33, "missing": False}
_WANG = "N. Wang et al., ICDE 2019"
_TIANHAO = "T. Wang et al., USENIX Security 2017"
#: All mechanisms that a plan can name.
LIBRARY: tuple[Claim, ...] = (
    Claim("grr", "Kairouz et al., ICML 2016", {"domain_size": 4}),
    Claim("sue", _TIANHAO, {"domain_size": 16}),
    Claim("oue", _TIANHAO, {"domain_size": 16}),
    Claim("local_hashing", _TIANHAO, {"domain_size": 100, "buckets": 5}),
    Claim("subset", "M. Ye, A. Barg 2018", {"domain_size": 10, "subset_size": 3}),
    Claim("hadamard", "J. Acharya et al., AISTATS 2019", {"domain_size": 16, "blocks": 2}),
    Claim("rappor", "Erlingsson et al., CCS 2014", {"bits": 64, "hashes": 2, "cohorts": 4}),
    Claim("threshold", "this library", {"missing": False}),
    Claim("duchi", "J. Duchi et al., JASA 2018", {"missing": False}),
    Claim("piecewise", _WANG, _NUMBER),
    Claim("hybrid", _WANG, _NUMBER),
    Claim("square_wave", "Z. Li et al., SIGMOD 2020", _NUMBER),
    Claim("sampled_bit", "G. Cormode, I. Markov 2021", {"bits": 8, "missing": False}),
    Claim("sampled_bits", "this library", {"bits": 8, "count": 2, "missing": False}),
    Claim("split_bits", "this library", {"bits": 4, "missing": False}),
    Claim("sampled_vector", "this library", {"dimensions": 8, "sampled": 2, "bits": 0}),
    Claim("sampled_hybrid", _WANG, {"dimensions": 8, "sampled": 2, "points": 17}),
    Claim(
        "brr",
        "S. Zhang et al. (BRR), eq. 7",
        {"domain_size": 20, "subset_size": 7, "missing": False},
    ),
    Claim("warner", "S. L. Warner 1965"),
    Claim("simmons", "Greenberg et al. 1969", {"unrelated": 30}),
    Claim("christofides", "T. C. Christofides 2003", {"cards": _cards}),
    Claim("permute_and_flip", "McKenna, Sheldon 2020", {"domain_size": 5, "clip": 10}),
    Claim("top_response", "Kairouz et al., ICML 2016", {"domain_size": 5, "clip": 10}),
)


@dataclass(frozen=True)
class Finding:
    """What an audit of one mechanism found, in micro-epsilon but for the attack.

    ``claimed`` is the nominal amount of the last level that is released, ``stated`` what the
    mechanism says that it is certified at, and what is charged; ``certified`` is the same, computed
    again from the sampler's thresholds.
    """

    claimed: int
    stated: int
    certified: int
    attack: Attack | None

    def problems(self, checks: int = 1) -> list[str]:
        """Return what is wrong, in words; nothing for a mechanism that keeps its word.

        ``checks`` attacks share the rate of false alarms, :data:`FALSE_ALARM`.
        """
        found = []
        if self.certified != self.stated:
            found.append("its thresholds cost another amount than it says")
        if self.certified > self.claimed:
            found.append("its thresholds cost more than the nominal amount")
        if self.attack is not None:
            covered = max(self.certified, self.stated) / MICRO
            if self.attack.exceeds(covered, FALSE_ALARM / checks):
                found.append("an attack shows more than is certified")
        return found


@dataclass(frozen=True)
class Attacker:
    """What attacks every mechanism in the same way; see :func:`.attack`."""

    source: Source
    trials: int = 200_000
    confidence: float = 0.95

    def __call__(self, mechanism: Mechanism, levels: int) -> Attack:
        return attack(
            mechanism, self.source, trials=self.trials, confidence=self.confidence, levels=levels
        )

    def case(self, case: Case) -> Attack:
        return case.attack(self.source, self.trials, self.confidence)


def certified(mechanism: Mechanism, level: int) -> int:
    """Return the micro-epsilon that a chain up to a level costs at most, rounded up once.

    Mechanisms certify themselves when they are made. This starts from the integers alone that the
    sampler compares with, and so finds an amount that does not belong to them.

    >>> grr = build({"name": "grr", "domain_size": 5}, [500_000, 1_000_000], "colour")
    >>> [certified(grr, level) for level in (0, 1)]
    [500000, 1000000]
    """
    return loss_micro(mechanism.realised_ratio(level))


def examine(
    mechanism: Mechanism, levels: int | None = None, attacker: Attacker | None = None
) -> Finding:
    """Audit a mechanism of which the first levels are released, by default all.

    Without an attacker nothing is attacked.

    >>> found = examine(LIBRARY[0].build([500_000, 1_000_000]))
    >>> found.claimed, found.certified, found.problems()
    (1000000, 1000000, [])
    """
    shown = mechanism.levels if levels is None else levels
    return Finding(
        mechanism.nominal(shown - 1),
        mechanism.certified(shown - 1),
        certified(mechanism, shown - 1),
        None if attacker is None else attacker(mechanism, shown),
    )


def ladder_to(epsilon: float) -> tuple[int, int]:
    """Return the ladder of an audit: half of an epsilon, then all of it, in micro-epsilon."""
    micro = to_micro(epsilon)
    return max(1, micro // 2), micro


def others() -> list[Case]:
    """Return what the library has beside the mechanisms of plans: selections, constant values."""
    grr = GeneralizedRandomizedResponse((0.5, 1.0, 2.0), 2)
    constant = Case(
        f"a constant value, {_PERIODS} linked periods at 0.5 and 1",
        "Erlingsson et al., CCS 2014",
        2.0,
        grr.certified() / MICRO,
        partial(_periods, grr),
        "",
        4,
    )
    return [
        _selection("exponential mechanism", "McSherry, Talwar 2007", ExponentialMechanism(1.0)),
        _selection("permute-and-flip", "McKenna, Sheldon 2020", PermuteAndFlipSelection(1.0)),
        constant,
    ]


def _selection(name: str, source: str, mechanism: SelectionMechanism) -> Case:
    """Return a selection between neighbours that change both of two scores."""
    certified, release = mechanism.certified / MICRO, partial(_selected, mechanism)
    name = f"{name}, scores (0, 6) and (1, 5)"
    return Case(name, source, mechanism.epsilon, certified, release, "", 4)


def _selected(mechanism: SelectionMechanism, secrets: Bools, source: Source) -> Views:
    scores = [0, 6], [1, 5]
    items = [mechanism.select(scores[secret], source) for secret in secrets.tolist()]
    return {"the item": key_of(np.array(items, dtype=np.int64)[:, None])}


def _periods(grr: GeneralizedRandomizedResponse, secrets: Bools, source: Source) -> Views:
    permanent = grr.report(secrets.astype(np.int64), source)[:, 0].astype(np.int64)
    said = np.zeros(len(secrets))
    for _ in range(_PERIODS):
        report = permanent
        for step in reversed(grr.chain.steps):
            report = step.apply_many(report, source.words(len(report)))
        said += 2.0 * report - 1
    return {"all periods": score_key(said), "whether most say 1": score_key(np.sign(said))}
