"""Imports go one way, never in a circle; folders stay small; the bare install needs no package."""

from __future__ import annotations

import ast
import graphlib
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

#: Packages of the project that each package may import.
ALLOWED = {
    "mechanisms": {"mechanisms"},
    "papers": {"mechanisms", "papers"},
    "sotto": {"mechanisms", "sotto"},
    "clientsdk": {"mechanisms", "sotto", "clientsdk"},
    "pipelines": {"mechanisms", "sotto", "pipelines"},
    "sotto_cli": {"mechanisms", "sotto", "clientsdk", "pipelines", "sotto_cli"},
}
OURS = {"mechanisms", "papers", "sotto", "clientsdk", "pipelines", "sotto_cli"}
#: Modules that an app embeds; each must be importable without anything installed beside it.
BARE = [
    "mechanisms.registry",
    "sotto.plan.compiled",
    "sotto.wire.format",
    "sotto.log.writer",
    "clientsdk",
]
#: Modules whose functions import modules of the project, and why; all other modules import at their
#: head. A name that ends in a dot stands for all that begin so; the first that fits counts.
IMPORTED_LATE = {
    "pipelines.maintenance.backup": "a backup does without Beam",
    "mechanisms.": "a device loads a mechanism without its estimators and without numpy",
    "clientsdk.": "an app starts without what it may never use",
    "sotto.plan.": "a device loads the mechanisms that its plan names",
    "sotto.log.reader": "a log can be read and written without numpy",
    "sotto.kafka.producers": "kafka-python is optional",
    "pipelines.collector.stores": "kafka-python is optional",
    "pipelines.sources.kafka_reader": "kafka-python is optional",
    "pipelines.storage.files": "a state in a folder needs no Beam",
    "sotto_cli.": "a command loads what it runs, and --help nothing",
}
MOST_MODULES = 20


@cache
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    return tuple(ast.walk(ast.parse(path.read_text("utf-8"))))


@cache
def modules() -> tuple[tuple[str, Path], ...]:
    return tuple(sources())


def sources() -> Iterator[tuple[str, Path]]:
    for package in sorted(OURS):
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


@cache
def imports(path: Path, module: str) -> tuple[str, ...]:
    return tuple(imported(path, module))


def imported(path: Path, module: str) -> Iterator[str]:
    """All names of modules that a file imports, wherever in it; ``from a import b`` gives a.b."""
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*parent, base] if base else parent)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def layer(name: str) -> str:
    # ``python -m sotto`` is the command.
    return "sotto_cli" if name == "sotto.__main__" else name.partition(".")[0]


def violations() -> list[str]:
    return [
        f"{module} imports {name}"
        for module, path in modules()
        for name in imports(path, module)
        if name.partition(".")[0] in OURS and layer(name) not in ALLOWED[layer(module)]
    ]


def test_imports_go_one_way() -> None:
    assert violations() == []


def test_nothing_deployed_imports_papers() -> None:
    for path in sorted((ROOT / "deploy").rglob("*.py")):
        assert not any(name.startswith("papers") for name in imports(path, "deploy")), path


def test_an_import_that_goes_the_other_way_is_seen(tmp_path: Path) -> None:
    """The check itself: absolute, relative and hidden in a function."""
    path = tmp_path / "module.py"
    path.write_text(
        "import clientsdk.client\nimport sotto_cli\n"
        "def f():\n    from . import errors\n    from ..mechanisms import coins\n",
        encoding="utf-8",
    )
    assert list(imports(path, "pipelines.module")) == [
        "clientsdk.client",
        "sotto_cli",
        "pipelines.errors",
        "mechanisms.coins",
    ]
    assert layer("sotto_cli") == "sotto_cli"
    assert layer("clientsdk.client") not in ALLOWED["pipelines"]


def graph() -> dict[str, set[str]]:
    """The modules that each module imports, wherever in it."""
    paths = dict(modules())
    return {
        module: {
            name if name in paths else name.rpartition(".")[0] for name in imports(path, module)
        }
        & (paths.keys() - {module})
        for module, path in paths.items()
    }


def test_no_imports_go_in_a_circle() -> None:
    """Also none that are hidden in functions, or meant for types alone."""
    graphlib.TopologicalSorter(graph()).prepare()


def test_no_folder_holds_many_modules() -> None:
    held = Counter(path.parent for _, path in modules() if path.name != "__init__.py")
    assert {str(folder): n for folder, n in held.items() if n > MOST_MODULES} == {}


def test_functions_import_only_where_a_reason_is_given() -> None:
    reasons, used = list(IMPORTED_LATE), set()
    for module, path in modules():
        nodes = [
            inner
            for node in nodes_of(path)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            for inner in ast.walk(node)
            if isinstance(inner, ast.ImportFrom)
        ]
        if any((node.module or "").partition(".")[0] in OURS for node in nodes):
            fits = [key for key in reasons if f"{module}.".startswith(key) or module == key]
            assert fits, f"{module} imports in a function"
            used.add(fits[0])
    assert used == set(reasons)


def test_estimates_are_made_only_where_those_of_few_reports_are_withheld() -> None:
    """An aggregator's estimates have one maker; whoever made them elsewhere could forget to."""
    makers = {
        "mechanisms.estimators.frequency.shares",
        "mechanisms.string.decoding.decode",
        "mechanisms.number.answers.question_estimates",
        "mechanisms.number.answers.split_estimates",
        "mechanisms.ordinal.estimates.ordinal",
        "mechanisms.number.gridmeans.grid_estimates",
    }
    users: dict[str, set[str]] = defaultdict(set)
    for module, path in modules():
        for name in imports(path, module):
            users[name].add(module)
    # A maker that has another name by now would not be looked for.
    assert makers <= users.keys()
    assert not users["pipelines.aggregation.result_rows.estimate"]
    for maker in makers:
        assert not {layer(module) for module in users[maker]} & {"pipelines", "sotto_cli"}, maker


def test_seeded_randomness_stays_out_of_what_ships() -> None:
    users = [
        module
        for module, path in modules()
        if layer(module) in {"clientsdk", "pipelines", "sotto"}
        and any(name.startswith("mechanisms.testing") for name in imports(path, module))
    ]
    assert set(users) <= {"clientsdk.testing"}


@pytest.mark.real_randomness
@pytest.mark.parametrize("module", BARE)
def test_the_bare_install_needs_the_standard_library_alone(module: str) -> None:
    """In a fresh interpreter: nothing outside the standard library and the project is loaded."""
    script = (
        "import sys\n"
        f"before = set(sys.modules)\nimport {module}\n"
        "names = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        f"print(sorted(names - sys.stdlib_module_names - {OURS!r}))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert result.stderr == ""
    assert result.stdout.strip() == "[]"


def test_the_picture_of_the_architecture_is_up_to_date() -> None:
    from tests import layers

    assert layers.PAGE.read_text("utf-8") == layers.drawn(), "write it again with `make docs`"
