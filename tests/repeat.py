"""Repeats the tests and counts failures by test, to find those that fail once in a while.

``python -m tests.repeat whole 10`` runs ``make test`` in ten fresh clones, one after another;
``... unit 50 --busy 2`` runs ``make test-unit`` here, beside two processes that never rest.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
FAILED = re.compile(r"^(?:FAILED|ERROR) (tests/.*?)(?: - .*)?$", re.MULTILINE)


def failures(part: str) -> set[str]:
    """Run a part of the tests; return what failed, or the last line if no test is named."""
    with TemporaryDirectory() as folder:
        where = ROOT
        if part == "whole":
            where = Path(folder) / "clone"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(where)], check=True)
            # Clones share what was fetched: browsers, brokers, engines.
            (ROOT / ".cache").mkdir(exist_ok=True)
            (where / ".cache").symlink_to(ROOT / ".cache")
        command = ["make", "test" if part == "whole" else "test-unit"]
        done = subprocess.run(command, cwd=where, capture_output=True, text=True)
    last = (done.stdout + done.stderr).strip()[-200:]
    return set(FAILED.findall(done.stdout)) or ({last} if done.returncode else set())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.repeat", description=__doc__)
    parser.add_argument("part", choices=["whole", "unit"])
    parser.add_argument("times", type=int)
    parser.add_argument("--busy", type=int, default=0, help="processes that compute beside them")
    given = parser.parse_args(arguments)
    counted: Counter[str] = Counter()
    with ExitStack() as stack:
        for _ in range(given.busy):
            process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            stack.callback(process.kill)
        for number in range(1, given.times + 1):
            found = failures(given.part)
            counted.update(found)
            print(f"run {number} of {given.times}: {len(found)} failed", flush=True)
    for test, times in counted.most_common():
        print(f"failed {times} of {given.times} times: {test}")
    return int(bool(counted))


if __name__ == "__main__":
    sys.exit(main())
