"""Shards: what waits is decoded and stepped in large pieces; expiry goes by the shard's lanes."""

from __future__ import annotations

from collections.abc import Iterator

from pipelines.streaming.deployment import Deployment
from pipelines.streaming.letters import Letter
from pipelines.streaming.states import ShardStates


class ShardKeeper:
    """Keeps the states of each shard's budget periods; keyed by shard.

    Parameters
    ----------
    deployment : Deployment
    states : ShardStates
    """

    def __init__(self, deployment: Deployment, states: ShardStates) -> None:
        self._deployment = deployment
        self._states = states

    def take(self, shard: int, body: bytes, now: int) -> Iterator[Letter]:
        """Yield what follows from a letter.

        Parameters
        ----------
        shard : int
            The key.
        body : bytes
            Of a letter to :attr:`Port.SHARDS`.
        now : int
            The wall clock at this call, ms: how long rows wait, and nothing else, goes by it.

        Raises
        ------
        PlanError
            Reports have been counted under a plan that the deployment does not have.
        """
        raise NotImplementedError
