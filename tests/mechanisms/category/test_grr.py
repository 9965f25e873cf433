"""Generalized randomized response against the papers' values."""

from __future__ import annotations

from vectors import Vector, vectors

from mechanisms.category.grr import GeneralizedRandomizedResponse


@vectors("label_rr")
def test_label_randomized_response_is_grr(vector: Vector) -> None:
    mechanism = GeneralizedRandomizedResponse(vector.inputs["eps"], vector.inputs["C"])
    vector.check(mechanism.p, vector.expected["p"])
    vector.check(mechanism.q, vector.expected["q"])
