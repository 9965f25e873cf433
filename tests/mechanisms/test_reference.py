"""``docs/mechanisms.md`` is what the library says of itself, and nothing is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from mechanisms.docstrings import sections, source
from mechanisms.inventory import Entry, entries, unlisted
from mechanisms.reference import page
from mechanisms.registry import REGISTRY

PAGE = Path(__file__).parents[2] / "docs" / "mechanisms.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again with `make docs`"


def test_no_mechanism_is_left_out() -> None:
    assert unlisted() == []


def test_a_mechanism_that_is_left_out_is_seen() -> None:
    assert unlisted(entries()[1:]) == ["GeneralizedRandomizedResponse"]


def test_every_mechanism_of_plans_has_figures() -> None:
    assert {entry.spec["name"] for entry in entries() if entry.spec} == set(REGISTRY)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_every_mechanism_says_what_a_privacy_engineer_asks(entry: Entry) -> None:
    found = sections(entry.load())
    for title in ("", "Privacy", "Relaxation", "Use", "References"):
        assert found[title], title
    assert "|" not in source(entry.load())
    assert len(source(entry.load())) < 160


def test_names_are_links() -> None:
    names = [entry.name.lower() for entry in entries()]
    assert len(set(names)) == len(names)
    text = PAGE.read_text(encoding="utf-8").lower()
    for name in names:
        assert f"](#{name})" in text
        assert f"\n### {name}\n" in text
