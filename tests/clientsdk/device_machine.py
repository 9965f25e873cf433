"""A device that is lived through step by step, and what must hold of it after each step.

A step is a line of text; ``scenarios/README.md`` says which there are. The machine has the device's
file, any number of clients on it, one clock, and a receiver that keeps every message. After each
step it compares the file, what was received and what the clients say of themselves:
:class:`~device_invariants.Invariants` lists what must hold.
"""

from __future__ import annotations

import json
import logging
import math
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from unittest import mock

from device_invariants import FIGURE, MARK, Invariants
from device_plans import START, Failing, Sent, compiled, metric, plan, reports
from device_receiver import LogLines, Receiver, Tally
from device_words import LEDGER, names_of, of_flush, runs
from scenario_plans import ceilings, duration, parts, plan_of

from clientsdk import Outcome, Quota, Settings
from clientsdk.consent import ConsentKeeper
from clientsdk.ledger import Ledger, read_file
from clientsdk.preview import preview_file
from clientsdk.sending.tasks import FlushTask
from clientsdk.store import rollback_guard
from clientsdk.store.store import Store
from clientsdk.testing import FakeClock, SeededClient, move_to_turn, reported
from mechanisms.top_item.permute_and_flip import PermuteAndFlip
from sotto.errors import PlanError, StoreError, ValueTypeError
from sotto.plan.compiled import CompiledPlan
from sotto.plan.segments import cell_label
from sotto.wire.format import decode_message

_FILES = {"state": ("", "-wal", "-shm"), "guard": ("-mark",), "log": ("-wal",), "name": ("",)}
_FILES["sending"] = ("-sending",)
_FILES["everything"] = (*_FILES["state"], "-mark")

#: Functions before which a step can be made.
_AMID = {
    "agreeing": (ConsentKeeper, "_write_agreement"),
    "lifting": (rollback_guard, "lift_withdrawal"),
    "withdrawing": (Store, "set_consent"),
}


class DeviceMachine:
    """Runs steps, and checks the invariants after each; ``path`` None is a store in memory."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.clock, self.receiver, self.log = FakeClock(START), Receiver(), LogLines()
        self.clients: dict[str, SeededClient] = {}
        self.plans: list[CompiledPlan] = []
        self.tallies: dict[SeededClient, Tally] = {}
        #: Whether files were lost, damaged or replaced: the ledger only bounds what was spent.
        self.accidents = False
        #: Whether something that had to be erased could not be, so that it may be there still.
        self.owes = False
        self._named: dict[str, CompiledPlan] = {"": plan(metric("colour"))}
        self._seed = self._told_of = 0
        self.invariants = Invariants(self)
        self.receiver.before_each = self.invariants.hand_over
        self._drawn: list[str] = []
        self._secret = b""
        self._patches = ExitStack()
        #: The monotonic clock, in seconds: what is remembered for a moment stays so until it moves.
        self.moment = 1000.0
        for module in ("client", "outcomes", "store.store", "store.database"):
            name = f"clientsdk.{module}.monotonic"
            self._patches.enter_context(mock.patch(name, side_effect=lambda: self.moment))
        self._note_counts()
        # Plans are values: each is read once.
        self._patches.enter_context(mock.patch.object(CompiledPlan, "from_json", compiled))
        logging.getLogger("clientsdk").addHandler(self.log)
        logging.getLogger("clientsdk").setLevel(logging.DEBUG)

    def end(self) -> None:
        """Close what is open."""
        for client in self.clients.values():
            client.close()
        logging.getLogger("clientsdk").removeHandler(self.log)
        logging.getLogger("clientsdk").setLevel(logging.NOTSET)
        self._patches.close()

    def _note_counts(self) -> None:
        """Note the counts of items that chains are drawn from."""
        draw = PermuteAndFlip.draw

        def noting(mechanism: PermuteAndFlip, counts: Iterable[int], *given: object) -> object:
            self._drawn.append(" ".join(map(str, counts)))
            return draw(mechanism, counts, *given)  # type: ignore[arg-type]

        self._patches.enter_context(mock.patch.object(PermuteAndFlip, "draw", noting))

    def run(self, line: str) -> str:
        """Make one step, check what it says and what must hold; return what came of it."""
        step, arrow, expected = line.partition("->")
        who, colon, rest = step.partition(":")
        if not colon or who.startswith(("plan", "words", "told")):
            who, rest = "a", step
        verb, *words = rest.split()
        came = self._step(who, [verb, *words])
        self._settle_debts()
        usual = words[0] if verb in ("unchanged", "silent", "foreseen") else verb
        wanted = " ".join(expected.split()) if arrow else _USUAL.get(usual, came)
        if arrow and [verb, *words] in (["ledger"], ["unchanged", "ledger"]):
            keys = [each.split()[0] for each in wanted.split(", ")]
            came = ", ".join(f"{key} {self._step(who, ['figure', key])}" for key in keys)
        assert wanted in (came, "anything"), f"came: {came}\nwanted: {wanted}"
        self.invariants.check(verb, came)
        return came

    def _step(self, who: str, words: list[str]) -> str:
        verb, *rest = words
        try:
            return str(getattr(self, f"_{verb}")(who, rest))
        except (PlanError, StoreError, ValueTypeError, KeyboardInterrupt) as error:
            if verb not in _MAY_FAIL:
                raise
            self.log.add(str(error))
            return "StoreError" if isinstance(error, StoreError) else type(error).__name__

    def _settle_debts(self) -> None:
        stores = [each._store for each in self.clients.values() if each._is_open]
        self.owes = any(each.erasure.pending or each.stopped for each in stores)

    # Steps about plans and clients.

    def _plan(self, who: str, words: list[str]) -> None:
        """``plan METRICS`` is the usual one; ``plan later: METRICS`` is one to start with."""
        name, colon, text = " ".join(words).partition(": ")
        self._named[name if colon else ""] = plan_of(text if colon else name)

    def _start(self, who: str, words: list[str]) -> str:
        said = parts(words, ("plan", "without", "ceilings", "limits", "age", "quota", "off"))
        given = self._named[said.get("plan", [""])[0]]
        self._seed += 1
        options: dict[str, object] = {}
        if "ceilings" in said:
            options["ceilings"] = ceilings(*said["ceilings"])
        if "limits" in said:
            period, lifetime = map(float, said["limits"])
            options["settings"] = Settings(ceiling_period=period, ceiling_lifetime=lifetime)
        if "age" in said:
            options["quota"] = Quota(age=duration(said["age"][0]) / 1000)
        if "quota" in said:
            options["quota"] = Quota(bytes=int(said["quota"][0]))
        if "off" in said:
            options["settings"] = Settings(disabled=True)
        if given not in self.plans:
            self.plans.append(given)
        client = SeededClient(
            given,
            seed=self._seed,
            state=self.path,
            clock=self.clock,
            publisher=self.receiver,
            consent="without" not in said,
            **options,  # type: ignore[arg-type]
        )
        self.clients[who] = client
        self.tallies[client] = Tally()
        return "started"

    def _close(self, who: str, words: list[str]) -> None:
        self.tallies.pop(self.clients[who])
        self.clients.pop(who).close()

    def _die(self, who: str, words: list[str]) -> None:
        """End as a process does that is killed: the connection goes without tidying up."""
        client = self.clients.pop(who)
        self.tallies.pop(client)
        if client._is_open:
            client._store.database.disconnect()

    # Steps of an app.

    def _record(self, who: str, words: list[str]) -> str:
        said = parts(words, ("value",))
        if said[""] == ["*"]:
            said[""] = [each.name for each in self.clients[who].plan.metrics]
        names = [each for each in said[""] if not re.fullmatch(r"x\d+", each)]
        (times,) = [int(each[1:]) for each in said[""] if each not in names] or [1]
        client, outcomes = self.clients[who], []
        for name in names * times:
            usual = FIGURE if client.plan.metric(name).type == "number" else MARK
            outcome = client.record(name, said.get("value", [usual])[0])
            assert not outcome or self.clock.now < client.plan.expires
            self.tallies[client].outcomes[outcome][name] += 1
            outcomes.append(_said(outcome))
        return runs(outcomes)

    def _count(self, who: str, words: list[str]) -> str:
        """``count export 7``: let an event happen so often."""
        event, *times = words
        return _said(self.clients[who].count(event, *map(int, times)))

    def _reach(self, who: str, words: list[str]) -> str:
        """``reach checkout cart``: a step of a funnel."""
        return _said(self.clients[who].reach(*words))

    def _feed(self, who: str, words: list[str]) -> str:
        """``feed load 12``, ``feed dark true``: a value of which plans measure something."""
        source, value = words
        return _said(self.clients[who].record(source, json.loads(value)))

    def _flush(self, who: str, words: list[str]) -> str:
        client = self.clients[who]
        result = client.flush()
        self.tallies[client].sent += result.sent
        self.tallies[client].lapsed += result.lapsed
        return of_flush(result)

    def _round(self, who: str, words: list[str]) -> str:
        """``round 100d``: send for one pseudonym, as a thread does that waits so long for others.

        Says for how many seconds the others rest, and when what failed is tried again.
        """
        window = duration(words[0]) if words else self.clients[who].plan.resolution
        task = FlushTask(one_pseudonym=True, window=window, backs_off=True)
        result = self.clients[who]._outgoing.flush(task)
        self.tallies[self.clients[who]].sent += result.sent
        self.tallies[self.clients[who]].lapsed += result.lapsed
        times = {"rest": task.rest, "again": task.again}
        said = [f"{name} {value:g}" for name, value in times.items() if 0 < value < math.inf]
        return ", ".join([of_flush(result), *said])

    def _chance(self, who: str, words: list[str]) -> None:
        """``chance 0.5``: let every random while be so much of the longest."""
        name = "clientsdk.sending.backoff.chance"
        self._patches.enter_context(mock.patch(name, return_value=float(words[0])))

    def _segments(self, who: str, words: list[str]) -> None:
        """``segments os=mac``: what the device is from now on."""
        self.clients[who].set_segments(dict(each.split("=") for each in words))

    def _cells(self, who: str, words: list[str]) -> str:
        """How many reports were received in each cell of segments and arms."""
        found, client = Counter[str](), self.clients[who]
        for _, body in self.receiver.messages:
            message = decode_message(body)
            rows = sum(len(group.rows) for group in message.groups)
            found[cell_label(client.plan.attributes, message.cell)] += rows
        return (
            ", ".join(f"{cell or 'none'} {rows}" for cell, rows in sorted(found.items()))
            or "nothing"
        )

    def _arm(self, who: str, words: list[str]) -> str:
        """The arm of an experiment that a device is in, and whether its secret is another now."""
        client, before = self.clients[who], self._secret
        (arm, self._secret) = client.arm(words[0]) or "none", client._store.arm_secret
        said = "same" if self._secret == before else "new"
        return f"{arm}, {said if self._secret else 'no'} secret"

    def _signed(self, who: str, words: list[str]) -> str:
        """How many messages were signed, of how many."""
        versions = [body[2] for _, body in self.receiver.messages]
        return f"{versions.count(2)} of {len(versions)}"

    def _agree(self, who: str, words: list[str]) -> str:
        again = "again" in words
        groups = _groups(each for each in words if each != "again")
        return _YES[self.clients[who].give_consent(groups=groups, again=again)]

    def _withdraw(self, who: str, words: list[str]) -> str:
        return _YES[self.clients[who].withdraw_consent(groups=_groups(words))]

    def _renew(self, who: str, words: list[str]) -> str:
        again = "again" in words
        amounts = [each for each in words if each != "again"]
        wanted = ceilings(*amounts) if amounts else None
        return _YES[self.clients[who].renew_consent(wanted, again=again)]

    # Steps of time, of the receiver and of failures.

    def _wait(self, who: str, words: list[str]) -> None:
        self.clock.now += duration(" ".join(words))

    def _time(self, who: str, words: list[str]) -> None:
        """``time 2w 1ms`` is so long after the start; ``time due``, ``time expiry``."""
        if words == ["due"]:
            self.clock.now = max(self.clock.now, self.clients[who].next_due() or 0)
        elif words[0] == "expiry":
            self.clock.now = self.clients[who].plan.expires + duration(" ".join(words[1:]))
        else:
            self.clock.now = START + duration(" ".join(words))

    def _turn(self, who: str, words: list[str]) -> None:
        """``turn colour``: move on to a period in which the device is to answer."""
        move_to_turn(self.clients[who], words[0])

    def _pass(self, who: str, words: list[str]) -> None:
        """``pass turn colour``: move on to a period in which it is not."""
        move_to_turn(self.clients[who], words[1], turn=False)

    def _run(self, who: str, words: list[str]) -> None:
        """``run out``: send everything, each report when it is due, byte for byte as was shown.

        A preview does not show what is still being counted.
        """
        counting = bool(self.clients[who]._recorder.counter)
        shown, sent = self.clients[who].preview().messages, []
        while (due := self.clients[who].next_due()) is not None:
            self.clock.now, before = max(self.clock.now, due), len(self.receiver.messages)
            assert "Error" not in self._flush(who, [])
            sent += [(self.clock.now, *each) for each in self.receiver.messages[before:]]
        assert counting or [(each.due, each.shard, each.data) for each in shown] == sent

    def _forget(self, who: str, words: list[str]) -> None:
        """Let the moment pass for which refusals are remembered, and the file is not looked for."""
        self.moment += 0.051

    def _remember(self, who: str, words: list[str]) -> None:
        """Let time pass, but not the whole of that moment."""
        self.moment += 0.049

    def _receiver(self, who: str, words: list[str]) -> None:
        """``receiver refuses``; ``receiver breaks 1``: after it has taken one message."""
        self.receiver.left = int(words.pop()) if words[-1].isdigit() else 0
        self.receiver.mode = " ".join(words)

    def _full(self, who: str, words: list[str]) -> None:
        """Let no other report into the outbox."""
        outbox = self.clients[who]._store.outbox
        outbox._bytes = outbox.room = 0

    def _messages(self, who: str, words: list[str]) -> None:
        """``messages 100``: let none be longer than so many bytes."""
        name = "clientsdk.sending.sender.MAX_MESSAGE"
        self._patches.enter_context(mock.patch(name, int(words[0])))

    def _batch(self, who: str, words: list[str]) -> None:
        """``batch 2``: let so many chains be sent in one transaction."""
        name = "clientsdk.sending.sender.BATCH"
        self._patches.enter_context(mock.patch(name, int(words[0])))

    def _meanwhile(self, who: str, words: list[str]) -> None:
        """Make a step, or two, while the receiver has its next message in hand.

        ``b: meanwhile agreeing withdraw`` makes it before consent is written next, by whom it may
        be, and ``lifting`` before the note of a withdrawal is erased.
        """
        (when, *steps) = words

        def go_on() -> list[str]:
            return [self._step(who, step.split()) for step in " ".join(steps).split(" then ")]

        if when not in _AMID:
            self.receiver.meanwhile[when] = go_on
            return
        place, name = _AMID[when]
        function = getattr(place, name)

        def late(*given: object) -> object:
            patch.stop()
            assert not {"no", "StoreError"} & {*go_on()}
            return function(*given)

        (patch := mock.patch.object(place, name, late)).start()
        self._patches.callback(patch.stop)

    def _failing(self, who: str, words: list[str]) -> str:
        """``failing "UPDATE ledger" after flush``: make a step while such statements fail.

        The name of a function of the guard or the store, or of any function with its module, lets
        that fail.
        """
        prefix, rest = re.findall(r'"(.*?)" (.*)', " ".join(words))[0]
        steps = rest.removeprefix("after ").split()
        with self._failures(who, prefix, after=rest.startswith("after ")):
            return self._step(who, steps)

    def _killed(self, who: str, words: list[str]) -> None:
        """``killed replace start``: end at the first write of the guard, or ``after`` it."""
        name, *steps = words
        write = getattr(rollback_guard, name)

        def end(*given: object, **options: object) -> None:
            if steps[0] == "after":
                write(*given, **options)
            raise KeyboardInterrupt

        with mock.patch.object(rollback_guard, name, end), suppress(KeyboardInterrupt):
            if self._step(who, steps[steps[0] == "after" :]) == "started":
                self._close(who, [])

    @contextmanager
    def _failures(self, who: str, prefix: str, *, after: bool) -> Iterator[None]:
        if "." in prefix:
            with mock.patch(prefix, side_effect=OSError("no")):
                yield
            return
        for place in (rollback_guard, Store):
            if hasattr(place, prefix):
                with mock.patch.object(place, prefix, side_effect=StoreError("no")):
                    yield
                return
        database = self.clients[who]._store.database
        sound = database.connection
        database.connection = Failing(sound, prefix, after)
        database.cursor, database._cursor_of = database.connection.cursor(), database.connection
        try:
            yield
        finally:
            database.connection = sound

    # Steps of which something does not change, or is known before.

    def _unchanged(self, who: str, words: list[str]) -> str:
        """``unchanged shown``: make a step that changes no byte and no time of any file."""
        before = self._seen()
        came = self._step(who, words)
        after = self._seen()
        changed = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        assert changed == [], changed
        return came

    def _seen(self) -> dict[str, tuple[int, bytes]]:
        """All files, but for SQLite's table of readers, and a log without a byte."""
        found = {}
        for each in self.path.parent.iterdir():
            if not each.name.endswith("-shm") and (each.suffix != ".db-wal" or each.stat().st_size):
                found[each.name] = (each.stat().st_mtime_ns, each.read_bytes())
        return found

    def _silent(self, who: str, words: list[str]) -> str:
        """``silent record colour``: make a step that asks nothing of the store."""
        asked: list[str] = []
        connection = self.clients[who]._store.database.connection
        connection.set_trace_callback(asked.append)
        came = self._step(who, words)
        connection.set_trace_callback(None)
        assert asked == [], asked
        return came

    def _foreseen(self, who: str, words: list[str]) -> str:
        """``foreseen flush``: make a step that sends what a preview shows for now."""
        client, before = self.clients[who], len(self.receiver.messages)
        client.next_due()
        shown = [each for each in client.preview().messages if each.due <= client.clock.now]
        came = self._step(who, words)
        assert shown
        assert self.receiver.messages[before:] == [(each.shard, each.data) for each in shown]
        return came

    # Steps that copy, lose or damage files, or are in their way.

    def _reading(self, who: str, words: list[str]) -> None:
        """``reading begins``, ``reading ends``: another program reads the file meanwhile."""
        self._other_program(words, "BEGIN", "SELECT count(*) FROM chain")

    def _writing(self, who: str, words: list[str]) -> None:
        """``writing begins``, ``writing ends``: another program writes, and nobody waits."""
        self._patches.enter_context(mock.patch("clientsdk.store.schema.PATIENCE", 0.05))
        self._other_program(words, "BEGIN IMMEDIATE")

    def _other_program(self, words: list[str], *statements: str) -> None:
        if words == ["ends"]:
            self._other.execute("COMMIT")
            return
        connection = sqlite3.connect(str(self.path), isolation_level=None)
        self._other = self._patches.enter_context(closing(connection))
        for each in statements:
            self._other.execute(each).fetchone()

    def _files(self, what: str) -> list[Path]:
        return [self.path.with_name(self.path.name + suffix) for suffix in _FILES[what]]

    def _copy(self, who: str, words: list[str]) -> None:
        (name,) = words or ["copy"]
        for file in self._files("everything"):
            if file.exists():
                shutil.copy(file, file.with_name(f"{name}{file.name}"))

    def _restore(self, who: str, words: list[str]) -> None:
        """``restore state``, ``restore everything``: put an earlier copy in its place."""
        self._lose(who, words[:1])
        self._overwrite(who, words)

    def _overwrite(self, who: str, words: list[str]) -> None:
        """``overwrite state``: write an earlier copy into the files that are there."""
        what, *names = words
        self.accidents |= what != "everything"
        for file in self._files(what):
            copied = file.with_name(f"{(names or ['copy'])[0]}{file.name}")
            if copied.exists():
                shutil.copy(copied, file)

    def _lose(self, who: str, words: list[str]) -> None:
        """Lose files; without any of them it is another device."""
        for file in self._files(words[0]):
            file.unlink(missing_ok=True)
        self.accidents = words != ["everything"]
        if not self.accidents:
            self.invariants = Invariants(self)
            self.receiver.before_each = self.invariants.hand_over

    def _damage(self, who: str, words: list[str]) -> None:
        """``damage state``: all of it; ``damage state 100``: some bytes from there on."""
        self.accidents = True
        what, *at = words
        file = self._files(what)[0]
        with open(file, "r+b") as content:
            content.seek(int(at[0]) if at else 0)
            content.write(b"\xa5" * (64 if at else file.stat().st_size))

    def _write(self, who: str, words: list[str]) -> None:
        """``write guard 256 01``, ``write state 0 00 x100``: put bytes in their place."""
        self.accidents = True
        what, at, text, *times = words
        with open(self._files(what)[0], "r+b") as content:
            content.seek(int(at))
            content.write(bytes.fromhex(text) * int(times[0][1:] if times else 1))

    def _note(self, who: str, words: list[str]) -> None:
        """Note a withdrawal beside the file, as a process does that cannot write the file."""
        rollback_guard.note_withdrawal(str(self.path))

    def _lift(self, who: str, words: list[str]) -> None:
        """Erase that note, as a process does that is given consent again."""
        rollback_guard.lift_withdrawal(str(self.path), rollback_guard.withdrawal(str(self.path)))

    def _reconnect(self, who: str, words: list[str]) -> None:
        """Let a client open its file again at its next step, as every fork does."""
        self.clients[who]._store.database.disconnect()

    def _compact(self, who: str, words: list[str]) -> str:
        """Erase the traces of what was deleted, before anything else is done with the file."""
        return _YES[self.clients[who]._store.erasure.scrub(compact=True)]

    def _cut(self, who: str, words: list[str]) -> None:
        """``cut guard 256``: keep the first bytes alone."""
        self.accidents = True
        file = self._files(words[0])[0]
        file.write_bytes(file.read_bytes()[: int(words[1])])

    def _rows(self, who: str, words: list[str]) -> str:
        """``rows counting``: how many rows a table of the file has; ``WHERE`` as in SQL."""
        assert self.path is not None
        with closing(sqlite3.connect(self.path)) as connection:
            return str(connection.execute(f"SELECT count(*) FROM {' '.join(words)}").fetchone()[0])

    def _alter(self, who: str, words: list[str]) -> None:
        """Change the file by SQL, as damages and other programs do."""
        assert self.path is not None
        self.accidents = True
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.execute(" ".join(words))

    # Steps that ask for the device's state.

    def _consent(self, who: str, words: list[str]) -> str:
        client = self.clients[who]
        assert client.consented is bool(client.consent) is (client.consent.value == "given")
        said = [f"{name} {client.group_consent[name].value}" for name, _ in client.plan.groups]
        return ", ".join([client.consent.value, *said])

    def _ledger(self, who: str, words: list[str]) -> str:
        with suppress(StoreError):
            self._read_ledger(who)
        return "read"

    def _figure(self, who: str, words: list[str]) -> str:
        """One of what ``ledger -> reserved 4, waiting colour`` asks for."""
        return LEDGER[words[0]](self._read_ledger(who))

    def _read_ledger(self, who: str) -> Ledger:
        """The ledger of a client, which its file has too; or that of the file, if it is closed."""
        if who not in self.clients:
            return read_file(self.path)
        ledger = self.clients[who].ledger()
        assert self.path is None or read_file(self.path) == ledger
        return ledger

    def _stats(self, who: str, words: list[str]) -> str:
        """``stats due sent``: figures that a client keeps of itself."""
        stats = self.clients[who].stats()
        return " ".join(str(getattr(stats, each)) for each in words)

    def _sent(self, who: str, words: list[str]) -> str:
        """The reports received since this was asked last: metrics, each with its level."""
        found = reports(self.receiver.messages[self._told_of :])
        self._told_of = len(self.receiver.messages)
        return ", ".join(f"{self._name(each)} {each.level + 1}" for each in found) or "nothing"

    def _gone(self, who: str, words: list[str]) -> None:
        """Look for what is gone in every byte, also where erasing it is still owed."""

    def _answers(self, who: str, words: list[str]) -> str:
        """Say the answers of each metric, period by period."""
        found: dict[str, list[str]] = {}
        for each in sorted(reported(self.clients[who]), key=lambda each: each.event):
            found.setdefault(each.metric, []).append(each.meaning.strip("'"))
        said = [f"{metric} {' then '.join(each)}" for metric, each in sorted(found.items())]
        return ", ".join(said) or "nothing"

    def _name(self, report: Sent) -> str:
        (known,) = (each for each in self.plans if each.fingerprint == report.fingerprint)
        return known.metrics[report.metric].name

    def _shown(self, who: str, words: list[str]) -> str:
        """The metrics of what a preview shows, of a client or of the file alone."""
        if who in self.clients:
            shown = self.clients[who].preview()
            assert self.path is None or preview_file(self.path, self.clock.now) == shown
        else:
            shown = preview_file(self.path, self.clock.now)
        assert [*shown.reports] == sorted(shown.reports, key=lambda each: each.due)
        assert all(1 <= each.level <= each.levels for each in shown.reports)
        return names_of({each.metric for each in shown.reports})

    def _counts(self, who: str, words: list[str]) -> str:
        """The counts of items that were drawn from since this was asked last."""
        found, self._drawn = self._drawn, []
        return ", ".join(found) or "nothing"

    def _pseudonyms(self, who: str, words: list[str]) -> str:
        return str(len({each.pseudonym for each in reports(self.receiver.messages)}))

    def _due(self, who: str, words: list[str]) -> str:
        due = self.clients[who].next_due()
        return "nothing" if due is None else f"after {(due - START) // 3_600_000}h"

    def _aside(self, who: str, words: list[str]) -> str:
        """How many damaged files are kept."""
        return str(len(list(self.path.parent.glob("*-damaged-*[0-9]"))))

    def _told(self, who: str, words: list[str]) -> str:
        """``told once TEXT -> yes``: whether a line that was logged, or an error, has a text."""
        count, *text = words
        found = sum(" ".join(text) in line for line in self.log.all)
        return "yes" if found == {"once": 1, "never": 0}[count] else f"{found} times"

    def _words(self, who: str, words: list[str]) -> str:
        """Whether the ledger in words, or a preview, has a text."""
        client = self.clients[who]
        said = f"{client.ledger()}\n{client.preview()}"
        return "yes" if " ".join(words) in said else "no"


def _groups(words: Iterable[str]) -> list[str] | None:
    """The groups that a person names; "none" is none of them, and nothing the whole."""
    said = [*words]
    return [each for each in said if each != "none"] if said else None


def _said(outcome: Outcome) -> str:
    return outcome.value.replace("_", " ")


_YES = {True: "yes", False: "no"}
#: Steps of which an error may come.
_MAY_FAIL = {"start", "feed", "flush", "agree", "withdraw", "renew", "shown", "due", "figure"}
#: The result of a step that expects none.
_USUAL = {
    **dict.fromkeys(("record", "count", "reach", "feed"), "accepted"),
    **dict.fromkeys(("agree", "withdraw", "renew", "told", "words"), "yes"),
    "start": "started",
}
