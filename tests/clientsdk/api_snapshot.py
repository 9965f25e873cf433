"""The public names of the SDK with their signatures, as text.

``python tests/clientsdk/api_snapshot.py`` writes them to ``api.txt``; what changes there changes
for every app.
"""

from __future__ import annotations

import enum
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

SNAPSHOT = Path(__file__).with_name("api.txt")
#: Bases whose members say nothing of ours.
_FOREIGN = (object, tuple, str, BaseException)


def describe(module: ModuleType, names: list[str]) -> Iterator[str]:
    """Yield a line for every public name of a module, and for its members."""
    for name in names:
        thing = getattr(module, name)
        yield f"{module.__name__}.{name}{_signature(thing)}"
        if inspect.isclass(thing):
            for member, line in sorted(_members(thing)):
                yield f"  {member}{line}"


def _members(owner: type) -> Iterator[tuple[str, str]]:
    if issubclass(owner, enum.Enum):
        yield from ((each.name, f" = {each.value!r}") for each in owner)
        return
    inherited = {name for base in _FOREIGN if issubclass(owner, base) for name in dir(base)}
    for name in {name for name in dir(owner) if not name.startswith("_")} - inherited:
        member = inspect.getattr_static(owner, name)
        if isinstance(member, classmethod | staticmethod):
            yield name, _signature(getattr(owner, name))
        elif inspect.isfunction(member):
            waits = " async " if inspect.iscoroutinefunction(member) else ""
            yield name, waits + _signature(member)
        else:
            yield name, ""


def _signature(thing: object) -> str:
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        return ""
    try:
        text = str(inspect.signature(thing))  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    return re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", text)


def snapshot() -> str:
    """Return all of it."""
    import clientsdk
    from clientsdk import testing

    helpers = [
        name
        for name, thing in vars(testing).items()
        if not name.startswith("_") and getattr(thing, "__module__", "") == testing.__name__
    ]
    lines = [*describe(clientsdk, sorted(clientsdk.__all__)), *describe(testing, sorted(helpers))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))
    SNAPSHOT.write_text(snapshot())
