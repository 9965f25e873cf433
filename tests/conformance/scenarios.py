"""Sequences of calls of one device, and what holds after each: run against the SDK.

A step is one call, at a time of the device's clock, with the random bits that it draws; it says
what the call returns, what is sent, and what the ledger says afterwards. ``docs/spec/protocol.md``
describes the steps.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from clientsdk import FlushResult
from clientsdk.sending import backoff, sender
from clientsdk.sending.tasks import FlushTask
from clientsdk.settings import Quota, Settings
from clientsdk.store import measures, rollback_guard
from clientsdk.store.database import READ
from clientsdk.testing import FakeClock
from sotto.errors import PlanError, PublishError, StoreError
from sotto.plan.compiled import Ceilings
from tests.conformance import files
from tests.conformance.given import Device, DeviceBits

Step = dict[str, Any]
#: Fields of a step that say what happens.
_FOUND = ("random", "is", "sent", "ledger", "measures")
_STATE = "device.db"
_PARTS = {
    "state": ["", "-wal", "-shm"],
    "guard": [rollback_guard.SUFFIX],
    "everything": ["", "-wal", "-shm", rollback_guard.SUFFIX],
}


class DeathError(BaseException):
    """The process ends here."""


class StepClock(FakeClock):
    """A clock that may be right again when it is read a second time in one step."""

    then: int | None = None

    def __call__(self) -> float:
        reading = super().__call__()
        if self.then is not None:
            self.now = self.then
        return reading


class Receiver:
    """A publisher that takes messages, refuses them, or ends the process, as a step says."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.mode: Any = "takes"

    def publish(self, shard: int, message: bytes) -> None:
        if self.mode == "dies before":
            raise DeathError
        if self.mode == "refuses":
            raise PublishError("refused")
        if isinstance(self.mode, int):
            if not self.mode:
                raise PublishError("refused")
            self.mode -= 1
        self.messages.append(message)
        if self.mode == "dies after":
            raise DeathError


class Runner:
    """One device in a folder of its own; ``write`` fills in what a step gives and returns."""

    def __init__(self, folder: Path, *, write: bool) -> None:
        self._folder, self._write = folder, write
        self._clock, self._receiver = StepClock(0), Receiver()
        self._source = DeviceBits(DeathError)
        self._device: Device | None = None
        self._waiting: dict[bytes, dict[str, Any]] = {}

    @property
    def device(self) -> Device:
        assert self._device is not None
        return self._device

    def run(self, step: Step) -> Step:
        """Make the call of a step; return the step with what it gave and returned."""
        if "at" in step:
            self._clock.now = step["at"]
        self._clock.then = step.get("then")
        given = None if self._write else bytes.fromhex(step.get("random", ""))
        self._source.begin(given)
        before = len(self._receiver.messages)
        action: Callable[[Step], Any] = getattr(self, f"_{step['do']}")
        done = {key: step[key] for key in step if key not in _FOUND}
        try:
            returned = action(step)
        except DeathError:
            returned = "died"
            self._die()
        if self._source.drawn:
            done["random"] = self._source.drawn.hex()
        if returned is not None:
            done["is"] = returned
        sent = [message.hex() for message in self._receiver.messages[before:]]
        if sent:
            done["sent"] = sent
        if self._device is not None and step["do"] != "close":
            done["ledger"] = self._ledger()
            if self.device.plan.measured:
                before_it, self._waiting = self._waiting, self._answers()
                drawn = [each for id, each in self._waiting.items() if id not in before_it]
                done["measures"] = {"states": self._states(), "drawn": drawn}
        return done

    def _die(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            device._store.database.close()

    # The calls.

    def _open(self, step: Step) -> str:
        more: dict[str, Any] = {}
        if "ceilings" in step:
            more["ceilings"] = Ceilings(*step["ceilings"])
        quota = Quota(age=step["age"] / 1000 if "age" in step else None)
        try:
            self._device = Device(
                files.plan(step["plan"]),
                source=self._source,
                clock=self._clock,
                state=self._folder / _STATE,
                publisher=self._receiver,
                leaks_values=True,
                settings=Settings(quota=quota, background=False),
                **more,
            )
            # The SDK makes the store when it is first needed; a step says what opening it draws.
            self._device.ledger()
        except PlanError:
            return "refused"
        return "open"

    def _close(self, step: Step) -> None:
        self.device.close()
        self._device = None

    def _agree(self, step: Step) -> bool:
        return self.device.give_consent(groups=step.get("groups"), again=step.get("again", False))

    def _renew(self, step: Step) -> bool:
        ceilings = Ceilings(*step["ceilings"]) if "ceilings" in step else None
        return self.device.renew_consent(ceilings, again=step.get("again", False))

    def _withdraw(self, step: Step) -> None:
        self.device.withdraw_consent(groups=step.get("groups"))

    def _record(self, step: Step) -> str:
        self._source.dies = step.get("dies after draws")
        self._let_time_pass()
        value = files.value_of(step["value"])
        return str(self.device.record(step["metric"], value).value)

    def _count(self, step: Step) -> str:
        return str(self.device.count(step["name"], step["times"]).value)

    def _reach(self, step: Step) -> str:
        return str(self.device.reach(step["metric"], step["step"]).value)

    def _let_time_pass(self) -> None:
        """Let the client forget what it may remember for a twentieth of a second."""
        refusals = self.device._store.refusals
        for metric in [name for name, each in refusals.items() if each.stale is not None]:
            del refusals[metric]

    def _full(self, step: Step) -> None:
        outbox = self.device._store.outbox
        outbox._bytes = outbox.room = 0

    def _flush(self, step: Step) -> dict[str, Any]:
        self._receiver.mode = step.get("publisher", "takes")
        dies = mock.patch.object(rollback_guard, "advance", side_effect=DeathError)
        with dies if step.get("dies before the guard") else _nothing():
            return _result(self.device.flush())

    def _round(self, step: Step) -> dict[str, Any]:
        """Send the reports of one pseudonym, as a background thread does."""
        self._receiver.mode = step.get("publisher", "takes")
        task = FlushTask(one_pseudonym=True, window=step["window"])
        chance = step["chance"][0] / step["chance"][1]
        with (
            mock.patch.object(backoff, "chance", return_value=chance),
            mock.patch.object(sender, "uniform_below", lambda bound, _: step["choice"] % bound),
        ):
            result = self.device._outgoing.flush(task)
        return {**_result(result), "rest": round(1000 * task.rest)}

    def _copy(self, step: Step) -> None:
        for suffix in _PARTS["everything"]:
            path = self._folder / (_STATE + suffix)
            if path.exists():
                shutil.copy(path, self._folder / f"{step['to']}{suffix}")

    def _restore(self, step: Step) -> None:
        self._lose(step)
        for suffix in _PARTS[step["what"]]:
            path = self._folder / f"{step['from']}{suffix}"
            if path.exists():
                shutil.copy(path, self._folder / (_STATE + suffix))

    def _lose(self, step: Step) -> None:
        for suffix in _PARTS[step["what"]]:
            (self._folder / (_STATE + suffix)).unlink(missing_ok=True)

    def _damage(self, step: Step) -> None:
        path = self._folder / (_STATE if step["what"] == "state" else _STATE + "-mark")
        size = os.path.getsize(path)
        path.write_bytes(b"\x55" * size)

    def _ledger(self) -> dict[str, Any]:
        try:
            # The client's own method is a call like any other, which measures would notice.
            found = self.device._store.ledger()
        except StoreError:
            return {"unreadable": True}
        ceilings = [found.ceilings.period, found.ceilings.lifetime]
        groups = {name: str(said.value) for name, said in self.device.group_consent.items()}
        return {
            "consent": str(found.consent.value),
            **({"groups": groups} if groups else {}),
            "ceilings": ceilings,
            "period": found.period,
            "lifetime": [found.reserved, found.spent],
            "periods": {str(each.number): [each.reserved, each.spent] for each in found.periods},
            "due": [[each.due, each.charged, each.delivered] for each in found.pending],
        }

    def _states(self) -> dict[str, Any]:
        """Return the symbol that each measure has come to; of a response its payload."""
        found: dict[str, Any] = {}
        with self.device._store.transaction(READ) as connection:
            rows = connection.execute("SELECT metric, state FROM measure ORDER BY metric")
            for index, state in rows:
                metric, known = self.device.plan.metrics[index], state[measures._NONCE :]
                if metric.holds_response:
                    found[metric.name] = known.hex()
                else:
                    found[metric.name] = metric.encode(measures._value(metric, known))
        return found

    def _answers(self) -> dict[bytes, dict[str, Any]]:
        """Return the answers that wait in the outbox, by the ids of their chains."""
        query = "SELECT id, period, metric, event, payloads FROM chain ORDER BY period, metric"
        with self.device._store.transaction(READ) as connection:
            rows = connection.execute(query).fetchall()
        return {
            id: {
                "metric": self.device.plan.metrics[metric].name,
                "period": period,
                "event": event,
                "payloads": payloads.hex(),
            }
            for id, period, metric, event, payloads in rows
        }


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _result(result: FlushResult) -> dict[str, Any]:
    lapses = {name: count for name, count in result.lapses._asdict().items() if count}
    found: dict[str, Any] = {"sent": result.sent, "remaining": result.remaining}
    if lapses:
        found["lapses"] = lapses
    if result.error is not None:
        found["failed"] = True
    return found


def run(steps: list[Step], *, write: bool = False) -> list[Step]:
    """Run the steps of one scenario in an empty folder."""
    with TemporaryDirectory() as folder:
        runner = Runner(Path(folder), write=write)
        try:
            return [runner.run(step) for step in steps]
        finally:
            runner._die()


def made(name: str) -> list[dict[str, Any]]:
    """Return the scenarios of a file with what the SDK draws and answers in them."""
    return [
        {**each, "steps": run(each["steps"], write=True)} for each in files.read(name)["scenarios"]
    ]


def write(name: str) -> None:
    files.write(name, scenarios=made(name))


def check(name: str) -> Iterator[str | None]:
    """Run the scenarios of a file; a vector is a step."""
    for scenario in files.read(name)["scenarios"]:
        steps = scenario["steps"]
        try:
            got = run(steps)
        except Exception as error:
            yield f"{scenario['name']}: {type(error).__name__}: {error}"
            continue
        for number, (step, done) in enumerate(zip(steps, got, strict=True), start=1):
            wrong = {key: done.get(key) for key in {*step, *done} if step.get(key) != done.get(key)}
            where = f"{scenario['name']}, step {number} ({step['do']})"
            yield f"{where}: {wrong}" if wrong else None
