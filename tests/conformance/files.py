"""The files of vectors: how they are read and written, and where they are.

The input of a vector is written by hand, in the file; its output is written by the SDK.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from sotto.wire.format import Row

FOLDER = Path(__file__).parent
VERSION = 1


@cache
def read(name: str) -> dict[str, Any]:
    """Return the content of one file, checked for its version."""
    content: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text("utf-8"))
    if content["version"] != VERSION:
        raise ValueError(f"{name}.json has version {content['version']}, not {VERSION}")
    return content


def write(name: str, **changes: Any) -> None:
    """Write a file anew with other content for some of its keys."""
    parts = []
    for key, value in {**read(name), **changes}.items():
        if isinstance(value, list):
            lines = ",\n".join(map(_lines, value))
            parts.append(f' "{key}": [\n{lines}\n ]')
        else:
            parts.append(f' "{key}": {json.dumps(value)}')
    text = "{\n" + ",\n".join(parts) + "\n}\n"
    (FOLDER / f"{name}.json").write_text(text, "utf-8")
    read.cache_clear()


def _lines(vector: dict[str, Any]) -> str:
    """Return a line for each vector, or each step of one: a change shows which it is about."""
    if "steps" not in vector:
        return f"  {json.dumps(vector)}"
    steps = ",\n".join(f"    {json.dumps(step)}" for step in vector["steps"])
    return f'  {{"name": {json.dumps(vector["name"])}, "steps": [\n{steps}\n  ]}}'


def value_of(document: Any) -> Any:
    """Return the value in a vector; what JSON has no number for is an object."""
    return float(document["number"]) if isinstance(document, dict) else document


def plan(name: str) -> bytes:
    """Return the bytes of a compiled plan of ``plans.json``."""
    found = [each for each in read("plans")["plans"] if each["name"] == name]
    text: str = found[0]["json"]
    return text.encode()


def row_of(document: dict[str, Any]) -> Row:
    """Return the row of a message in a vector."""
    ids = bytes.fromhex(document["pseudonym"]), bytes.fromhex(document["chain"])
    return Row(document["level"], *ids, document["event"], bytes.fromhex(document["payload"]))
