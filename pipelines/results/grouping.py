"""Rows in groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
K = TypeVar("K")


def grouped(rows: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Return rows by key, each group in their order; groups in the order of their first rows.

    >>> grouped([3, 1, 4, 1, 5], lambda number: number % 2)
    {1: [3, 1, 1, 5], 0: [4]}
    """
    found: dict[K, list[T]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found
