"""Every mechanism of the library, with an example of each from which its figures are computed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pkgutil import walk_packages
from typing import Any

from mechanisms.docstrings import sections
from mechanisms.exact import MICRO
from mechanisms.ladders import Ladder
from mechanisms.planner.targets import Assumed

_UNIFORM = tuple((place + 0.5) / 1000 for place in range(1000))


@dataclass(frozen=True)
class Entry:
    """A mechanism of the page.

    Parameters
    ----------
    path : str
        ``module:name`` under ``mechanisms``.
    spec : mapping, optional
        What a plan would say, from which the figures are computed.
    example : callable, optional
        From the class to its certified epsilon at nominal 1, where there is no spec.
    """

    path: str
    spec: Mapping[str, Any] | None = None
    example: Callable[[Any], float] | None = None

    @property
    def name(self) -> str:
        """The class."""
        return self.path.partition(":")[2]

    def load(self) -> Any:
        """Return the class, or the function."""
        module, _, name = self.path.partition(":")
        return getattr(import_module(f"mechanisms.{module}"), name)


@dataclass(frozen=True)
class Group:
    """Mechanisms for one kind of question.

    Parameters
    ----------
    title, question : str
        The question is that of the standard errors; "" where there are none.
    entries : tuple of Entry
    assumed : Assumed
        The data of the question.
    """

    title: str
    question: str
    entries: tuple[Entry, ...]
    assumed: Assumed | None = None


def _micro(made: Any) -> float:
    certified = made.certified() if callable(made.certified) else made.certified
    return float(certified) / MICRO


_POINTS: dict[str, Any] = {"points": 65, "missing": False}
_TEN: dict[str, Any] = {"bits": 10, "missing": False}
GROUPS = (
    Group(
        "Categories",
        "the share of a category that one report in ten has, among 16",
        (
            Entry("category.grr:GeneralizedRandomizedResponse", {"name": "grr", "domain_size": 16}),
            Entry("category.unary:SymmetricUnaryEncoding", {"name": "sue", "domain_size": 16}),
            Entry("category.unary:OptimizedUnaryEncoding", {"name": "oue", "domain_size": 16}),
            Entry(
                "category.local_hashing:LocalHashing",
                {"name": "local_hashing", "domain_size": 16, "buckets": 3},
            ),
            Entry(
                "category.subset_selection:SubsetSelection",
                {"name": "subset", "domain_size": 16, "subset_size": 4},
            ),
            Entry(
                "category.hadamard:HadamardResponse",
                {"name": "hadamard", "domain_size": 16, "blocks": 1},
            ),
            Entry(
                "papers.bitrand:LabelRandomizedResponse",
                example=lambda made: _micro(made(epsilon=1.0, domain_size=16)),
            ),
        ),
        Assumed(share=0.1),
    ),
    Group(
        "Strings",
        "the share of one of 16 candidates, all alike",
        (
            Entry(
                "string.rappor:Rappor", {"name": "rappor", "bits": 128, "hashes": 2, "cohorts": 16}
            ),
        ),
        Assumed(candidates=tuple(f"candidate {number}" for number in range(16))),
    ),
    Group(
        "Numbers",
        "the mean of numbers all over [0, 1]",
        (
            Entry(
                "number.random_threshold:RandomThreshold", {"name": "threshold", "missing": False}
            ),
            Entry("number.duchi:DuchiOneBit", {"name": "duchi", "missing": False}),
            Entry("number.gridded:PiecewiseMechanism", {"name": "piecewise", **_POINTS}),
            Entry("number.gridded:HybridMechanism", {"name": "hybrid", **_POINTS}),
            Entry("number.gridded:SquareWave", {"name": "square_wave", **_POINTS}),
            Entry("number.sampled_bit:SampledBit", {"name": "sampled_bit", **_TEN}),
            Entry("number.sampled_bits:SampledBits", {"name": "sampled_bits", "count": 2, **_TEN}),
            Entry(
                "number.split_bits:SplitBits", {"name": "split_bits", "bits": 8, "missing": False}
            ),
        ),
        Assumed(values=_UNIFORM),
    ),
    Group(
        "Vectors",
        "the mean of one of 16 coordinates, its values all over [0, 1]",
        (
            Entry(
                "vector.sampled_vector:SampledVector",
                {"name": "sampled_vector", "dimensions": 16, "sampled": 1, "bits": 0},
            ),
            Entry(
                "vector.sampled_hybrid:SampledHybrid",
                {"name": "sampled_hybrid", "dimensions": 16, "sampled": 1, "points": 33},
            ),
        ),
        Assumed(values=_UNIFORM),
    ),
    Group(
        "Ordered values",
        "a bound of the mean of 16 points in [0, 1], all alike",
        (
            Entry(
                "ordinal.brr:BipartiteRandomizedResponse",
                {"name": "brr", "domain_size": 16, "subset_size": 7, "missing": False},
            ),
            Entry("ordinal.optimal:optimal_channel", example=lambda made: _optimal(made)),
        ),
        Assumed(values=_UNIFORM),
    ),
    Group(
        "Surveys",
        "the share of yes, one in ten",
        (
            Entry("survey.designs:Warner", {"name": "warner"}),
            Entry("survey.designs:Simmons", {"name": "simmons", "unrelated": 50}),
            Entry(
                "survey.christofides:Christofides",
                {"name": "christofides", "cards": (3, 1, 8)},
            ),
        ),
        Assumed(share=0.1),
    ),
    Group(
        "Selection",
        "",
        (
            Entry(
                "top_item.exponential:ExponentialMechanism",
                example=lambda made: _micro(made(epsilon=1.0)),
            ),
            Entry(
                "top_item.permute_and_flip:PermuteAndFlip",
                example=lambda made: _micro(made(epsilon=1.0)),
            ),
            Entry(
                "top_item.propose_test_release:ProposeTestRelease",
                example=lambda made: _micro(made(test_epsilon=0.5, epsilon=0.5, delta=1e-6)),
            ),
            Entry(
                "top_item.flip_ladder:PermuteAndFlipLadder",
                {"name": "permute_and_flip", "domain_size": 16, "clip": 10},
            ),
            Entry(
                "top_item.top_response:TopResponseLadder",
                {"name": "top_response", "domain_size": 16, "clip": 10},
            ),
        ),
    ),
    Group(
        "Release in stages",
        "",
        (
            Entry("papers.state:RelaxationState"),
            Entry("papers.general:ChannelLadder"),
            Entry("papers.market:Catalogue", example=lambda made: _market(made)),
            Entry("constant:ConstantResponse"),
            Entry("papers.noisy_sampling:NoisySampling"),
        ),
    ),
)


def _optimal(made: Any) -> float:
    from mechanisms.ordinal.losses import equidistant

    return _micro(made(equidistant(16), 1.0))


def _market(made: Any) -> float:
    catalogue = made(domain_size=16, start=0.1, cap=1.0, stride=0.1)
    return float(catalogue.amounts.certified[-1]) / MICRO


#: Published as private, and not: what the paper says and what is certified at nominal 1.
BROKEN = (
    (
        Entry(
            "papers.bitrand:FeatureRandomizedResponse",
            example=lambda made: made(1.0, 1000, 10, 5).certified_epsilon,
        ),
        "1000 features of 10 bits",
    ),
    (
        Entry(
            "papers.exponential_randomized_response:ExponentialRandomizedResponse",
            example=lambda made: made(p=0.5, epsilon=1.0).worst_loss(4, 4).loss,
        ),
        "p = 0.5, 4 items with scores from 0 to 4; more for more items",
    ),
    (
        Entry(
            "papers.deck:ImprovedChristofides",
            example=lambda made: made((265, 10, 721)).certified_epsilon(996),
        ),
        "a card for each of 996 respondents",
    ),
)
ORIGINALS = Entry("number.originals:FloatMechanism")


def originals() -> list[Any]:
    """Return the published mechanisms over floating point."""
    base = ORIGINALS.load()
    return sorted(base.__subclasses__(), key=lambda each: inspect.getsourcelines(each)[1])


def entries() -> list[Entry]:
    """Return all entries of the page."""
    return [*(e for g in GROUPS for e in g.entries), *(e for e, _ in BROKEN), ORIGINALS]


def mechanisms() -> Iterator[Any]:
    """Yield every public class of the package that states its privacy or inherits one's interface.

    Subclasses of a class with an entry are covered by it.
    """
    import mechanisms as package

    bases = _bases()
    for found in walk_packages(package.__path__, "mechanisms."):
        module = import_module(found.name)
        for name, each in vars(module).items():
            if not inspect.isclass(each) or each.__module__ != found.name or name[0] == "_":
                continue
            told = "Privacy" in sections(each)
            if told or (
                issubclass(each, bases)
                and not issubclass(each, Ladder)
                and not inspect.isabstract(each)
            ):
                yield each


def _bases() -> tuple[type, ...]:
    paths = ("base:Mechanism", "single:SingleLevel", "top_item.mechanism:SelectionMechanism")
    return tuple(Entry(path).load() for path in (*paths, "survey.designs:SurveyDesign"))


def unlisted(given: Sequence[Entry] | None = None) -> list[str]:
    """Return the mechanisms that have no section, by name."""
    known = {entry.load() for entry in (entries() if given is None else given)}
    return [each.__name__ for each in mechanisms() if each not in known]
