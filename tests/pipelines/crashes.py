"""Processes that end at a step of a commit, for the tests of what is left then."""

from __future__ import annotations

from collections.abc import Callable


class Killed(BaseException):
    """A process ends here, and what it has in memory is gone."""


def kill_at(step: str, occurrence: int = 1) -> Callable[[str], None]:
    """Return a checkpoint that ends the process at an occurrence of a step."""
    seen = 0

    def check(found: str) -> None:
        nonlocal seen
        seen += found == step
        if found == step and seen == occurrence:
            raise Killed

    return check
