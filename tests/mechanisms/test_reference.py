"""``docs/reference/mechanisms.md`` is what the library says of itself, and nothing is left out."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.writers.mechanisms import GROUPS, documented, page, sections, source
from mechanisms.registry import REGISTRY

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "mechanisms.md"
SHIPPED = [each for group in GROUPS for each in documented(group.folder)]


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again with `make docs`"


def test_every_mechanism_of_plans_is_documented() -> None:
    assert {each.name for each in SHIPPED} == set(REGISTRY), "each folder is a group"


@pytest.mark.parametrize("each", SHIPPED, ids=lambda each: each.__name__)
def test_every_mechanism_says_what_a_privacy_engineer_asks(each: type) -> None:
    found = sections(each)
    for title in ("", "Privacy", "Relaxation", "Use", "References"):
        assert found[title], title


@pytest.mark.parametrize("each", SHIPPED, ids=lambda each: each.__name__)
def test_sources_are_short(each: type) -> None:
    assert "|" not in source(each)
    assert 10 < len(source(each)) < 160
