"""Claims of the papers, true and false; ``sotto audit`` attacks them in a source tree."""

from __future__ import annotations

from mechanisms.audit.cases import Case
from papers import (
    bipartite_randomized_response,
    bitrand,
    exponential_randomized_response,
    float_numbers,
    improved_christofides,
    loloha,
    selection,
)
from papers.gradual_release import claims as gradual_release

_PAPERS = (
    bitrand,
    exponential_randomized_response,
    improved_christofides,
    gradual_release,
    loloha,
    bipartite_randomized_response,
    float_numbers,
    selection,
)


def published() -> list[Case]:
    """Return the claims of every paper."""
    return [case for paper in _PAPERS for case in paper.claims()]
