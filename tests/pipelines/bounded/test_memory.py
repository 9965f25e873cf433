"""A process that keeps what it frees is not given it anew."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import resource, sys
from pipelines.bounded.run import settle_memory
if sys.argv[1] == "keep" and not settle_memory():
    sys.exit(3)
def use():
    bytearray(b"x") * (40 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before = use()
for _ in range(5):
    after = use()
print(after - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, how], capture_output=True, text=True, check=False
    )
    if done.returncode == 3:
        pytest.skip("not glibc")
    return int(done.stdout)


@pytest.mark.real_randomness
@pytest.mark.slow
def test_memory_is_kept():
    # every draw: page faults.
    assert faults("keep") < faults("default") / 4
