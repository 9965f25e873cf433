"""The states of a shard's budget periods in keyed state, without writing them anew at every turn.

A period's state is kept as a *snapshot*, cut into pieces, and a *log* of the packed rows taken
since. Since a state is a function of the set of rows that it has seen, stepping the log's rows
again after the snapshot gives it back. The log is folded into a new snapshot once it is a quarter
as large, so that all that is ever written stays in proportion to what has come.

Live states are held in the process and may be ahead of the keyed state, or behind it: an engine
rolls keyed state back, and moves keys between processes. So whoever changes a state draws a random
token for it, kept beside it in both places, and a live state is used only under the token that
keyed state has. States change in place, hence one is taken out before it is changed.
"""

from __future__ import annotations

import secrets
import struct
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pipelines.keyed import new_key
from pipelines.shard import Stepped, step_blocks
from pipelines.state import State
from pipelines.streaming.states import ShardStates
from sotto.errors import PlanError
from sotto.registry import Registry

#: Bytes of a piece of a snapshot.
PIECE = 1 << 19
#: A log of fewer bytes is not folded.
SHORT = 1 << 16
#: Otherwise it is once it has this part of its snapshot's bytes.
PART = 4

_TOKEN = 16
_HEAD = struct.Struct(f"<{_TOKEN}sIQIQ")
_PERIOD = struct.Struct("<q")
_ENTRY = struct.Struct("<qI")
_PLAN = struct.Struct("<32sH")


class Head(NamedTuple):
    """Where a period's state is.

    Attributes
    ----------
    token : bytes
        Of the state that snapshot and log make together.
    pieces, size : int
        Of the snapshot; none where all is in the log.
    entries, logged : int
        Of the log, and its bytes.
    """

    token: bytes = bytes(_TOKEN)
    pieces: int = 0
    size: int = 0
    entries: int = 0
    logged: int = 0


class LiveStates:
    """States in the memory of a process, those used last, up to some bytes but at least one.

    Parameters
    ----------
    limit : int
        Bytes.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[tuple[int, int], tuple[bytes, State, int]] = OrderedDict()
        self._bytes = 0

    def take(self, shard: int, period: int, token: bytes) -> State | None:
        """Return the state of this token, which is then held no longer; None if it is not held."""
        held = self._held.pop((shard, period), None)
        if held is None:
            return None
        of, state, size = held
        self._bytes -= size
        return state if of == token else None

    def hold(self, token: bytes, state: State) -> None:
        """Hold a state that nobody else is going to change."""
        self.take(state.shard, state.period, b"")
        self._held[state.shard, state.period] = token, state, state.nbytes
        self._bytes += state.nbytes
        while self._bytes > self._limit and len(self._held) > 1:
            _, (_, _, size) = self._held.popitem(last=False)
            self._bytes -= size


class Journal:
    """The states of the shard that is being worked on.

    Parameters
    ----------
    registry : Registry
    states : ShardStates
    live : LiveStates
        Of all shards of this operator.
    """

    def __init__(self, registry: Registry, states: ShardStates, live: LiveStates) -> None:
        self._registry = registry
        self._states = states
        self._live = live
        self._plans = b"".join(
            _PLAN.pack(plan.fingerprint, len(plan.metrics)) for plan in registry.plans
        )

    def heads(self) -> dict[int, Head]:
        """Return where the states are, by period, ascending."""
        items = self._states.heads.items()
        return dict(sorted((_PERIOD.unpack(key)[0], Head(*_HEAD.unpack(v))) for key, v in items))

    def adopt(self, shard: int) -> None:
        """Let all rows be numbered by the registry; to be called before anything else.

        Logs written under other plans are folded under those: who was revoked by their budget
        stays so, as it does in a snapshot.

        Raises
        ------
        PlanError
            The registry lacks a plan that rows may be of.
        """
        before = self._states.plans.get()
        if before == self._plans:
            return
        if before is not None:
            former = self._former(before)
            for period, head in self.heads().items():
                state = self._restored(shard, period, head, former)
                self._fold(period, head, state)
        self._states.plans.set(self._plans)

    def read(self, shard: int, period: int) -> State:
        """Return the state of a period, not to be changed."""
        head = self._head(period)
        state = self._state(shard, period, head)
        self._live.hold(head.token, state)
        return state

    def step(self, shard: int, period: int, blocks: Sequence[bytes]) -> Stepped:
        """Take packed rows into the state of a period."""
        head = self._head(period)
        stepped = step_blocks(self._state(shard, period, head), blocks)
        logged = head.logged + sum(map(len, blocks))
        if logged > max(SHORT, head.size // PART):
            head = self._fold(period, head, stepped.state)
        else:
            for number, block in enumerate(blocks, start=head.entries):
                self._states.logs.put(_ENTRY.pack(period, number), block)
            head = head._replace(entries=head.entries + len(blocks), logged=logged)
            head = self._put(period, head)
        self._live.hold(head.token, stepped.state)
        return stepped

    def drop(self, shard: int, period: int) -> None:
        """Keep nothing more of a period."""
        head = self._head(period)
        self._live.take(shard, period, b"")
        self._remove(period, head, keep=0)
        self._states.heads.remove(_PERIOD.pack(period))

    def _head(self, period: int) -> Head:
        head = self._states.heads.get(_PERIOD.pack(period))
        return Head() if head is None else Head(*_HEAD.unpack(head))

    def _put(self, period: int, head: Head) -> Head:
        """Write a head under a token of its own."""
        head = head._replace(token=secrets.token_bytes(_TOKEN))
        self._states.heads.put(_PERIOD.pack(period), _HEAD.pack(*head))
        return head

    def _state(self, shard: int, period: int, head: Head) -> State:
        """Return the state that keyed state means, and leave no live one behind."""
        state = self._live.take(shard, period, head.token)
        return self._restored(shard, period, head, self._registry) if state is None else state

    def _restored(self, shard: int, period: int, head: Head, registry: Registry) -> State:
        if head.pieces:
            pieces = [self._states.snapshots.get(key) for key in _keys(period, head.pieces)]
            state = State.from_bytes(b"".join(map(_present, pieces)), registry)
        else:
            state = State(registry, shard, period, new_key())
        logged = (self._states.logs.get(key) for key in _keys(period, head.entries))
        return step_blocks(state, map(_present, logged)).state

    def _fold(self, period: int, head: Head, state: State) -> Head:
        """Write a state as the snapshot of a period, with an empty log."""
        snapshot = state.to_bytes()
        pieces = range(0, len(snapshot), PIECE)
        for number, at in enumerate(pieces):
            self._states.snapshots.put(_ENTRY.pack(period, number), snapshot[at : at + PIECE])
        self._remove(period, head, keep=len(pieces))
        return self._put(period, Head(pieces=len(pieces), size=len(snapshot)))

    def _remove(self, period: int, head: Head, keep: int) -> None:
        """Remove the log, and of the snapshot all but the first pieces."""
        for key in _keys(period, head.entries):
            self._states.logs.remove(key)
        for number in range(keep, head.pieces):
            self._states.snapshots.remove(_ENTRY.pack(period, number))

    def _former(self, plans: bytes) -> Registry:
        """Return the registry by which rows were numbered."""
        known = self._registry.by_fingerprint
        fingerprints = [fingerprint for fingerprint, _ in _PLAN.iter_unpack(plans)]
        missing = [each.hex() for each in fingerprints if each not in known]
        if missing:
            raise PlanError(
                "reports have been counted under plans that are missing, of the fingerprints "
                + ", ".join(missing)
            )
        return Registry([known[fingerprint] for fingerprint in fingerprints])


def _keys(period: int, number: int) -> Iterator[bytes]:
    return (_ENTRY.pack(period, each) for each in range(number))


def _present(value: bytes | None) -> bytes:
    if value is None:
        raise LookupError("a part of a state is missing in keyed state")
    return value
