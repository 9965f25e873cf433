"""Runs of equal keys in sorted columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def opens(*ordered: NDArray[Any]) -> NDArray[np.bool_]:
    """Tell where, in columns sorted together, a combination of values is for the first time.

    Parameters
    ----------
    *ordered : (n,) arrays
        At least one.

    Returns
    -------
    (n,) bool

    Examples
    --------
    >>> opens(np.array([3, 3, 4]), np.array([1, 2, 2])).tolist()
    [True, True, True]
    >>> opens(np.array([3, 3, 4])).tolist()
    [True, False, True]
    """
    first = np.zeros(len(ordered[0]), dtype=np.bool_)
    first[:1] = True
    for column in ordered:
        first[1:] |= column[1:] != column[:-1]
    return first


def one_of_each(keys: NDArray[np.integer]) -> NDArray[np.intp]:
    """Return for every different key the place of one that has it, ascending by key.

    Much faster than :func:`numpy.unique` with ``return_index``, which sorts stably.

    Examples
    --------
    >>> one_of_each(np.array([7, 5, 6])).tolist()
    [1, 2, 0]
    """
    order = np.argsort(keys)
    return order[opens(keys[order])]
