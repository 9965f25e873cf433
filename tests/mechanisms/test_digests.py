"""Whoever computes a SHA-256, it is the same."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

from mechanisms.digests import sha256

ROOT = Path(__file__).parents[2]
#: FIPS 180-4's examples, and lengths around those of a block.
VECTORS = {
    b"abc": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
    b"": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq": (
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"
    ),
}
_ELSEWHERE = """
import sys
sys.path.insert(0, sys.argv[1])
if sys.argv[2] == "without":
    sys.modules.update({"_sha2": None, "_sha256": None})
from mechanisms.digests import sha256
print("hashlib" in sys.modules, *(sha256(bytes.fromhex(text)).hex() for text in sys.argv[3:]))
"""


@pytest.mark.parametrize("content", VECTORS)
def test_the_examples_of_the_standard_hold(content: bytes) -> None:
    assert sha256(content).hex() == VECTORS[content]


@pytest.mark.parametrize("length", [1, 55, 56, 63, 64, 65, 119, 128, 4096, 100_000])
def test_it_is_that_of_hashlib(length: int) -> None:
    content = bytes(at * at % 251 for at in range(length))
    assert sha256(content) == hashlib.sha256(content).digest()


@pytest.mark.real_randomness
@pytest.mark.parametrize("how", ["with", "without"])
def test_it_is_the_same_where_the_interpreter_brings_none(how: str) -> None:
    told = subprocess.run(
        [sys.executable, "-S", "-c", _ELSEWHERE, str(ROOT), how, *map(bytes.hex, VECTORS)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert told == [str(how == "without"), *VECTORS.values()]
