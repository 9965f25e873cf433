"""The books: what became of all reports, the audits of periods, and how the job is."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.streaming.deployment import Deployment
from pipelines.streaming.letters import Letter
from pipelines.streaming.states import BookStates


class BookKeeper:
    """Keeps the sums over all shards; its only key is 0.

    Parameters
    ----------
    deployment : Deployment
    states : BookStates
    """

    def __init__(self, deployment: Deployment, states: BookStates) -> None:
        self._deployment = deployment
        self._states = states

    def take(self, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        body : bytes
            Of a letter to :attr:`Port.BOOKS`.
        now : int
            The wall clock at this call, ms, as of :meth:`WindowKeeper.take`.
        """
        raise NotImplementedError
