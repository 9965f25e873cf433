"""Draws the packages, their folders and which imports which, from the code.

``python -m tests.layers`` draws the picture of ``docs/start/architecture.md`` anew.
"""

from __future__ import annotations

import re

from tests.test_layers import OURS, ROOT, imports, layer, modules

PAGE = ROOT / "docs/start/architecture.md"
_PICTURE = re.compile(r"(?<=```mermaid\n).*?(?=```\n)", re.DOTALL)


def drawing() -> str:
    """Return the picture, without arrows that follow from others."""
    below: dict[str, set[str]] = {each: set() for each in OURS}
    for module, path in modules():
        taken = {layer(n) for n in imports(path, module) if n.partition(".")[0] in OURS}
        below[layer(module)] |= taken - {layer(module)}
    lines = ["flowchart TB"]
    for package in sorted(OURS):
        folders = sorted(each.parent.name for each in (ROOT / package).glob("*/__init__.py"))
        lines.append(f'  {package}["<b>{package}</b><br/>{", ".join(folders)}"]')
    for package, taken in sorted(below.items()):
        beyond = set().union(*(below[each] for each in taken))
        lines += [f"  {package} --> {each}" for each in sorted(taken - beyond)]
    return "\n".join(lines) + "\n"


def drawn() -> str:
    """Return the page with its picture drawn anew."""
    return _PICTURE.sub(drawing(), PAGE.read_text("utf-8"))


if __name__ == "__main__":
    PAGE.write_text(drawn(), "utf-8")
