"""Parameters at the edge of their range: a limit, or an error that says what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from mechanisms.errors import ParameterError
from mechanisms.planner.precision import conversion, retention
from mechanisms.registry import build
from mechanisms.survey.design import warner_of
from papers import bipartite_randomized_response as bipartite
from papers import bitrand, selection
from papers.exponential_randomized_response import ExponentialRandomizedResponse
from papers.float_numbers import random_threshold_variance
from papers.gradual_release import formulas
from papers.gradual_release.attacks import least_error
from papers.gradual_release.noisy_sampling import noisy_sampling_variance
from papers.improved_christofides import census_size, deck_epsilon, sample_size
from papers.rappor import differing_bits_epsilon, expected_differing_bits

GRR = build({"name": "grr", "domain_size": 5}, [2_000_000], "m")
NAN, INF = math.nan, math.inf
REFUSED: list[tuple[Callable[..., Any], tuple[Any, ...], str]] = [
    (retention, (GRR, 0, 0.0), "share must lie in (0, 1], not 0.0"),
    (retention, (GRR, 0, NAN), "share must lie in (0, 1], not nan"),
    (retention, (GRR, 1, 0.5), "level must lie in [0, 0], not 1"),
    (conversion, (GRR, 0, 0.0), "share must lie in (0, 1], not 0.0"),
    (conversion, (GRR, 1, 0.5), "level must lie in [0, 0], not 1"),
    (deck_epsilon, ((1, 2), 0), "n must be at least 1, not 0"),
    (sample_size, (warner_of(1.0), 0.1, 0.0), "variance must be above 0, not 0.0"),
    (census_size, (warner_of(1.0), 0.1, 0.0), "variance must be above 0, not 0.0"),
    (census_size, (warner_of(1.0), 0.1, NAN), "variance must be above 0, not nan"),
    (bitrand.log_alpha, (NAN, 1, 10), "epsilon must lie in (0, 700], not nan"),
    (bitrand.frr_epsilon, (INF, 1, 10), "epsilon must lie in (0, 700], not inf"),
    (bitrand.frr_keeping, (1.0, 0, 10), "features must be at least 1, not 0"),
    (bitrand.frr_losses, (1.0, 1, 0), "bits must be at least 1, not 0"),
    (bitrand.label_keeping, (NAN, 3), "epsilon must be at least 0, not nan"),
    (bipartite.local_size, ([0, 1, 2], INF), "epsilon must lie in (0, 1000], not inf"),
    (bipartite.exponential_loss, (0, 1.0), "points must be at least 1, not 0"),
    (bipartite.exponential_loss, (3, NAN), "epsilon must be at least 0, not nan"),
    (bipartite.loss_ratios, (NAN,), "epsilon must be at least 0, not nan"),
    (bipartite.keep_probability, (5, 1, 1.0, 0.0), "strong must lie in (0, 1000], not 0.0"),
    (least_error, (3, NAN), "epsilon must be at least 0, not nan"),
    (formulas.relaxation, (0, 0.0, 1.0), "domain_size must be at least 2, not 0"),
    (formulas.chain_log_ratio, (3, [INF], [1], 1, 1), "epsilon must lie in (0, 700], not inf"),
    (noisy_sampling_variance, (0.9, 0.8, 0, 9), "samples must be at least 1, not 0"),
    (random_threshold_variance, ([], 1.0), "at least one"),
    (random_threshold_variance, ([NAN], 1.0), "xs must be numbers in [-1, 1]"),
    (differing_bits_epsilon, (4, 0.0), "f must lie in (0, 1), not 0.0"),
    (expected_differing_bits, (0, 2), "bits must be at least 1, not 0"),
    (ExponentialRandomizedResponse, (NAN, 1.0), "p must lie in [0, 1], not nan"),
    (selection.propose_test_release_pmf, ([3, 1], NAN, 1.0, 0.1), "test_epsilon"),
    (selection.propose_test_release_pmf, ([3, 1], 1.0, 1.0, INF), "delta must lie in (0, 1)"),
]


@pytest.mark.parametrize(("function", "given", "message"), REFUSED)
def test_a_parameter_outside_its_range_is_refused(
    function: Callable[..., Any], given: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        function(*given)
    assert message in str(refused.value)


def test_an_epsilon_of_nothing_or_infinity_has_the_limit_where_there_is_one() -> None:
    assert bipartite.keep_probability(5, 2, 0.0, 1.0) == 0.0
    assert bitrand.label_keeping(INF, 5) == (1.0, 0.0)
    assert least_error(5, INF) == 0.0
    assert bipartite.exponential_loss(5, INF) == bipartite.exponential_loss(5, 1e5) == 0.0
    assert bipartite.exponential_loss(5, 0.0) == pytest.approx(0.4)
    assert bipartite.loss_ratios(INF) == (0, 0, 0, 0)
    assert formulas.response_shares(INF, [1, 3]) == [0.25, 0.75]
