"""What a docstring says, section by section, as Markdown."""

from __future__ import annotations

import inspect
import re
from typing import Any

_ROLE = re.compile(r":[a-z]+:`[~.]?(?:[\w.]*\.)?(\w+)`")
_UNDERLINED = re.compile(r"^(\w+)\n-{3,}\n", re.MULTILINE)
#: A reference up to its year, which is none of an identifier's digits.
_DATED = re.compile(r".*?(?<![:.\d])(?:19|20)\d\d(?![.]\d|\d)")
#: The end of a sentence; initials are no such end.
_SENTENCE = re.compile(r"(?<=[a-z0-9)])\. |; ")


def sections(documented: Any) -> dict[str, str]:
    """Return the sections of a docstring as Markdown, its summary under the empty name.

    References may be the module's.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> sections(GeneralizedRandomizedResponse)[""]
    'Report the true category, or with a smaller probability each of the others.'
    """
    parts = _UNDERLINED.split(inspect.getdoc(documented) or "")
    found = {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}
    module = inspect.getdoc(inspect.getmodule(documented)) or ""
    if "References" not in found and "References\n---" in module:
        found["References"] = _UNDERLINED.split(module)[-1]
    return {title: _markdown(body.strip()) for title, body in found.items()}


def source(documented: Any) -> str:
    """Return who published a mechanism first, where and when.

    Examples
    --------
    >>> from mechanisms.category.grr import GeneralizedRandomizedResponse
    >>> source(GeneralizedRandomizedResponse)
    'S. L. Warner, JASA 60(309), 1965'
    """
    text = _SENTENCE.split(" ".join(sections(documented)["References"].split()))[0].rstrip(".")
    dated = _DATED.match(text)
    return re.sub(r', "[^"]*"', "", dated[0]) if dated else text


def _markdown(text: str) -> str:
    text = _ROLE.sub(r"`\1`", text).replace("``", "`")
    return text.replace("**", r"\*\*").replace("<", "&lt;")
