"""The table: what each SDK costs, and whether ours costs no more than it may.

Time and memory are compared with OpenTelemetry's in the same run, turn by turn: how many
milliseconds an event takes says more about the machine.

Each contender runs in an interpreter of its own, which prints what it measures of itself. Messages
go to one of three addresses on loopback: a server that takes everything, one that accepts
connections and never answers, and a port at which nobody listens.
"""

from __future__ import annotations

import math
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import requires, version
from pathlib import Path

from benchmarks.peers.sdk.contenders import AGED, OURS, PEERS, SENDING, TOOLS, Contender

ROOT = Path(__file__).parents[3]
ROUNDS = 15
RUNS = 20
EVENTS = 4000
#: Seconds after which a process that does not end is killed.
PATIENCE = 30.0
CHAINS = 5000
#: The contender that others are compared with: it keeps an event in memory until a thread of its
#: own sends it.
MEASURE = "opentelemetry, logger.emit"
#: How many times as long as that one of ours may take, median and mean: a counter 1.2 times as
#: long as a recording of the same value, a count 0.6 times.
LIMITS = {
    "sotto, a category, durable": (4.0, 6.0),
    "sotto, a category, in memory": (1.5, 2.5),
    "sotto, a string of 128 bits, durable": (7.0, 9.0),
    "sotto, an OTel counter, durable": (4.8, 7.2),
    "sotto, count of a measure, durable": (2.4, 3.6),
    "sotto, refused": (0.1, 0.1),
    "sotto, switched off": (0.1, 0.1),
    "sotto, without consent": (0.1, 0.1),
}
#: The first lines of every script; they load nothing but what is built in.
_PRELUDE = """\
import sys, time
sys.path[0] = {root!r}
HOST, STATE = ("127.0.0.1", {port}), {state!r}
def go(host):
    if host[1]:
        import socket
        socket.create_connection(host).recv(1)
"""
_TIMED = """
import array
def measure(number):
    clock, taken = time.thread_time_ns, array.array("q", bytes(8 * number))
    for turn in range(number):
        before = clock()
        {event}
        taken[turn] = clock() - before
    return sorted(taken)
measure({number} // 4)
clock = time.thread_time_ns
reading = min(-(clock() - clock()) for turn in range(1000))
taken = [each - reading for each in measure({number})]
print(taken[len(taken) // 2] / 1000, sum(taken) / len(taken) / 1000)
"""
_MEMORY = """
status = open("/proc/self/status").read()
print(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
"""
#: The last lines of a script: they leave out the work at exit, which is measured by itself.
_LEAVE = "\nimport os\nsys.stdout.flush()\nos._exit(0)\n"
_SIZE = f"""
import os
client.close()
empty = os.path.getsize(STATE)
client = clientsdk.Client(CATEGORY, state=STATE, publisher=Nowhere())
for turn in range({CHAINS}):
    client.record("m", "red")
client.close()
print((os.path.getsize(STATE) - empty) / {CHAINS})
"""

#: Rows of a table: a name, a figure or None beyond ``PATIENCE``, and what it may be at most, by
#: itself or as a multiple of another row's.
Rows = list[tuple[str, float | None, float | None]]


def run(
    script: str, port: int = 0, limit: float = 120.0, folder: str | None = None
) -> tuple[str, float | None]:
    """Run a script; return what it printed, and when it ended, None if it had to be killed.

    It runs in a folder of its own, unless it is given one.
    """
    own = tempfile.TemporaryDirectory() if folder is None else nullcontext(folder)
    with own as folder:
        state = os.path.join(folder, "device.db")
        environment = {
            "HOME": folder,
            "PATH": os.environ.get("PATH", ""),
            "PYTHONHASHSEED": "0",
            # Bytecode, as of packages that were installed.
            "PYTHONPYCACHEPREFIX": str(ROOT / "build" / "bench-bytecode"),
        }
        prelude = _PRELUDE.format(root=str(ROOT), port=port, state=state)
        process = subprocess.Popen(
            [sys.executable, "-c", prelude + script],
            env=environment,
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        ended: float | None = None
        try:
            out, errors = process.communicate(timeout=limit)
            ended = time.monotonic()
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            out, errors = process.communicate()
    if ended is not None and process.returncode:
        raise RuntimeError(errors)
    return out, ended


def numbers(script: str, port: int = 0) -> list[float]:
    """Return the numbers that a script prints."""
    return list(map(float, run(script, port)[0].split()))


def begun(contender: Contender) -> str:
    """Return a script that has loaded a contender and made what an app makes once."""
    return f"{contender.load}\n{contender.start}\n"


def port_of(contender: Contender, port: int) -> int:
    """Exporters that are written here go nowhere without a port; the others need a server."""
    return port if contender.distribution in ("sentry-sdk", "posthog") else 0


class _Taker(BaseHTTPRequestHandler):
    """Answers everything with success, and keeps nothing."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b"{}"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        # Whoever ends without waiting for its answer is not of interest.
        with suppress(OSError):
            self.wfile.write(body)

    do_GET = do_POST  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def taking() -> Iterator[int]:
    """Yield the port of a server that takes whatever comes."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


def main() -> None:
    """Print everything."""
    peers = sorted({each.distribution for each in PEERS})
    print(", ".join(f"{peer} {version(peer)}" for peer in peers))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    rows: Rows = [("sotto", len(project["dependencies"]), 0.0)]
    rows += [(peer, len(_closure(peer)) - 1, None) for peer in peers]
    show("packages that come with it", rows)
    _loading()
    _tool()
    with taking() as port:
        _first(port)
        _rates(port)
        _memory(port)
    _exits()
    (size,) = numbers(begun(OURS[0]) + _SIZE)
    show("state file, bytes a chain of three levels", [("sotto", size, 120.0)])


def show(title: str, rows: Rows, measure: str | None = None) -> None:
    """Print a table, and whether limits are met: of multiples, if a row is named as ``measure``."""
    unit = next((figure for name, figure, _ in rows if name == measure), None)
    print(f"\n{title}" + (f"; as a multiple of {measure}" if measure else ""))
    for name, figure, limit in rows:
        shown = f"> {PATIENCE:.0f}" if figure is None else f"{figure:.2f}"
        compared = figure
        if unit is not None and figure is not None:
            compared = figure / unit
            shown += f" {compared:>8.3g}"
        met = compared is not None and limit is not None and compared <= limit
        verdict = "" if limit is None else f"   at most {limit:g}: {'met' if met else 'NOT MET'}"
        print(f"  {name:<38} {shown:>9}{verdict}", flush=True)


def in_turns(
    contenders: Sequence[Contender], rounds: int, measured: Callable[[Contender], list[float]]
) -> list[tuple[Contender, list[list[float]]]]:
    """Measure contenders in turns, so that what else the machine does meets all alike."""
    found: list[tuple[Contender, list[list[float]]]] = [(each, []) for each in contenders]
    for _ in range(rounds):
        for each, taken in found:
            taken.append(measured(each))
    return found


def _closure(name: str) -> set[str]:
    """Return a distribution with all that it needs here, extras left out."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop().lower().replace("_", "-")
        if each not in found:
            found.add(each)
            needed = [line for line in requires(each) or () if ";" not in line]
            waiting += [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed]
    return found


def _loading() -> None:
    rows: Rows = []
    loads = {each.load: each for each in reversed((OURS[0], *PEERS))}

    def measured(each: Contender) -> list[float]:
        return numbers(
            f"before = time.process_time()\n{each.load}\nprint(time.process_time() - before)"
        )

    for each, taken in in_turns(tuple(reversed(loads.values())), ROUNDS + 1, measured):
        # The first has compiled what it loads.
        least = 1000 * min(seconds for (seconds,) in taken[1:])
        rows.append((each.name, least, 0.8 if each in OURS else None))
    show("import over the bare interpreter, ms of CPU", rows, MEASURE)


def _tool() -> None:
    """Print what a whole run of a tool costs over the bare interpreter."""
    counter = PEERS[0]
    tools = {"": ("", ""), **TOOLS, counter.name: ("", begun(counter) + counter.event)}
    least = dict.fromkeys(tools, math.inf)
    for _ in range(RUNS):
        for name, (before, script) in tools.items():
            with tempfile.TemporaryDirectory() as folder:
                run(before, folder=folder)
                start = resource.getrusage(resource.RUSAGE_CHILDREN)
                run(script, folder=folder)
                end = resource.getrusage(resource.RUSAGE_CHILDREN)
            taken = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
            least[name] = min(least[name], 1000 * taken)
    bare = least.pop("")
    rows: Rows = [(n, each - bare, 0.5 if n in TOOLS else None) for n, each in least.items()]
    show("a run of a tool over the bare interpreter, ms of CPU", rows, counter.name)


def _first(port: int) -> None:
    walls, cpus = Rows(), Rows()

    def measured(each: Contender) -> list[float]:
        script = f"{begun(each)}{each.event}\nprint(time.monotonic(), time.process_time()){_LEAVE}"
        before = time.monotonic()
        wall, cpu = numbers(script, port_of(each, port))
        return [1000 * (wall - before), 1000 * cpu]

    for each, taken in in_turns((OURS[0], *PEERS), ROUNDS, measured):
        limit = 1.0 if each in OURS else None
        walls.append((each.name, min(wall for wall, _ in taken), limit))
        cpus.append((each.name, min(cpu for _, cpu in taken), limit))
    show("first event done after the start of the process, ms", walls, MEASURE)
    show("the same, ms of CPU", cpus, MEASURE)


def _rates(port: int) -> None:
    medians, means = Rows(), Rows()

    def measured(each: Contender) -> list[float]:
        # Ours go nowhere at once; they are not due within the run.
        script = begun(each) + _TIMED.format(event=each.event, number=EVENTS) + _LEAVE
        return numbers(script, port_of(each, port))

    for each, taken in in_turns((*OURS, *PEERS), 3, measured):
        limits = LIMITS.get(each.name, (None, None))
        for rows, figure, limit in zip((medians, means), min(taken), limits, strict=True):
            rows.append((each.name, figure, limit))
    show("an event, µs of CPU in its thread, median", medians, MEASURE)
    show("an event, µs of CPU in its thread, mean", means, MEASURE)


def _memory(port: int) -> None:
    (bare,) = numbers(_MEMORY + _LEAVE)
    for title, each_of, measure in (
        ("", (OURS[0], *PEERS), MEASURE),
        (", sent over HTTP with a TLS context", SENDING, SENDING[1].name),
    ):
        rows = Rows()
        for each in each_of:
            script = f"{begun(each)}for turn in range(1000):\n    {each.event}\n"
            script += f"{each.age}\n{_MEMORY}{_LEAVE}" if each in SENDING else _MEMORY + _LEAVE
            (held,) = numbers(script, port if each in SENDING else port_of(each, port))
            rows.append((each.name, held - bare, 1.0 if each is each_of[0] else None))
        show(f"resident memory added, 1,000 events, MB{title}", rows, measure)


def _exits() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        dead: int = listening.getsockname()[1]
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listening:
        silent: int = listening.getsockname()[1]
        for title, port in (("nobody is there", dead), ("nobody answers", silent)):
            rows: Rows = []
            for each in (AGED, *PEERS):
                script = f"{begun(each)}for turn in range(10):\n    {each.event}\n{each.age}\n"
                script += "time.sleep(0.2)\nprint(time.monotonic(), flush=True)"
                out, ended = run(script, port, PATIENCE)
                taken = None if ended is None else ended - float(out)
                rows.append((each.name, taken, 1.0 if each is AGED else None))
            show(f"exit where {title}, s", rows)
