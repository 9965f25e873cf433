"""Runs the code and the commands that documents show.

In the README and in docs/: a ``python`` block is executed, and the tests that it defines are
called; a ``yaml`` block that begins with ``collector:`` is loaded as a plan, and in a ``console``
block every line that begins with ``$ sotto`` must succeed. One that ends with ``&`` runs until the
document ends, and is waited for until it has printed a line; 8470 and 8480 stand for free ports.
Imports of ``sottovoce`` find the package that an app ships, as its wheel is built.
The blocks of one document run in order in one empty folder; a block may be named by a comment
``<!-- file: NAME -->`` above it, which writes it there instead. Each line of a block under
``<!-- printed -->`` is one that the commands above it have printed. A block under
``<!-- served -->`` finds what ``make serve PLAN=plan.dev.json`` starts, and one under
``<!-- counted -->`` finds its estimates.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import cast

import pytest
from serving import counted, served, wait_until

import sotto_cli
from benchmarks.__main__ import BENCHMARKS
from deploy.ports import free_ports
from sotto.clocks import now_ms
from sotto.design.spending import Levels, warnings
from sotto.plan.compile import load_plan, parse_plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Documents whose commands start processes.
STARTING = {
    "README.md",
    "docs/start/first-report.md",
    "docs/guides/plan.md",
    "docs/guides/results.md",
}
ABOUT = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "papers/README.md")
PAGES = [*DOCUMENTS, *(ROOT / name for name in ABOUT), *ROOT.glob("tests/*/README.md")]
BLOCK = re.compile(
    r"(?:<!-- (?:file: (?P<file>\S+)|(?P<printed>printed)|(?P<needs>served|counted)) -->\n)?"
    r"^```(?P<language>\w+)\n(?P<body>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)

#: The target of a link to another page, or within one.
LINK = re.compile(r"\]\((?!https?:)([^)\s]+)\)")
#: A file or folder of the tree.
NAMED = re.compile(
    r"`((?:mechanisms|papers|sotto|sotto_cli|clientsdk|pipelines|deploy|examples|benchmarks|tests|docs)/[\w./-]*)`"
)


def _name(page: Path) -> str:
    """Return a page's place in the tree."""
    return page.relative_to(ROOT).as_posix()


@pytest.fixture
def background() -> Iterator[list[subprocess.Popen[str]]]:
    """Commands that run until a test ends."""
    running: list[subprocess.Popen[str]] = []
    yield running
    for process in running:
        process.terminate()
        process.communicate(timeout=600)


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of ``sottovoce``, as its wheel has it."""
    folder = tmp_path_factory.mktemp("shipped")
    where = ROOT / "deploy/device/device_wheel.py"
    spec = importlib.util.spec_from_file_location("device_wheel", where)
    assert spec.loader is not None
    builder = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(builder)
    builder.assemble(folder)
    return folder


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(path, marks=pytest.mark.real_randomness) if _name(path) in STARTING else path
        for path in DOCUMENTS
    ],
    ids=_name,
)
def test_what_the_document_shows_works(
    document: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    background: list[subprocess.Popen[str]],
    capsys: pytest.CaptureFixture[str],
    shipped: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(shipped)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "metrics", raising=False)
    text = document.read_text(encoding="utf-8")
    with ExitStack() as ends:
        _show(text, document.name, tmp_path, ends, background, capsys)


def _show(
    text: str,
    name: str,
    tmp_path: Path,
    ends: ExitStack,
    background: list[subprocess.Popen[str]],
    capture: pytest.CaptureFixture[str],
) -> None:
    """Run a document's blocks in a folder."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed: list[str] = []
    ports = dict(zip(("8470", "8480"), free_ports(2), strict=True))
    for match in BLOCK.finditer(text):
        language, body = match["language"], match["body"]
        if match["needs"] == "served":
            _, url = ends.enter_context(served(tmp_path, tmp_path / "plan.dev.json"))
            body = body.replace("http://localhost:8470", url)
        elif match["needs"] == "counted":
            wait_until(lambda: counted(tmp_path / "build/serve/state"))
        for shown, port in ports.items():
            body = body.replace(shown, str(port))
        if match["file"]:
            (tmp_path / match["file"]).write_text(body, encoding="utf-8")
        if language == "python":
            exec(compile(body, name, "exec"), names)  # noqa: S102
            for test in re.findall(r"^def (test_\w+)\(", body, re.MULTILINE):
                cast(Callable[[], None], names[test])()
        elif language == "yaml" and body.startswith("collector:"):
            plan = tmp_path / (match["file"] or "plan.yaml")
            plan.write_text(body, encoding="utf-8")
            load_plan(plan)
        elif language == "console":
            printed += _run_lines(body, background, capture)
        elif match["printed"]:
            assert set(body.splitlines()) <= {*printed}


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_what_a_page_names_exists(page: Path) -> None:
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    assert "\n<<<<<<< " not in text, "a merge has left both of its sides"
    for target in LINK.findall(text):
        name, _, anchor = target.partition("#")
        other = page.parent / name if name else page
        assert other.exists(), target
        assert not anchor or anchor in _anchors(other.read_text(encoding="utf-8")), target
    for name in NAMED.findall(text):
        assert (ROOT / name).exists(), name
    for module, words in re.findall(r"python -m\s([\w.]+)((?: [a-z]+)*)", text):
        assert importlib.util.find_spec(module), module
        assert module != "benchmarks" or {*words.split()} <= {*BENCHMARKS}
    # Commands that are not run are at least understood.
    shown = re.sub(r"^```text\n.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for command in re.findall(r"^sotto (.+)$", shown, re.MULTILINE):
        given = shlex.split(command.rstrip(" &"), comments=True)
        assert "..." in given or sotto_cli._parsed(given).command == given[0]


def test_the_glossary_is_sorted_and_short() -> None:
    text = (ROOT / "docs" / "reference" / "glossary.md").read_text(encoding="utf-8")
    entries = re.findall(r"^- \*\*(.+?)\*\*(?: \(.+?\))?: (.+(?:\n  .+)*)", text, re.MULTILINE)
    words = [word for word, _ in entries]
    assert len(words) > 50
    assert words == sorted(words)
    assert all(meaning.count("\n") < 2 for _, meaning in entries)


def test_plans_that_are_shown_are_below_what_is_warned_of_or_say_why_not() -> None:
    """So that nobody copies a plan that asks for much, or falls silent within a year."""
    shown = [path.read_text(encoding="utf-8") for path in sorted(ROOT.glob("examples/*/plan.yaml"))]
    for document in DOCUMENTS:
        blocks = BLOCK.finditer(document.read_text(encoding="utf-8"))
        shown += [m["body"] for m in blocks if m["body"].startswith("collector:")]
    assert len(shown) >= 8
    warned = []
    for text in shown:
        # Candidates cost nothing, and their files are not here.
        bare = re.sub(r",? *candidates: \S+\.txt", "", text)
        found = warnings(parse_plan(bare).compile(), Levels(), now_ms())
        warned += [text] * bool(found)
        assert not found or "no panel, so that" in text.lower(), found
    # The SDK's page, and three examples.
    assert len(warned) == 4


def _anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    bare = [re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings]
    return {heading.replace(" ", "-") for heading in bare}


def _run_lines(
    body: str, background: list[subprocess.Popen[str]], capture: pytest.CaptureFixture[str]
) -> list[str]:
    """Run the commands of a block, here, and return the lines that they print."""
    printed = [""]
    commands = [line[2:] for line in body.splitlines() if line.startswith("$ sotto ")]
    for command in commands:
        words = shlex.split(command, comments=True)[1:]
        if words[-1] == "&":
            program = [sys.executable, "-m", "sotto", *words[:-1]]
            environment = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, text=True)
            background.append(process)
            assert process.stdout.readline(), f"{command} has ended"
            continue
        capture.readouterr()
        status = sotto_cli.main(words)
        said = capture.readouterr()
        assert status == 0, f"{command}\n{said.out}{said.err}"
        printed += [line.rstrip() for line in said.out.splitlines()]
    return printed
