"""Put this folder on the path, and `tests` for the helpers that its subfolders share.

This folder comes first: folders of `tests` bear the names of the packages that they test.

Property tests try the same examples in every run, and have neither a deadline nor a limit for
making examples: a busy machine is no fault of the code.

Where processes share the tests (``--numprocesses 2``), each takes whole files, so that what a file
or a folder makes once is made once. All tests of Kafka are one process's, those of Flink too, and
those of PostgreSQL. Each has ports of its own for the servers that it starts, which listen only
after a while.

Temporary files are in memory if there is room: thousands of durable commits wait for no disk.

Children that tests fork and kill use no gRPC, whose own handlers of forks now and then abort them.

A Java that lives for seconds starts sooner, and takes half the processor, where it optimizes less
and does not verify the classes of archives whose digests are pinned.

A process may have as many open files as most systems let a user's have.

Linear algebra of small matrices is done in one thread, as under ``make``: more would wait for each
other, and that takes a processor too.

No proxy that the environment names comes between tests and what they start on this machine, and
nothing of it switches telemetry off: tests run in continuous integration too.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import inspect
import os
import resource
import shutil
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from programs import browser, not_tested  # noqa: F401
from randomness import (
    MARK,
    SERVERS,
    pytest_addoption,  # noqa: F401
    pytest_fixture_setup,  # noqa: F401
    pytest_runtest_call,  # noqa: F401
    pytest_runtest_protocol,  # noqa: F401
)

from clientsdk.settings import CI
from deploy import ports

ROOT = Path(__file__).parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

_process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
ports._NOT_HANDED_OUT = ports._NOT_HANDED_OUT[_process::_processes]

_MEMORY = Path("/dev/shm")
#: All tests together write a fifth of it.
_ROOM = 1 << 30
if (
    _MEMORY.is_dir()
    and shutil.disk_usage(_MEMORY).free > _ROOM
    # Programs that tests build are run from there.
    and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
):
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

for _name in ("no_proxy", "NO_PROXY"):
    _given = [os.environ[_name]] if os.environ.get(_name) else []
    os.environ[_name] = ",".join([*_given, "localhost", "127.0.0.1"])

_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, _limit[1]))

os.environ.setdefault(
    "JDK_JAVA_OPTIONS",
    "-XX:TieredStopAtLevel=1 -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote",
)
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

for _name in ("DO_NOT_TRACK", *CI):
    os.environ.pop(_name, None)

settings.register_profile(
    "sotto",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("sotto")
#: ``make test-unit`` takes it.
settings.register_profile("quick", settings.get_profile("sotto"), max_examples=40)

#: This file runs after the servers' tests; at the end it would leave other processes without work.
LONG = "tests/test_docs.py"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Spare the collector what is made while tests are collected: a third of that time."""
    gc.disable()
    # Extensions complain of what is left of theirs at exit.
    atexit.register(gc.unfreeze)
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts servers, and begin with what takes longest for one process."""
    for item in items:
        if item.nodeid.startswith(SERVERS):
            item.add_marker(MARK)
    items.sort(
        key=lambda item: (not item.nodeid.startswith(SERVERS), not item.nodeid.startswith(LONG))
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Give processes whole files, in order; a folder of tests with servers as if it were one."""
    from xdist.scheduler import LoadFileScheduling

    class Files(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            folders = (folder for folder in SERVERS if nodeid.startswith(folder))
            return next(folders, super()._split_scope(nodeid))

    config.option.loadscopereorder = False
    return Files(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """Let pytest call a test that is a coroutine, which may take ten minutes, as any other."""
    test = pyfuncitem.obj
    if inspect.iscoroutinefunction(test):
        pyfuncitem.obj = lambda **given: asyncio.run(asyncio.wait_for(test(**given), 600))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter,
) -> Generator[None, object, object]:
    """End with what was not tested for want of programs, before the number of tests passed."""
    done = yield
    skipped = terminalreporter.getreports("skipped")
    reasons = [report.longrepr[2] for report in skipped if isinstance(report.longrepr, tuple)]
    if line := not_tested(reasons):
        terminalreporter.write_line(line)
    return done
