"""The mechanisms of plans, by name; each class is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType

from mechanisms.base import Mechanism
from mechanisms.errors import ParameterError
from mechanisms.exact import MICRO
from mechanisms.frozen import names_of
from mechanisms.levels import MAX_DECISION_EPSILON, check_ladder

#: No amount is more than so many decisions at their largest epsilon: that is epsilon 1000.
_MOST = 1000 // MAX_DECISION_EPSILON


def mechanism_class(name: object) -> type[Mechanism]:
    """Return the class of a mechanism; a ``ParameterError`` where there is none of this name."""
    if not isinstance(name, str) or name not in REGISTRY:
        raise ParameterError(f"mechanism must be one of {', '.join(REGISTRY)}, not {name!r}")
    module, _, kind = REGISTRY[name].partition(":")
    found: type[Mechanism] = getattr(__import__(module, fromlist=[kind]), kind)
    return found


def mechanisms_for(kind: str) -> list[str]:
    """Name the mechanisms that a type of metric may use; it imports their classes."""
    return [name for name in REGISTRY if kind in mechanism_class(name).types]


#: Mechanisms built so far, by what was asked for: they are values, and take long to certify.
_built: dict[str, Mechanism] = {}
_KEPT = 128


def build(spec: Mapping[str, object], levels: Sequence[int], metric: str) -> Mechanism:
    """Build a mechanism from a compiled plan.

    ``spec`` is the ``mechanism`` object of the metric: ``name`` and that mechanism's parameters;
    ``levels`` are nominal micro-epsilons, increasing, at most 8; ``metric``, its name, separates
    its public coins from those of others. ``ParameterError`` where the name is unknown, a parameter
    is missing, superfluous, of the wrong type or outside its range, or the thresholds of 64 bits
    cannot honour a level (which is named); as ``UnrelatedLevelsError`` where a level is no
    degradation of the one above it.

    >>> from mechanisms.randomness import SystemSource
    >>> grr = build({"name": "grr", "domain_size": 5}, [500_000, 1_000_000], "colour")
    >>> len(grr.draw(3, bytes(16), bytes(16), SystemSource()))
    2
    >>> [grr.certified(level) for level in range(grr.levels)]
    [500000, 1000000]
    """
    # As text, in which 1, 1.0 and True differ.
    asked = repr((sorted(spec.items()), levels, metric))
    made = _built.get(asked)
    if made is None:
        made = _build(spec, levels, metric)
        if len(_built) >= _KEPT:
            _built.clear()
        _built[asked] = made
    return made


def _build(spec: Mapping[str, object], levels: Sequence[int], metric: str) -> Mechanism:
    name = spec.get("name")
    kind = mechanism_class(name)
    if not isinstance(metric, str):
        raise ParameterError(f"metric must be a string, not {metric!r}")
    wanted = kind.parameters()
    extra = sorted(set(spec) - set(wanted) - {"name"})
    if extra:
        takes = ", ".join(wanted) or "no parameters"
        raise ParameterError(f"mechanism {name} takes {takes}, not {', '.join(extra)}")
    epsilons = tuple(micro / MICRO for micro in check_ladder(levels, _MOST))
    given = {field: spec.get(field) for field in wanted}
    coin = {"metric": metric} if "metric" in names_of(kind) else {}
    made = kind(epsilons, **given, **coin)  # type: ignore[call-arg]
    for field, value in given.items():
        # A plan may not leave out what people may.
        if getattr(made, field) != value:
            raise ParameterError(f"{field} must be chosen, not {value!r}")
    return made


def supports_constant(spec: Mapping[str, object]) -> bool:
    """Return whether a mechanism, the object of a compiled plan, can answer for a constant value.

    Its reports must not depend on a public coin: coins are hashed from the chain id or the
    pseudonym, and both change from period to period, while the permanent response was drawn under
    those of the first.
    """
    return mechanism_class(spec.get("name")).coinless(spec)


#: ``"module:class"`` of every mechanism of plans, by its name there, in the order in which a
#: choice prefers them where nothing else tells them apart.
REGISTRY: dict[str, str] = {
    "brr": "mechanisms.ordinal.brr:BipartiteRandomizedResponse",
    "grr": "mechanisms.category.grr:GeneralizedRandomizedResponse",
    "sue": "mechanisms.category.unary:SymmetricUnaryEncoding",
    "oue": "mechanisms.category.unary:OptimizedUnaryEncoding",
    "local_hashing": "mechanisms.category.local_hashing:LocalHashing",
    "subset": "mechanisms.category.subset_selection:SubsetSelection",
    "hadamard": "mechanisms.category.hadamard:HadamardResponse",
    "rappor": "mechanisms.string.rappor:Rappor",
    "threshold": "mechanisms.number.random_threshold:RandomThreshold",
    "duchi": "mechanisms.number.gridded:DuchiOneBit",
    "piecewise": "mechanisms.number.gridded:PiecewiseMechanism",
    "hybrid": "mechanisms.number.gridded:HybridMechanism",
    "square_wave": "mechanisms.number.gridded:SquareWave",
    "sampled_bit": "mechanisms.number.sampled_bits:SampledBit",
    "sampled_bits": "mechanisms.number.sampled_bits:SampledBits",
    "split_bits": "mechanisms.number.split_bits:SplitBits",
    "sampled_vector": "mechanisms.vector.sampled_vector:SampledVector",
    "sampled_hybrid": "mechanisms.vector.sampled_hybrid:SampledHybrid",
    "warner": "mechanisms.survey.mechanisms:Warner",
    "simmons": "mechanisms.survey.mechanisms:Simmons",
    "christofides": "mechanisms.survey.mechanisms:Christofides",
    "permute_and_flip": "mechanisms.top_item.permute_and_flip:PermuteAndFlip",
    "top_response": "mechanisms.top_item.top_response:TopResponse",
}


def modules() -> dict[str, ModuleType]:
    """Import all modules of ``REGISTRY``: PyInstaller, Nuitka and the like follow statements."""
    # ruff: noqa: F401
    from mechanisms.category import grr, hadamard, local_hashing, subset_selection, unary
    from mechanisms.number import gridded, random_threshold, sampled_bits, split_bits
    from mechanisms.ordinal import brr
    from mechanisms.string import rappor
    from mechanisms.survey import mechanisms
    from mechanisms.top_item import permute_and_flip, top_response
    from mechanisms.vector import sampled_hybrid, sampled_vector

    return locals()
