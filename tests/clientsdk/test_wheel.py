"""The wheel as an app gets it: in an environment of its own, without network or anything else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipapp
import zipfile
from pathlib import Path

import pytest
from device_plans import plan
from every_type import every_plan
from programs import needed
from scripts import HERE, ROOT

from clientsdk.testing import small_plan
from sotto.plan.generate import module_text

pytestmark = pytest.mark.slow

#: Files of the tree from which both distributions are built.
SOURCES = (
    *("mechanisms", "sotto", "sotto_cli", "clientsdk", "pipelines"),
    *("pyproject.toml", "README.md", "LICENSE"),
)
DEVICE = ROOT / "deploy" / "device"
QUIET = ("--quiet", "--disable-pip-version-check", "--no-index")
PYTHONS = ("python3.11", "python3.12", "python3.13", "python3.14")
THREE_LINES = """\
from sottovoce import Client, EmbeddedLogPublisher
client = Client("plan.json", state="device.db", publisher=EmbeddedLogPublisher("log"))
print(client.record("colour", "red").value)
"""
#: A package that depends on the wheel, as an app's own does.
EDITOR = """\
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "editor"
version = "1"
dependencies = ["sottovoce"]
[tool.setuptools]
py-modules = ["editor"]
"""
#: All that a device does with every mechanism, under a seed: what it reports is printed.
EVERYTHING = """
import hashlib, importlib, pkgutil, sys
from clientsdk import NO_LIFETIME_BOUND, Client, MemoryPublisher
from clientsdk.testing import FakeClock, SeededClient, reported
values = {"category": "red", "boolean": True, "string": "home", "number": 12.5, "ordinal": 40.0,
          "survey": False, "vector": [0.5, 0, -2], "top_item": "map"}
with open("plan.json", "rb") as file:
    plan = file.read()
def use(client):
    client.give_consent()
    for metric in client.plan.metrics:
        value = "ok" if metric.type == "ordinal" and metric.domain else values[metric.type]
        assert client.record(metric.name, value).value == "accepted", metric.name
    repr(client.preview()), repr(client.ledger()), client.stats()
    for _ in range(3):
        clock.advance(days=4)
        client.flush()
    assert client.next_due() is None
    return client
clock = FakeClock()
options = {"publisher": MemoryPublisher(), "clock": clock, "background": False}
with Client(plan, state="device.db", **options) as client:
    use(client)
clock = FakeClock()
with SeededClient(plan, seed=1, clock=clock) as client:
    sent = use(client).publisher.messages
    assert len(reported(client)) >= len(client.plan.metrics)
"""
DIGEST = "print(len(sent), hashlib.sha256(b''.join(message for _, message in sent)).hexdigest())\n"
#: The SDK's own modules are all imported, those that need other packages too.
LOADED = """
import clientsdk
for found in pkgutil.walk_packages(clientsdk.__path__, "clientsdk."):
    importlib.import_module(found.name)
print(*sorted(name for name in sys.modules if name.split(".")[0] in
              ("clientsdk", "sotto", "mechanisms", "pipelines")))
"""
#: Modules of the wheel that the run above has not imported, and who would import them.
SELDOM = {
    "sotto.kafka.client_internals": "a producer of kafka-python that is made or dropped",
    **dict.fromkeys(
        [
            *("sotto.design", "sotto.design.spending"),
            *("sotto.disclosure", "sotto.disclosure.facts", "sotto.disclosure.texts"),
        ],
        "clientsdk.terminal, where it shows what is collected",
    ),
    "sotto.wire.batch": "clientsdk.publishers.http, when it posts",
    "sotto.wire.groups": "sotto.log.reader, where a log is read",
}


def run(*command: object, cwd: Path) -> str:
    """Run a command that sees no other package and no setting of this machine's."""
    kept = {
        name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in os.environ
    }
    result = subprocess.run(
        [*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def built(project: Path, folder: Path) -> Path:
    options = ("--no-deps", "--no-build-isolation", "--wheel-dir", folder)
    run(sys.executable, "-W", "ignore", "-m", "pip", "wheel", *QUIET, *options, project, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel that an app ships."""
    return built(DEVICE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory):
    folder = tmp_path_factory.mktemp("unpacked")
    zipfile.ZipFile(wheel).extractall(folder)
    return folder


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """The Python of a fresh environment, with a package that needs the wheel."""
    folder = tmp_path_factory.mktemp("app")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    (folder / "pyproject.toml").write_text(EDITOR)
    (folder / "editor.py").write_text(module_text(small_plan(), "sottovoce"))
    editor = built(folder, folder)
    # With all its dependencies: there is no index, so that any other would be an error.
    options = (*QUIET, "--find-links", wheel.parent)
    run(sys.executable, "-m", "pip", "--python", python, "install", *options, editor, cwd=folder)
    return python


@pytest.fixture(scope="module")
def of_the_tree(tmp_path_factory):
    """The text that the tree's own SDK prints of everything that a device does."""
    folder = tmp_path_factory.mktemp("tree")
    (folder / "plan.json").write_bytes(every_plan().to_json())
    path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    return run(sys.executable, "-I", "-c", path + EVERYTHING + DIGEST, cwd=folder)


def modules_of(wheel: Path) -> set[str]:
    paths = [Path(name) for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".py")]
    parts = [path.with_suffix("").parts for path in paths]
    return {".".join(each[:-1] if each[-1] == "__init__" else each) for each in parts}


def shipped(name: str) -> str:
    """Return what a module of the tree is called in the wheel."""
    first, dot, rest = name.partition(".")
    return ("sottovoce._mechanisms" if first == "mechanisms" else "sottovoce") + dot + rest


def renamed(code: str) -> str:
    return code.replace("clientsdk", "sottovoce")


@pytest.mark.real_randomness
def test_it_holds_what_a_device_imports_and_no_more(wheel, tmp_path):
    (tmp_path / "plan.json").write_bytes(every_plan().to_json())
    path = f"import sys\nsys.path.insert(0, {str(ROOT)!r})\n"
    imported = run(sys.executable, "-c", path + EVERYTHING + LOADED, cwd=tmp_path).split()
    holds = modules_of(wheel)
    assert {shipped(name) for name in imported} <= holds
    assert holds - {shipped(name) for name in imported} == {shipped(name) for name in SELDOM}
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"sottovoce"}


@pytest.mark.real_randomness
def test_it_depends_on_nothing_and_brings_its_types(installed, tmp_path):
    code = (
        "from importlib.metadata import distributions, requires\n"
        "from importlib.resources import files\n"
        "print(sorted(each.name for each in distributions()))\n"
        "print([each for each in requires('sottovoce') if 'extra' not in each])\n"
        "print((files('sottovoce') / 'py.typed').is_file())"
    )
    told = run(installed, "-I", "-c", code, cwd=tmp_path).splitlines()
    assert told == ["['editor', 'sottovoce']", "[]", "True"]


@pytest.mark.real_randomness
def test_its_providers_are_found_by_their_name_beside_those_of_the_tree(unpacked, tmp_path):
    code = (
        f"import sys; sys.path.insert(0, {str(unpacked)!r})\n"
        "import os; os.environ['OTEL_PYTHON_METER_PROVIDER'] = 'sotto'\n"
        "from opentelemetry import metrics\n"
        "print(type(metrics.get_meter_provider()).__module__)\n"
        "from sottovoce.openfeature import SottoFeatureProvider\n"
        "print({'clientsdk', 'mechanisms', 'sotto'} & {*sys.modules})"
    )
    assert run(sys.executable, "-c", code, cwd=tmp_path) == "sottovoce.otel\nset()\n"


@pytest.mark.real_randomness
def test_three_lines_are_enough_and_nothing_is_recorded_before_consent(installed, tmp_path):
    """Also where the plan is a package's own, which depends on the SDK."""
    (tmp_path / "plan.json").write_bytes(small_plan().to_json())
    for code in (
        THREE_LINES,
        "from editor import PLAN\n" + THREE_LINES.replace('"plan.json"', "PLAN"),
    ):
        assert run(installed, "-I", "-W", "error", "-c", code, cwd=tmp_path) == "no_consent\n"
    assert not (tmp_path / "log").exists()


@pytest.mark.real_randomness
@pytest.mark.parametrize("python", PYTHONS)
def test_it_reports_on_every_python_what_the_tree_does(python, unpacked, of_the_tree, tmp_path):
    """Beside packages of the app's own that bear our names, and without a warning."""
    path = needed(python)
    (tmp_path / "plan.json").write_bytes(every_plan().to_json())
    for name in ("clientsdk", "mechanisms", "pipelines", "sotto"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('this is the app's own')\n")
    code = f"import sys\nsys.path[:0] = [{str(tmp_path)!r}, {str(unpacked)!r}]\n"
    # A database that is not closed is one of Python 3.13's warnings, given where none is raised.
    code += "sys.unraisablehook = lambda found: print('unraisable', found)\n"
    told = run(path, "-I", "-W", "error", "-c", code + renamed(EVERYTHING + DIGEST), cwd=tmp_path)
    assert told == of_the_tree


@pytest.mark.real_randomness
@pytest.mark.parametrize("packer", ["pyinstaller", "zipapp"])
def test_a_packed_app_reports_what_the_tree_does(packer, unpacked, of_the_tree, tmp_path):
    """The device may name any mechanism in its plan: a packer has to find all of them."""
    source = shutil.copytree(unpacked, tmp_path / "source")
    (source / "__main__.py").write_text(renamed(EVERYTHING + DIGEST))
    if packer == "zipapp":
        zipapp.create_archive(source, tmp_path / "app.pyz")
        command = (sys.executable, "-I", tmp_path / "app.pyz")
    else:
        # Found in this environment, and needless: they take time.
        excluded = [f"--exclude-module={name}" for name in ("cryptography", "kafka", "numpy")]
        options = ("--name=app", "--log-level=ERROR", "--specpath=.", *excluded)
        run(sys.executable, "-m", "PyInstaller", *options, source / "__main__.py", cwd=tmp_path)
        command = (tmp_path / "dist" / "app" / "app",)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "plan.json").write_bytes(every_plan().to_json())
    assert run(*command, cwd=tmp_path / "run") == of_the_tree


@pytest.mark.real_randomness
def test_an_error_names_the_package_that_the_app_ships(installed, tmp_path):
    (tmp_path / "plan.json").write_bytes(plan(authentication="required").to_json())
    code = "try:\n" + "".join(f"    {line}\n" for line in THREE_LINES.splitlines())
    code += "except ModuleNotFoundError as error:\n    print(error)"
    told = run(installed, "-I", "-c", code, cwd=tmp_path)
    assert "pip install 'sottovoce[signatures]' brings it" in told


@pytest.mark.real_randomness
def test_a_typed_app_is_checked_against_it_strictly_and_runs(installed, tmp_path):
    (tmp_path / "typed_consumer.py").write_text(renamed((HERE / "typed_consumer.py").read_text()))
    (tmp_path / "generated.py").write_text(module_text(small_plan(), "sottovoce"))
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\ncache_dir = cache\n")
    options = ("--config-file", "mypy.ini", "--python-executable", installed)
    files = ("typed_consumer.py", "generated.py")
    told = run(sys.executable, "-m", "mypy", *options, *files, cwd=tmp_path)
    assert told == "Success: no issues found in 2 source files\n"
    told = run(installed, "-W", "error", "typed_consumer.py", cwd=tmp_path).split()
    assert told[-1] == "0"
    # The same checker finds what is wrong with it.
    wrong = tmp_path / "wrong.py"
    wrong.write_text("from sottovoce import Client, init\nClient('p', state=1, publisher=2).go()\n")
    command = [sys.executable, "-m", "mypy", *options, "wrong.py"]
    found = subprocess.run([*map(str, command)], cwd=tmp_path, capture_output=True, text=True)
    assert found.stdout.count("[arg-type]") == found.stdout.count("[attr-defined]") == 2


@pytest.mark.real_randomness
def test_both_distributions_fit_into_one_environment(wheel, installed, tmp_path):
    """An app's developer has the SDK, and the command that compiles plans: no file is in both."""
    copy = tmp_path / "source"
    copy.mkdir()
    for name in SOURCES:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy)
    (tmp_path / "built").mkdir()
    tools = built(copy, tmp_path / "built")
    assert tools.name.startswith("sottovoce_tools-")
    version = tools.name.split("-")[1]
    assert wheel.name == f"sottovoce-{version}-py3-none-any.whl"
    both = [set(zipfile.ZipFile(each).namelist()) for each in (wheel, tools)]
    assert not both[0] & both[1]
    assert {"sotto/py.typed", "clientsdk/py.typed", "pipelines/py.typed"} <= both[1]
