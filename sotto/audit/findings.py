"""Findings of an audit, as a document for programs; and its columns, for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from mechanisms.arrays import Ints
from mechanisms.audit.claims import Auditor, Finding
from mechanisms.audit.guessing import Attack, provable
from mechanisms.audit.reports import AttackedReports
from mechanisms.exact import MICRO
from mechanisms.randomness import Source
from sotto.plan.compiled import CompiledMetric

#: Columns about code: attacks on reports of devices and of the batch code; how devices draw.
ATTACKS = ("device", "batch", "device's law")
Document: TypeAlias = dict[str, Any]
#: It is called with what is audited next; with an empty text at the end.
Progress: TypeAlias = Callable[[str], None]


class SamplerOfDevices(Protocol):
    """Reports of devices: a :data:`.Sampler`."""

    @property
    def cost(self) -> int:
        """How many recordings take as long as one usually does."""
        ...

    def __call__(self, values: Sequence[Any], places: Ints, source: Source) -> AttackedReports: ...


#: Makes the reports of devices under a metric.
Devices: TypeAlias = Callable[[CompiledMetric], SamplerOfDevices]


@dataclass(frozen=True)
class LibraryAudit:
    """An audit for programs, and in lines for people."""

    document: Document
    text: list[str]

    @property
    def failed(self) -> bool:
        """Whether a mechanism breaks its word, or a plan's ceiling is exceeded."""
        return bool(self.document["status"])


def finding_document(found: Finding) -> Document:
    """Return the amounts of a finding, as epsilons, and what was found of either code."""
    document: Document = {
        name: getattr(found, name) / MICRO for name in ("claimed", "stated", "certified")
    }
    for name, attack in (("device", found.device), ("batch", found.batch)):
        if attack is not None:
            document[name] = guesses_document(attack)
    if found.law is not None:
        document["law"] = {
            "inputs": found.law.inputs,
            "followed": float(1 - found.law.left),
            "bits": found.law.positions,
            "differs": found.law.differs,
            "same_as_batch": found.same,
        }
    return document


def guesses_document(attack: Attack | None) -> Document:
    """Return what an attack found; nothing without one."""
    names = ("right", "guesses", "chains", "view")
    if attack is None:
        return {}
    return {"attacked": attack.epsilon, **{name: getattr(attack, name) for name in names}}


def attack_document(auditor: Auditor | None) -> Document | None:
    """Return how was attacked."""
    names = ("trials", "recordings", "confidence")
    return None if auditor is None else {name: getattr(auditor, name) for name in names}


def amounts(found: Finding) -> list[str]:
    """Return the columns claimed, certified, and :data:`ATTACKS` of a finding."""
    law = "" if found.law is None else found.law.words
    certain = [f"{micro / MICRO:.6f}" for micro in (found.claimed, found.certified)]
    return [*certain, *map(proved, map(guesses_document, (found.device, found.batch))), law]


def proved(document: Mapping[str, Any]) -> str:
    """Return the amount that an attack proves, rounded down."""
    return f"{int(document['attacked'] * 1e4) / 1e4:.4f}" if document else ""


def verdict(problems: list[str]) -> str:
    """Return what to say of a mechanism."""
    return f"BROKEN: {'; '.join(problems)}" if problems else "holds"


def explained(auditor: Auditor | None) -> list[str]:
    """Return what the columns mean."""
    first = "Amounts are epsilon. 'Certified' is exact, from the sampler's thresholds, rounded up."
    if auditor is None:
        return [first]
    found = provable(1.0, int(1.6 * auditor.recordings), auditor.rate)
    text = f"""\
{first}
'Device' and 'batch' are lower bounds, each with confidence {auditor.confidence:g}.
'Device' attacks {auditor.recordings:,} recordings of either input of the worst pair
through the SDK's client (fewer where they take long). They prove a loss of
{found:.2f} where 1 is certified, if every report shows it. 'Batch' attacks
{auditor.trials:,} chains of either from the code that simulations run.
'Device's law' compares outcomes of a device's sampler, for up to 12 inputs, with the certified law;
the reports of device and batch are compared with each other. By chance a bound
may exceed what is certified; of the verdicts none is wrong but once in a million
times."""
    return text.splitlines()
