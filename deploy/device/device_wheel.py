"""Builds ``sottovoce``, what an app ships: of this tree what a device can come to use, renamed.

``clientsdk`` and ``sotto`` become the package ``sottovoce``, and ``mechanisms`` becomes
``sottovoce._mechanisms``, so that no name can be one of the app's own. A module is taken along if
the SDK imports it, by whatever way: at its head, in a function, or as a mechanism that a plan may
name. Modules that only a mechanism's functions import are left out: they make estimates, which no
device makes, and need numpy. Imports, names of modules in strings, docstrings and comments are
changed, and nothing else.

This is a build backend for pip (PEP 517): ``pip install ./deploy/device``.
"""

from __future__ import annotations

import ast
import io
import re
import shutil
import tempfile
import tokenize
from collections.abc import Iterator
from contextlib import chdir
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PACKAGE = "sottovoce"
#: The names that the packages of this tree have in the wheel.
PREFIXES = {
    "clientsdk": PACKAGE,
    "sotto": PACKAGE,
    "mechanisms": f"{PACKAGE}._mechanisms",
}
_WORD = "|".join(PREFIXES)
_NAME = re.compile(rf"(?<![\w.\-/])({_WORD})((?:\.\w+)*)(?![\w\-/])")
_FROM = re.compile(rb"from\s+(\w+)")


class Edit(NamedTuple):
    """Bytes of a line, counted from 1, that become others."""

    line: int
    start: int
    end: int
    text: bytes


def modules(root: Path = ROOT) -> dict[str, Path]:
    """Return the modules of the packages that a device may need, by name."""
    found = {}
    for package in PREFIXES:
        for path in (root / package).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if path.name == "__init__.py" else parts)] = path
    return found


def reachable(known: dict[str, Path]) -> set[str]:
    """Return all modules that the SDK can come to import."""
    waiting = [name for name in known if name.partition(".")[0] == "clientsdk"]
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in found or name not in known:
            continue
        found.add(name)
        late = not name.startswith("mechanisms")
        tree = ast.parse(known[name].read_bytes())
        waiting += [name.rpartition(".")[0], *_imported(tree, known, late=late)]
    return found


def _imported(node: ast.AST, known: dict[str, Path], *, late: bool) -> Iterator[str]:
    """Yield what a piece of code imports when it runs; ``late``: its functions too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) and not late:
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
            yield from (f"{child.module}.{alias.name}" for alias in child.names)
        elif isinstance(child, ast.Constant):
            yield from filter(None, [_module_in(child.value, known)])
        yield from _imported(child, known, late=late)


def _module_in(value: object, known: dict[str, Path] | set[str]) -> str | None:
    """Return the module that a string names, as ``module`` or ``module:name``."""
    name = value.partition(":")[0] if isinstance(value, str) else ""
    return name if "." in name and name in known else None


def renamed(source: bytes, taken: set[str]) -> bytes:
    """Return the text of a module with the names of ours changed to those in the wheel."""
    tree = ast.parse(source)
    lines = source.splitlines(keepends=True)
    edits = [*_in_code(tree, lines, taken), *_in_prose(tree, source, lines, taken)]
    for edit in sorted(set(edits), reverse=True):
        line = lines[edit.line - 1]
        lines[edit.line - 1] = line[: edit.start] + edit.text + line[edit.end :]
    return b"".join(lines)


def _in_code(tree: ast.AST, lines: list[bytes], taken: set[str]) -> Iterator[Edit]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] in PREFIXES:
                    yield _edit(alias, alias.name, lines)
                    if alias.asname is None:
                        raise ValueError(f"line {node.lineno}: import {alias.name} by 'from'")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in PREFIXES:
                found = _FROM.match(lines[node.lineno - 1], node.col_offset)
                if found is None:
                    raise ValueError(f"line {node.lineno}: no module after 'from'")
                text = PREFIXES[found[1].decode()].encode()
                yield Edit(node.lineno, found.start(1), found.end(1), text)
        elif isinstance(node, ast.Constant) and _module_in(node.value, taken):
            yield _edit(node, node.value, lines, quote=1)


def _edit(node: ast.alias | ast.Constant, name: object, lines: list[bytes], quote: int = 0) -> Edit:
    first = str(name).partition(".")[0]
    start = node.col_offset + quote
    if not lines[node.lineno - 1].startswith(first.encode(), start):
        raise ValueError(f"line {node.lineno}: a name of a module is not written as such")
    return Edit(node.lineno, start, start + len(first), PREFIXES[first].encode())


def _in_prose(tree: ast.AST, source: bytes, lines: list[bytes], taken: set[str]) -> Iterator[Edit]:
    """Yield what changes in docstrings and comments: help of an app's editor comes from there."""
    numbers = set()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Also a string behind an attribute.
            for each in body:
                if isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant):
                    numbers |= set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
    for number in numbers:
        yield from _in_text(number, lines[number - 1].decode(), 0, taken)
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from _in_text(token.start[0], token.line, token.start[1], taken)


def _in_text(number: int, line: str, start: int, taken: set[str]) -> Iterator[Edit]:
    for found in _NAME.finditer(line, start):
        name, full = found[1], found[0]
        # A module, what is in one, or the SDK itself; "sotto plan" is the command.
        while "." in full and full not in taken:
            full = full.rpartition(".")[0]
        if "." in full or name == "clientsdk":
            begin = len(line[: found.start()].encode())
            yield Edit(number, begin, begin + len(name), PREFIXES[name].encode())


def assemble(folder: Path, root: Path = ROOT) -> None:
    """Write the package, and a project of which setuptools builds it, to an empty folder."""
    known = modules(root)
    taken = reachable(known)
    written: dict[str, str] = {}
    # The SDK's __init__ is the package's; that of what both sides share is a docstring.
    for name in sorted(taken - {"sotto"}):
        first, dot, rest = name.partition(".")
        became = PREFIXES[first] + dot + rest
        if became in written:
            raise ValueError(f"{name} and {written[became]} would both become {became}")
        written[became] = name
        path = folder.joinpath(*became.split("."))
        init = known[name].name == "__init__.py"
        path = path / "__init__.py" if init else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(renamed(known[name].read_bytes(), taken))
    (folder / PACKAGE / "py.typed").touch()
    project = (HERE / "pyproject.toml").read_text("utf-8")
    own = f'build-backend = "{Path(__file__).stem}"\nbackend-path = ["."]\n'
    if own not in project:
        raise ValueError("pyproject.toml does not name this build backend")
    project = project.replace(own, 'build-backend = "setuptools.build_meta"\n')
    (folder / "pyproject.toml").write_text(project, "utf-8")
    shutil.copy(HERE / "README.md", folder)
    shutil.copy(root / "LICENSE", folder)


def build_wheel(
    wheel_directory: str,
    config_settings: dict[str, object] | None = None,
    metadata_directory: str | None = None,
) -> str:
    """Build the wheel; called by pip."""
    from setuptools import build_meta

    target = str(Path(wheel_directory).resolve())
    with tempfile.TemporaryDirectory() as folder:
        assemble(Path(folder))
        with chdir(folder):
            return str(build_meta.build_wheel(target, config_settings))


def build_sdist(sdist_directory: str, config_settings: dict[str, object] | None = None) -> str:
    """Build an archive of the sources, from which setuptools alone builds the wheel."""
    from setuptools import build_meta

    target = str(Path(sdist_directory).resolve())
    with tempfile.TemporaryDirectory() as folder:
        assemble(Path(folder))
        with chdir(folder):
            return str(build_meta.build_sdist(target, config_settings))
