"""Faults that tests plant, to see that something notices them."""

from __future__ import annotations

from typing import Any

import pytest


def plant(patch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any) -> None:
    """Put a fault in the place of an attribute; one that is a function gets the right one first."""
    right = getattr(owner, name)

    def around(*given: Any, **named: Any) -> Any:
        return wrong(right, *given, **named)

    patch.setattr(owner, name, around if callable(wrong) else wrong)
