"""RAPPOR: what filters cost, against the paper's values, and its public cohorts."""

from __future__ import annotations

import numpy as np
import pytest
from small import ids

from mechanisms.errors import ParameterError
from mechanisms.string.rappor import Rappor
from mechanisms.testing import SeededSource


def test_strings_of_a_cohort_share_a_filter_and_those_of_others_do_not() -> None:
    mechanism = Rappor(1.0, bits=128, hashes=2, cohorts=16, metric="metric")
    pseudonyms = ids(200)
    filters: dict[int, set[int]] = {}
    cohorts = mechanism.strata_of(pseudonyms, pseudonyms).tolist()
    for row, cohort in zip(pseudonyms.astype("<u8"), cohorts, strict=True):
        assert mechanism.cohort(row.tobytes()) == cohort
        encoded = mechanism.encode(b"a string", b"", row.tobytes(), SeededSource(1))
        filters.setdefault(cohort, set()).add(encoded)
    assert set(filters) == set(range(16))
    assert all(len(known) == 1 for known in filters.values())
    assert len(set.union(*filters.values())) > 10


@pytest.mark.parametrize("strings", [np.array([[b"a", b"b"]]), np.array(b"a"), b"a", "a"])
def test_strings_that_are_not_in_one_row_are_refused(strings: object) -> None:
    ids = np.zeros((1, 2), dtype=np.uint64)
    with pytest.raises(ParameterError, match="one row"):
        Rappor(1.0, 8, 1, 1).randomize(strings, ids, ids, SeededSource(1))
