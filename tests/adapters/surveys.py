"""Surveys: Warner, Simmons, Christofides and the deck without replacement."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

from mechanisms.papers.improved_christofides import deck_epsilon, deck_variance
from mechanisms.survey.design import Design, cards_epsilon, christofides, simmons, warner


def _cards(inputs: dict[str, Any]) -> Design:
    return christofides(tuple(map(Fraction, inputs["p"])))


def _people(inputs: dict[str, Any]) -> tuple[Fraction, int, int]:
    return Fraction(inputs["pi"]), int(inputs["n"]), int(inputs["N"])


def _warner(inputs: dict[str, Any]) -> float:
    return float(warner(Fraction(inputs["p"])).variance(*_people(inputs)))


def _simmons(inputs: dict[str, Any]) -> dict[str, float]:
    design = simmons(Fraction(inputs["p"]), Fraction(inputs["y"]))
    return {"var": float(design.variance(*_people(inputs))), "eps": design.epsilon}


def _improved(inputs: dict[str, Any]) -> float:
    return float(deck_variance(_cards(inputs), int(inputs["M_deck"]), *_people(inputs)))


ADAPTERS: dict[str, Callable[[dict[str, Any]], object]] = {
    "var_warner": _warner,
    "var_simmons": _simmons,
    "var_chr": lambda inputs: float(_cards(inputs).variance(*_people(inputs))),
    "var_imp": _improved,
    "eps_chr": lambda inputs: cards_epsilon(list(map(Fraction, inputs["p"]))),
    "eps_deck": lambda inputs: deck_epsilon(inputs["counts"], inputs["n"]),
    "chr_estimate": lambda inputs: _cards(inputs).estimate(inputs["reports"]).value,
}
