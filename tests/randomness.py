"""The randomness of a test: seeded by the test's name, or real where the test asks for it.

Each test begins with seeded randomness, and so does each fixture that tests share: the seed is its
name. This covers what Python code draws from the operating system in this process
(``os.urandom``, ``secrets``, ``random.SystemRandom``, ``uuid4``, numpy's ``default_rng()``, every
``SystemSource``) and the global generators of ``random`` and numpy. Each thread has a generator of
its own, so that a test draws the same in every run. ``pytest --draws TEXT`` draws something else.

A test marked ``real_randomness`` draws from the operating system. It alone may start a process,
which draws for real whatever happens here. Such a test asserts only what holds for every draw;
``tests/test_randomness.py`` finds comparisons that may not.

Not seeded: keys that OpenSSL makes, the hashes of strings (``PYTHONHASHSEED``), the names of
temporary files, and what the kernel decides.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess

import pytest

MARK = "real_randomness"
#: Folders whose tests start servers, which takes long; all of them are marked.
SERVERS = ("tests/flink/", "tests/kafka/", "tests/postgres/")
FORKS = {"os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system"}
#: Programs that draw nothing on which a test could assert; every test may start them.
DRAW_NOTHING = {
    "cat",
    "go",
    "java",
    "kubectl",
    "mount",
    "mvn",
    "openssl",
    "prometheus",
    "promtool",
    "umount",
    "uname",
}

_system_urandom = os.urandom
_start_process = BaseProcess.start


class Draws:
    """The draws of one test or shared fixture: a generator for each thread, seeded by its name."""

    def __init__(self, name: str, *, real: bool) -> None:
        self.name, self.real, self.processes = name, real, False
        self._generators: dict[int, random.Random] = {}
        self._others = itertools.count(1)

    def bytes(self, size: int) -> bytes:
        if self.real:
            return _system_urandom(size)
        thread = threading.get_ident()
        if thread not in self._generators:
            number = 0 if thread == threading.main_thread().ident else next(self._others)
            self._generators[thread] = random.Random(f"{self.name} {number}")
        return self._generators[thread].randbytes(size)


_draws: Draws | None = None


@contextmanager
def draws_of(name: str, *, real: bool = False) -> Iterator[None]:
    """Seed all randomness by ``name``, or leave it real, until the block ends."""
    global _draws
    before, state = _draws, random.getstate()
    _draws = Draws(name, real=real)
    random.seed(None if real else name)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(int.from_bytes(_draws.bytes(4), "little"))
    try:
        yield
    finally:
        _draws = before
        random.setstate(state)


def _urandom(size: int, /) -> bytes:
    return _system_urandom(size) if _draws is None else _draws.bytes(size)


def _forbid(program: object) -> None:
    if _draws is None:
        return
    _draws.processes = True
    if not _draws.real:
        pytest.fail(
            f"{_draws.name} starts a process, {program}, which nothing seeds: mark the test "
            f"{MARK}, and assert only what holds for every draw"
        )


def _audit(event: str, arguments: tuple[object, ...]) -> None:
    if event == "subprocess.Popen":
        program = os.path.basename(os.fsdecode(arguments[0]))  # type: ignore[arg-type]
        if program not in DRAW_NOTHING:
            _forbid(program)
    elif event in FORKS:
        _forbid(event)


def _started(process: BaseProcess) -> None:
    _forbid(process)
    _start_process(process)


os.urandom = _urandom
random._urandom = _urandom  # type: ignore[attr-defined]
BaseProcess.start = _started  # type: ignore[method-assign]
sys.addaudithook(_audit)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--draws", default="", help="draw something else than by default in all tests")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    real = item.get_closest_marker(MARK) is not None
    with draws_of(f"{item.config.option.draws}{item.nodeid}", real=real):
        return (yield)


#: Shared fixtures that have started processes.
_with_processes: set[object] = set()


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Give a shared fixture draws of its own, whichever test comes first."""
    if fixturedef.scope == "function" or _draws is None:
        return (yield)
    name = f"{request.config.option.draws}{request.node.nodeid} {fixturedef.argname}"
    with draws_of(name, real=_draws.real):
        try:
            return (yield)
        finally:
            if _draws.processes:
                _with_processes.add(fixturedef)


def pytest_runtest_call(item: pytest.Item) -> None:
    """Ask for the mark also where a test before this one has set up the shared fixture."""
    if _draws is not None and isinstance(item, pytest.Function):
        used = {each for defs in item._fixtureinfo.name2fixturedefs.values() for each in defs}
        if used & _with_processes:
            _forbid("of a shared fixture")
