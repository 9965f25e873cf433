"""Windows: counts are added up, and estimates made early, on time, and when they sharpen."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.streaming.deployment import Deployment
from pipelines.streaming.letters import Letter
from pipelines.streaming.states import WindowStates


class WindowKeeper:
    """Keeps the counts of windows; keyed by slot.

    Parameters
    ----------
    deployment : Deployment
    states : WindowStates
    """

    def __init__(self, deployment: Deployment, states: WindowStates) -> None:
        self._deployment = deployment
        self._states = states

    def take(self, slot: int, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        slot : int
            The key.
        body : bytes
            Of a letter to :attr:`Port.WINDOWS`.
        now : int
            The wall clock at this call, ms: never that of an earlier one, since revisions come
            from it.
        """
        raise NotImplementedError
