"""Measures the tree: code lines by folder, the form of its sentences, class names used twice.

``python -m tests.house`` prints each figure beside its limit in ``house.txt``, and is part of
``make lint``. ``--write`` lowers the limits to today's figures, rounded up to a hundred lines, and
never raises one: a limit is raised by hand, in the change that needs it, whose message says what
it buys.

A code line holds a token that is neither a comment nor part of a docstring. A sentence is inverted
if it begins with Of, Where, What, Who or Whose; comments, and sentences of docstrings, count.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
LIMITS = Path(__file__).with_name("house.txt")
PACKAGES = ("mechanisms", "papers", "sotto", "clientsdk", "pipelines", "sotto_cli")
OTHERS = ("tests", "benchmarks", "examples", "deploy", "docs")
INVERTED = re.compile(r"(Of|Where|What|Who|Whose)\b")
NO_PROSE = re.compile(r"(noqa|type:|pragma|!/)|$")
EXAMPLE = (">>>", "...", "---", "|")
#: Code lines to which limits are rounded up, so that a mend of a fault needs no higher limit.
_ROOM = 100
WITHOUT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


@dataclass
class SourceFile:
    """Figures of one file: the number of code lines, its sentences, the names of its classes."""

    code: int
    sentences: list[str]
    classes: list[str]


@dataclass
class House:
    """Figures of the tree: code lines by folder, sentences, the packages' files by class name."""

    code: Counter[str] = field(default_factory=Counter)
    sentences: list[str] = field(default_factory=list)
    classes: dict[str, list[str]] = field(default_factory=dict)

    @property
    def inverted(self) -> list[str]:
        """Sentences that begin with Of, Where, What, Who or Whose, after their file's name."""
        return [said for said in self.sentences if INVERTED.match(said.partition(": ")[2])]

    @property
    def twice(self) -> dict[str, list[str]]:
        """Class names that several files use, and these files."""
        return {name: files for name, files in self.classes.items() if len(files) > 1}

    def figures(self) -> dict[str, int]:
        """Return the figures that have a limit, by name; inverted sentences are of 10,000."""
        return {
            "packages": sum(self.code[name] for name in PACKAGES),
            **{name: self.code[name] for name in (*PACKAGES, *OTHERS) if self.code[name]},
            "inverted sentences (of 10,000)": round(
                10_000 * len(self.inverted) / max(len(self.sentences), 1)
            ),
            "class names used twice": len(self.twice),
        }


def _docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(tree):
        if isinstance(node, kinds) and ast.get_docstring(node) is not None:
            first = node.body[0]
            assert isinstance(first, ast.Expr)
            assert isinstance(first.value, ast.Constant)
            yield first.value


def _of_docstring(text: str) -> Iterator[str]:
    lines = (line for line in text.splitlines() if not line.strip().startswith(EXAMPLE))
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        yield from re.split(r"(?<=[.:;!?])\s+", " ".join(paragraph.split()))


def _of_comments(comments: list[tokenize.TokenInfo]) -> Iterator[str]:
    """Join comments that stand on lines one below the other."""
    blocks = groupby(enumerate(comments), lambda numbered: numbered[1].start[0] - numbered[0])
    for _, block in blocks:
        yield " ".join(comment.string.lstrip("#: ").strip() for _, comment in block)


def measure_file(text: str) -> SourceFile:
    """Return the figures of a file's text."""
    tree = ast.parse(text)
    docstrings = list(_docstrings(tree))
    code: set[int] = set()
    comments = []
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not NO_PROSE.match(token.string.lstrip("#: ")):
            comments.append(token)
        elif token.type not in WITHOUT_CODE:
            code.update(range(token.start[0], token.end[0] + 1))
    for docstring in docstrings:
        code -= set(range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1))
    sentences = [*_of_comments(comments)]
    for docstring in docstrings:
        sentences += filter(None, _of_docstring(str(docstring.value)))
    classes = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return SourceFile(len(code), sentences, classes)


def measure() -> House:
    """Return the figures of the tree."""
    house = House()
    for folder in (*PACKAGES, *OTHERS):
        for path in sorted((ROOT / folder).rglob("*.py")):
            file = measure_file(path.read_text())
            house.code[folder] += file.code
            name = path.relative_to(ROOT).as_posix()
            house.sentences += [f"{name}: {said}" for said in file.sentences]
            if folder in PACKAGES:
                for cls in file.classes:
                    house.classes.setdefault(cls, []).append(name)
    return house


def limits() -> dict[str, int]:
    """Return the limits of the figures, by name."""
    rows = (line.rpartition(" ") for line in LIMITS.read_text().splitlines())
    return {name.strip(): int(limit) for name, _, limit in rows}


def write(figures: dict[str, int], known: dict[str, int]) -> None:
    """Write the limits anew, each the lower of a figure, with some room, and its limit."""
    width = max(map(len, figures)) + 2
    lowest = {name: -(-n // _ROOM) * _ROOM if n > _ROOM else n for name, n in figures.items()}
    rows = [f"{name:{width}}{min(n, known.get(name, n)):7}\n" for name, n in lowest.items()]
    LIMITS.write_text("".join(rows))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures beside their limits; return 1 if one is above."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.house",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--write", action="store_true", help="lower the limits to these figures")
    parser.add_argument("--inverted", action="store_true", help="list the inverted sentences")
    parser.add_argument("--twice", action="store_true", help="list the class names used twice")
    given = parser.parse_args(arguments)
    house = measure()
    figures, known = house.figures(), limits()
    print(f"{'code lines':32}{'now':>8}{'limit':>8}")
    for name, figure in figures.items():
        mark = "  above its limit" if figure > known.get(name, -1) else ""
        print(f"{name:32}{figure:8,}{known.get(name, 0):8,}{mark}")
    if given.inverted:
        print(*house.inverted, sep="\n")
    if given.twice:
        print(*(f"{name}: {', '.join(files)}" for name, files in house.twice.items()), sep="\n")
    if given.write:
        write(figures, known)
    return int(any(figure > known.get(name, -1) for name, figure in figures.items()))


if __name__ == "__main__":
    sys.exit(main())
