"""Ladders: every mechanism, relaxed over several epsilons, behind one interface.

:func:`build` makes one from the ``mechanism`` object of a compiled plan. Importing this module
loads no mechanism, and each needs the standard library alone; numpy is imported by the vectorised
methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mechanisms.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from mechanisms.levels import Rung
    from mechanisms.randomness import Source


class LadderedMechanism(Protocol):
    """A mechanism and its ladder: immutable, the same on a device and at the aggregator.

    Level 0 is the weakest rung, released first. Symbols are: of ``grr``, ``sue``, ``oue``,
    ``local_hashing``, ``subset`` and ``hadamard`` an int; of ``rappor`` the string's UTF-8 bytes;
    of those for a number (``threshold``, ``hybrid``, ``sampled_bit`` and so on) a float in [0, 1],
    or None for a missing value (vectorised: NaN).
    """

    @property
    def name(self) -> str:
        """The name in a plan: ``grr``, ``sue``, ``oue``, ``rappor``, ..."""
        ...

    @property
    def levels(self) -> int:
        """The number of rungs."""
        ...

    @property
    def payload_width(self) -> int:
        """Bytes of a payload."""
        ...

    @property
    def count_length(self) -> int:
        """The length of a count vector."""
        ...

    def nominal(self, level: int) -> int:
        """Return the micro-epsilon that the plan names for a rung."""
        ...

    def certified(self, level: int) -> int:
        """Return the micro-epsilon that a chain up to a rung costs at most; never above nominal."""
        ...

    def rungs(self, level: int) -> tuple[Rung, ...]:
        """Return the exact probabilities of a rung: one pair, or one a bit where bits differ."""
        ...

    def rung_probabilities(self, level: int) -> tuple[tuple[float, float], ...]:
        """Return the same as floats."""
        ...

    def draw(
        self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source
    ) -> tuple[bytes, ...]:
        """Draw the payloads of all rungs, weakest first, from a value."""
        ...

    def draw_last(self, symbol: Any, chain: bytes, pseudonym: bytes, source: Source) -> bytes:
        """Draw the payload of the last rung alone: a permanent response to a value."""
        ...

    def weaker(self, last: bytes, source: Source) -> tuple[bytes, ...]:
        """Draw the payloads of the other rungs, weakest first, backward from that of the last."""
        ...

    def forward(
        self,
        symbol: Any,
        previous: bytes,
        level: int,
        chain: bytes,
        pseudonym: bytes,
        source: Source,
    ) -> bytes:
        """Draw the payload of ``level`` given that of the level below, by the same joint law."""
        ...

    def randomize(
        self,
        symbols: Any,
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        source: Source,
    ) -> NDArray[np.uint8]:
        """Draw chains for ``(n,)`` values: ``(n, levels, payload_width)`` ``uint8``."""
        ...

    def valid(self, payloads: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return which of ``(n, payload_width)`` payloads are possible outputs."""
        ...

    def accumulate(
        self,
        payloads: NDArray[np.uint8],
        chains: NDArray[np.uint64],
        pseudonyms: NDArray[np.uint64],
        groups: NDArray[np.int64],
        n_groups: int,
    ) -> NDArray[np.int64]:
        """Count valid payloads by group: ``(n_groups, count_length)`` ``int64``."""
        ...


def build(spec: Mapping[str, object], ladder: Sequence[int], metric: str) -> LadderedMechanism:
    """Build a mechanism from a compiled plan.

    Parameters
    ----------
    spec : mapping
        The ``mechanism`` object of the metric: ``name`` and that mechanism's parameters.
    ladder : sequence of int
        Nominal micro-epsilons, increasing, at most 8.
    metric : str
        The metric's name, which separates its public coins from those of others.

    Raises
    ------
    ParameterError
        The name is unknown, a parameter is missing, superfluous, of the wrong type or outside
        its range, or the thresholds of 64 bits cannot honour a rung (which is named).
    UnrelatedRungsError
        A rung is no degradation of the one above it.

    Examples
    --------
    >>> from mechanisms.randomness import SystemSource
    >>> grr = build({"name": "grr", "domain_size": 5}, [500_000, 1_000_000], "colour")
    >>> len(grr.draw(3, bytes(16), bytes(16), SystemSource()))
    2
    >>> [grr.certified(level) for level in range(grr.levels)]
    [500000, 1000000]
    """
    name = spec.get("name")
    if not isinstance(name, str) or name not in REGISTRY:
        raise ParameterError(f"mechanism must be one of {', '.join(REGISTRY)}, not {name!r}")
    if not isinstance(metric, str):
        raise ParameterError(f"metric must be a string, not {metric!r}")
    fields, builder = REGISTRY[name]
    extra = sorted(set(spec) - set(fields) - {"name"})
    if extra:
        wanted = ", ".join(fields) or "no parameters"
        raise ParameterError(f"mechanism {name} takes {wanted}, not {', '.join(extra)}")
    for field, kind in fields.items():
        value = spec.get(field)
        if type(value) is not kind:
            raise ParameterError(
                f"mechanism {name}: {field} must be of type {kind.__name__}, not {value!r}"
            )
    module, _, function = builder.partition(":")
    make = getattr(import_module(module), function)
    mechanism: LadderedMechanism = make(*(spec[field] for field in fields), ladder, metric)
    return mechanism


class Entry(NamedTuple):
    """A mechanism of the registry.

    Parameters
    ----------
    fields : mapping of str to type
        Its parameters, in the order in which the builder takes them, and their exact types; a
        ``tuple`` is one of integers.
    builder : str
        ``"module:function"``, imported at first use: a device loads what its plan names. The
        function takes the parameters, the ladder and the metric's name.
    """

    fields: Mapping[str, type]
    builder: str


_CATEGORY = {"domain_size": int}
_BITS = {"bits": int, "missing": bool}
_GRID = {"points": int, "missing": bool}
_ITEMS = {"domain_size": int, "clip": int}
#: The mechanisms of plans, by name.
REGISTRY: Mapping[str, Entry] = {
    "grr": Entry(_CATEGORY, "mechanisms.category.grr:grr_ladder"),
    "sue": Entry(_CATEGORY, "mechanisms.category.unary:sue_ladder"),
    "oue": Entry(_CATEGORY, "mechanisms.category.unary:oue_ladder"),
    "local_hashing": Entry(
        {"domain_size": int, "buckets": int},
        "mechanisms.category.local_hashing:local_hashing_ladder",
    ),
    "subset": Entry(
        {"domain_size": int, "subset_size": int},
        "mechanisms.category.subset_selection:subset_ladder",
    ),
    "hadamard": Entry(
        {"domain_size": int, "blocks": int}, "mechanisms.category.hadamard:hadamard_ladder"
    ),
    "rappor": Entry(
        {"bits": int, "hashes": int, "cohorts": int}, "mechanisms.string.rappor:rappor_ladder"
    ),
    "threshold": Entry({"missing": bool}, "mechanisms.number.random_threshold:threshold_ladder"),
    "sampled_bit": Entry(_BITS, "mechanisms.number.sampled_bit:sampled_bit_ladder"),
    "sampled_bits": Entry(
        {"bits": int, "count": int, "missing": bool},
        "mechanisms.number.sampled_bits:sampled_bits_ladder",
    ),
    "sampled_vector": Entry(
        {"dimensions": int, "sampled": int, "bits": int},
        "mechanisms.vector.sampled_vector:sampled_vector_ladder",
    ),
    "sampled_hybrid": Entry(
        {"dimensions": int, "sampled": int, "points": int},
        "mechanisms.vector.sampled_hybrid:sampled_hybrid_ladder",
    ),
    "brr": Entry(
        {"domain_size": int, "subset_size": int, "missing": bool},
        "mechanisms.ordinal.brr:brr_ladder",
    ),
    "split_bits": Entry(_BITS, "mechanisms.number.split_bits:split_bits_ladder"),
    "duchi": Entry({"missing": bool}, "mechanisms.number.duchi:duchi_ladder"),
    "piecewise": Entry(_GRID, "mechanisms.number.gridded:piecewise_ladder"),
    "hybrid": Entry(_GRID, "mechanisms.number.gridded:hybrid_ladder"),
    "square_wave": Entry(_GRID, "mechanisms.number.gridded:square_wave_ladder"),
    "warner": Entry({}, "mechanisms.survey.ladders:warner_ladder"),
    "simmons": Entry({"unrelated": int}, "mechanisms.survey.ladders:simmons_ladder"),
    "christofides": Entry({"cards": tuple}, "mechanisms.survey.ladders:christofides_ladder"),
    "permute_and_flip": Entry(_ITEMS, "mechanisms.top_item.flip_ladder:permute_and_flip_ladder"),
    "top_response": Entry(_ITEMS, "mechanisms.top_item.top_response:top_response_ladder"),
}
