"""The table: what each SDK costs, and whether ours costs no more than it may."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import requires, version

from benchmarks.peers.sdk import processes
from benchmarks.peers.sdk.contenders import OURS, PEERS, Contender, sotto
from benchmarks.peers.sdk.sinks import dead, silent, taking

ROUNDS = 7
EVENTS = 4000
#: Seconds after which a process that does not end is killed.
PATIENCE = 30.0
CHAINS = 5000
#: Microseconds that one of ours may take, median and mean.
LIMITS = {
    "sotto, a category, durable": (30.0, 60.0),
    "sotto, a category, in memory": (10.0, 10.0),
    "sotto, a string of 128 bits, durable": (60.0, 60.0),
    "sotto, refused": (0.5, 0.5),
    "sotto, switched off": (0.5, 0.5),
    "sotto, without consent": (0.5, 0.5),
}
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


def main() -> None:
    """Print everything."""
    peers = sorted({each.distribution for each in PEERS})
    print(", ".join(f"{peer} {version(peer)}" for peer in peers))
    _dependencies(peers)
    _loading()
    with taking() as port:
        _first(port)
        _rates(port)
        _memory(port)
    _exits()
    size = float(processes.run(f"{OURS[0].load}\n{OURS[0].start}\n{_SIZE}"))
    _show("state file, bytes a chain of three levels", [("sotto", size, 120.0)])


def _show(title: str, lines: list[tuple[str, float | None, float | None]]) -> None:
    print(f"\n{title}")
    for name, figure, limit in lines:
        shown = f"> {PATIENCE:.0f}" if figure is None else f"{figure:.2f}"
        verdict = ""
        if limit is not None:
            met = figure is not None and figure <= limit
            verdict = f"   at most {limit:g}: {'met' if met else 'NOT MET'}"
        print(f"  {name:<38} {shown:>9}{verdict}", flush=True)


def _dependencies(peers: list[str]) -> None:
    project = tomllib.loads((processes.ROOT / "pyproject.toml").read_text())["project"]
    lines: list[tuple[str, float | None, float | None]] = [
        ("sotto", len(project["dependencies"]), 0.0)
    ]
    lines += [(peer, len(_closure(peer)) - 1, None) for peer in peers]
    _show("packages that come with it", lines)


def _closure(name: str) -> set[str]:
    """Return a distribution with all that it needs here, extras left out."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        each = waiting.pop().lower().replace("_", "-")
        if each in found:
            continue
        found.add(each)
        needed = [line for line in requires(each) or () if ";" not in line]
        waiting += [re.split(r"[^A-Za-z0-9._-]", line, maxsplit=1)[0] for line in needed]
    return found


def _loading() -> None:
    lines: list[tuple[str, float | None, float | None]] = [
        ("sotto", processes.load_ms(OURS[0].load, ROUNDS), 40.0)
    ]
    seen = set()
    for peer in PEERS:
        if peer.load not in seen:
            seen.add(peer.load)
            name = (
                peer.name.partition(",")[0]
                if peer.distribution != "opentelemetry-sdk"
                else peer.name
            )
            lines.append((name, processes.load_ms(peer.load, ROUNDS), None))
    _show("import over the bare interpreter, ms of CPU", lines)


def _first(port: int) -> None:
    wall: list[tuple[str, float | None, float | None]] = []
    cpu: list[tuple[str, float | None, float | None]] = []
    for each in (OURS[0], *PEERS):
        taken = processes.first_ms(each, _port(each, port), ROUNDS)
        limit = 100.0 if each in OURS else None
        wall.append((each.name, taken[0], limit))
        cpu.append((each.name, taken[1], limit))
    _show("first event done after the start of the process, ms", wall)
    _show("the same, ms of CPU", cpu)


def _rates(port: int) -> None:
    medians: list[tuple[str, float | None, float | None]] = []
    means: list[tuple[str, float | None, float | None]] = []
    for each in (*OURS, *PEERS):
        # Ours go nowhere at once; they are not due within the run.
        found = processes.rate(each, _port(each, port), EVENTS, 3)
        median, mean = LIMITS.get(each.name, (None, None))
        medians.append((each.name, found.median, median))
        means.append((each.name, found.mean, mean))
    _show("an event, µs of CPU in its thread, median", medians)
    _show("an event, µs of CPU in its thread, mean", means)


def _port(contender: Contender, port: int) -> int:
    """Exporters that are written here go nowhere without a port; the others need a server."""
    return port if contender.distribution in ("sentry-sdk", "posthog") else 0


def _memory(port: int) -> None:
    bare = processes.memory_mb(None, 0)
    lines: list[tuple[str, float | None, float | None]] = []
    for each in (OURS[0], *PEERS):
        added = processes.memory_mb(each, _port(each, port)) - bare
        lines.append((each.name, added, 10.0 if each in OURS else None))
    _show("resident memory added, 1,000 events, MB", lines)


def _exits() -> None:
    with silent() as port:
        for title, where in (("nobody is there", dead()), ("nobody answers", port)):
            lines: list[tuple[str, float | None, float | None]] = []
            for each in (sotto("sotto, a category, durable"), *PEERS):
                taken = processes.exit_seconds(each, where, PATIENCE)
                lines.append((each.name, taken, 1.0 if each.distribution == "sotto" else None))
            _show(f"exit where {title}, s", lines)
