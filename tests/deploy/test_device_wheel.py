"""How modules are chosen and renamed for the wheel that an app ships."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def builder():
    sys.path.insert(0, str(ROOT / "deploy" / "device"))
    try:
        import device_wheel
    finally:
        sys.path.pop(0)
    return device_wheel


def test_extras_bring_the_same_in_both_distributions():
    device, tools = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["optional-dependencies"]
        for folder in (ROOT / "deploy" / "device", ROOT)
    )
    extras = ("signatures", "ohttp", "kafka", "otel", "openfeature")
    assert device == {name: tools[name] for name in extras}


def test_the_meter_provider_is_found_under_the_name_of_either_distribution():
    device, tools = (
        tomllib.loads((folder / "pyproject.toml").read_text())["project"]["entry-points"]
        for folder in (ROOT / "deploy" / "device", ROOT)
    )
    assert tools == {"opentelemetry_meter_provider": {"sotto": "clientsdk.otel:SottoMeterProvider"}}
    assert str(device) == str(tools).replace("clientsdk", "sottovoce")


#: A module as it stands in the wheel.
AFTER = '''\
"""Of :mod:`sottovoce.wire.format`, :class:`sottovoce.Client` and ``sotto plan check``; mechanisms.

>>> from sottovoce import Client
"""
from sottovoce.errors import PlanError  # as sottovoce.errors says, not sotto.nothing
import os; from  sottovoce._mechanisms.exact import (
    MICRO,
)
from sottovoce import store
import sottovoce.client as ours
LAZY = {"a": "sottovoce.wire.format", "ü": "sottovoce._mechanisms.exact:MICRO", "t": "sotto.shard"}
class Kind:
    name: str
    """What :func:`sottovoce._mechanisms.exact.f` takes."""
    def of(self, mechanisms):
        from sottovoce.wire import format
        return mechanisms.exact, "sotto", f"sotto-{self}", "see sotto.errors", "docs/sotto.errors"
'''


def test_names_of_modules_change_and_nothing_else(builder):
    taken = {"sotto.errors", "sotto.wire.format", "sotto.wire", "mechanisms.exact"}
    before = AFTER.replace("sottovoce._mechanisms", "mechanisms").replace("sottovoce.w", "sotto.w")
    before = before.replace("sottovoce.errors", "sotto.errors").replace("sottovoce", "clientsdk")
    assert builder.renamed(before.encode(), taken).decode() == AFTER


def test_an_import_that_binds_the_name_of_a_package_is_an_error(builder):
    with pytest.raises(ValueError, match="from"):
        builder.renamed(b"import sotto.errors\n", {"sotto.errors"})


def tree(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder.joinpath(*name.split("__")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return folder


def test_what_a_device_can_import_is_taken(builder, tmp_path):
    root = tree(
        tmp_path,
        clientsdk__client="def f():\n    from sotto.plan import compiled\nA = 'mechanisms.a:A'\n",
        sotto__plan__compiled="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
        "    from sotto.types import T\n",
        sotto__types="",
        sotto__cli="",
        mechanisms__a="from mechanisms.b import B\ndef f():\n    from mechanisms.c import C\n",
        mechanisms__b="",
        mechanisms__c="",
    )
    assert builder.reachable(builder.modules(root)) == {
        *("clientsdk", "clientsdk.client", "sotto", "sotto.plan", "sotto.plan.compiled"),
        *("mechanisms", "mechanisms.a", "mechanisms.b"),
    }


def test_two_modules_of_one_name_are_an_error(builder, tmp_path):
    root = tree(tmp_path / "tree", clientsdk__clocks="from sotto.clocks import C", sotto__clocks="")
    tree(root, mechanisms__a="")
    with pytest.raises(ValueError, match=r"sotto.clocks and clientsdk.clocks would both become"):
        builder.assemble(tmp_path / "wheel", root)
