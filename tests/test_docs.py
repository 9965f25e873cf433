"""What the documents show is run.

In the README and in docs/: a ``python`` block is executed, and the tests that it defines are
called; a ``yaml`` block that begins with ``collector:`` is loaded as a plan, and in a ``console``
block every line that begins with ``$ sotto`` must succeed. The blocks of one document run in
order in one empty folder; a block may be named by a comment ``<!-- file: NAME -->`` above it,
which writes it there instead.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from sotto.design.spending import Levels, warnings
from sotto.log.writer import now_ms
from sotto.plan.compile import load_plan, parse_plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(
    r"(?:<!-- file: (?P<file>\S+) -->\n)?^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_what_the_document_shows_works(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    names: dict[str, object] = {"__name__": "__main__"}
    for match in BLOCK.finditer(document.read_text(encoding="utf-8")):
        language, body = match["language"], match["body"]
        if match["file"]:
            (tmp_path / match["file"]).write_text(body, encoding="utf-8")
        if language == "python":
            exec(compile(body, f"{document.name}", "exec"), names)  # noqa: S102
            for name in re.findall(r"^def (test_\w+)\(", body, re.MULTILINE):
                cast(Callable[[], None], names[name])()
        elif language == "yaml" and body.startswith("collector:"):
            plan = tmp_path / (match["file"] or "plan.yaml")
            plan.write_text(body, encoding="utf-8")
            load_plan(plan)
        elif language == "console":
            _run_lines(body, tmp_path)


def test_plans_that_are_shown_are_below_what_is_warned_of_or_say_why_not() -> None:
    """So that nobody copies a plan that asks for much, or falls silent within a year."""
    shown = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("examples/*/plan.yaml"))]
    for document in DOCUMENTS:
        blocks = BLOCK.finditer(document.read_text(encoding="utf-8"))
        shown += [m["body"] for m in blocks if m["body"].startswith("collector:")]
    assert len(shown) >= 8
    warned = []
    for text in shown:
        # Of strings that are looked for nothing is charged.
        bare = re.sub(r",? *candidates: \S+\.txt", "", text)
        found = warnings(parse_plan(bare).compile(), Levels(), now_ms())
        warned += [text] * bool(found)
        assert not found or "no panel, so that" in text.lower(), found
    # The SDK's page, and two examples.
    assert len(warned) == 3


def _run_lines(body: str, folder: Path) -> None:
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ sotto ")]
    for command in commands:
        result = subprocess.run(
            [sys.executable, "-m", "sotto.cli", *shlex.split(command, comments=True)[1:]],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert result.returncode == 0, f"{command}\n{result.stdout}{result.stderr}"
