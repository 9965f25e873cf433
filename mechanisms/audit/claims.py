"""The library's claims: every mechanism, with parameters at which an audit attacks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeAlias

import numpy as np

from mechanisms.audit.attack import attack
from mechanisms.audit.cases import Case
from mechanisms.audit.guessing import Attack
from mechanisms.audit.laws import RUNS, LawCheck, check_draws, same_law, tables
from mechanisms.audit.reports import (
    AttackedReports,
    Sampler,
    SamplerOfDevices,
    UnexpectedReportsError,
    batch_sampler,
)
from mechanisms.base import Mechanism
from mechanisms.exact import MICRO, loss_micro, to_micro
from mechanisms.randomness import Source
from mechanisms.registry import build
from mechanisms.survey.design import cards_of

#: A parameter of a mechanism.
Parameter: TypeAlias = object
#: Inputs of which a device's reports are compared with those of the batch code.
_COMPARED = 8
#: The probability of a false alarm, of all verdicts of an audit together.
FALSE_ALARM = 1e-6


@dataclass(frozen=True)
class Claim:
    """A mechanism of the registry and where it comes from.

    ``parameters`` are those of an audit; one that depends on epsilon is a function of the strongest
    amount. ``amounts``: up to which epsilons its chains go unless others are asked for.
    """

    name: str
    source: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    amounts: tuple[float, ...] = (1.0,)

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
_SEVERAL = (0.5, 1.0, 2.0)
#: All mechanisms that a plan can name.
LIBRARY: tuple[Claim, ...] = (
    Claim("grr", "Kairouz et al., ICML 2016", {"domain_size": 4}, _SEVERAL),
    Claim("sue", _TIANHAO, {"domain_size": 16}, _SEVERAL),
    Claim("oue", _TIANHAO, {"domain_size": 16}, _SEVERAL),
    Claim("local_hashing", _TIANHAO, {"domain_size": 100, "buckets": 5}),
    Claim("subset", "M. Ye, A. Barg 2018", {"domain_size": 6, "subset_size": 2}),
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
    """The findings of an audit of one mechanism, in micro-epsilon but for the attacks.

    ``claimed`` is the nominal amount of the last level that is released, ``stated`` what the
    mechanism says that it is certified at, and what is charged; ``certified`` is the same, computed
    again from the sampler's thresholds. ``device`` and ``batch`` are attacks on the reports of
    either, ``law`` says how a device draws, and ``same`` whether both draw alike. ``unexpected`` is
    what a device did that it should not. ``rate`` is that of false alarms, of each verdict.
    """

    claimed: int
    stated: int
    certified: int
    device: Attack | None = None
    batch: Attack | None = None
    law: LawCheck | None = None
    same: bool = True
    unexpected: str = ""
    rate: float = FALSE_ALARM

    @property
    def problems(self) -> list[str]:
        """The faults, in words; nothing for a mechanism that keeps its word."""
        found = []
        if self.certified != self.stated:
            found.append("its thresholds cost another amount than it says")
        if self.certified > self.claimed:
            found.append("its thresholds cost more than the nominal amount")
        if self.unexpected:
            found.append(self.unexpected)
        covered = max(self.certified, self.stated) / MICRO
        for what, shown in (("a device", self.device), ("the batch code", self.batch)):
            if shown is not None and shown.exceeds(covered, self.rate):
                found.append(f"an attack on {what} shows more than is certified")
        if self.law is not None and self.law.differs:
            found.append("a device draws by another law than the certificate's")
        if not self.same:
            found.append("device and batch code draw by different laws")
        return found


@dataclass(frozen=True)
class Auditor:
    """Attacks every mechanism, and compares its samplers, in the same way.

    ``trials`` chains of each of two inputs are drawn by the batch code, ``recordings`` are made of
    each on devices; ``runs`` follow the outcomes of one input of a device's sampler. ``checks``
    mechanisms share the rate of false alarms, :data:`FALSE_ALARM`.
    """

    source: Source
    trials: int = 200_000
    recordings: int = 10_000
    confidence: float = 0.95
    checks: int = 1
    runs: int = RUNS

    @property
    def rate(self) -> float:
        """The rate of false alarms of a verdict: device, batch, and whether they draw alike."""
        return FALSE_ALARM / (3 * self.checks)

    def case(self, case: Case) -> Attack:
        return case.attack(self.source, self.trials, self.confidence)

    def attack(self, mechanism: Mechanism, sampler: Sampler, trials: int, levels: int) -> Attack:
        how = {"confidence": self.confidence, "levels": levels}
        return attack(mechanism, sampler, self.source, trials=max(10, trials), **how)  # type: ignore[arg-type]

    def alike(self, mechanism: Mechanism, device: Sampler, recordings: int, levels: int) -> bool:
        """Return whether a device and the batch code draw alike, as far as so many show."""
        some = list(mechanism.some_inputs(_COMPARED, self.source))
        inputs = [each for each in some if not (isinstance(each, tuple) and not any(each))]
        found = []
        for sampler, n in ((device, recordings), (batch_sampler(mechanism), 8 * recordings)):
            places = np.arange(max(n, len(inputs))) % len(inputs)
            reports = sampler(inputs, places, self.source)
            shown = AttackedReports(reports.places, reports.payloads[:, :levels], reports.chains)
            totals = np.bincount(places, minlength=len(inputs))
            found.append((tables(shown, mechanism, inputs), totals))
        (one, first), (other, second) = found
        return same_law(one, other, (first, second), self.rate)


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
    mechanism: Mechanism,
    levels: int | None = None,
    auditor: Auditor | None = None,
    device: SamplerOfDevices | None = None,
) -> Finding:
    """Audit a mechanism of which the first levels are released, by default all.

    ``device`` makes the reports of devices. Without an auditor nothing is attacked.

    >>> found = examine(LIBRARY[0].build([500_000, 1_000_000]))
    >>> found.claimed, found.certified, found.problems
    (1000000, 1000000, [])
    """
    shown = mechanism.levels if levels is None else levels
    level = shown - 1
    amounts = mechanism.nominal(level), mechanism.certified(level), certified(mechanism, level)
    if auditor is None:
        return Finding(*amounts)
    batch = auditor.attack(mechanism, batch_sampler(mechanism), auditor.trials, shown)
    law = check_draws(mechanism, auditor.source, auditor.runs)
    attacked, same, unexpected = None, True, ""
    if device is not None:
        recordings = max(100, auditor.recordings // device.cost)
        try:
            attacked = auditor.attack(mechanism, device, recordings, shown)
            same = auditor.alike(mechanism, device, recordings, shown)
        except UnexpectedReportsError as error:
            unexpected = str(error)
    return Finding(*amounts, attacked, batch, law, same, unexpected, auditor.rate)


def ladder_to(epsilon: float) -> tuple[int, int]:
    """Return the ladder of an audit: half of an epsilon, then all of it, in micro-epsilon."""
    micro = to_micro(epsilon)
    return max(1, micro // 2), micro
