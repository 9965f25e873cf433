"""A page of HTML, for what its tags and its text say."""

from __future__ import annotations

from collections.abc import Sequence
from html.parser import HTMLParser


class Html(HTMLParser):
    """Checks that tags balance, and collects attributes and text."""

    VOID = frozenset({"meta", "link", "input", "img"})

    def __init__(self, content: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.text = ""
        self.feed(content)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data

    def values(self, *names: str) -> list[str]:
        return [each[name] for _, each in self.tags for name in names if name in each]
