"""The deployment in containers, as far as it can be checked without an engine for them."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from check_jsonschema.builtin_schemas import get_builtin_schema
from compose_files import ROOT, SMALL, WHOLE, ComposeFile, mounts
from local_postgres import installation
from programs import needed

from deploy.certificates import Keys
from deploy.flink import settings as flink_settings
from deploy.images import node, passwords
from deploy.kafka import settings as kafka_settings
from pipelines.beam.submission import FLINK
from pipelines.web.access import token_of
from sotto import __version__
from sotto.kafka.topics import ReportTopic
from sotto.plan.compile import load_plan
from sotto_cli import _parsed

PROFILES = ("flink", "aggregate")
GIB = 1 << 30


COMPOSE, SERVICES, of_profile = WHOLE.document, WHOLE.services, WHOLE.of_profile
#: Deployments: a file, its profile, and the most bytes of memory that they may take.
DEPLOYMENTS = [
    pytest.param(WHOLE, "flink", 8 * GIB, id="flink"),
    pytest.param(WHOLE, "aggregate", 8 * GIB, id="aggregate"),
    pytest.param(SMALL, "", 1536 << 20, id="small"),
]
FILES = pytest.mark.parametrize("file", [WHOLE, SMALL], ids=["whole", "small"])


def words(service: dict[str, Any]) -> list[str]:
    """Return a command as it is given to the entry point."""
    said = service.get("command", [])
    return shlex.split(said) if isinstance(said, str) else [str(word) for word in said]


def parsed(name: str) -> Namespace:
    """Return a command's arguments, as the program that is started takes them."""
    service, given = SERVICES[name], words(SERVICES[name])
    if service["image"].startswith("sotto:"):
        return _parsed(given)
    module, *rest = given
    if module == "deploy.images.node":
        return node.parser().parse_args(rest)
    assert module == "deploy.images.job"
    return _parsed(["stream", *rest])


#: The folder that has a folder of keys for each container.
KEYS = "./build/compose/keys/"
#: Services that show results and the state of the job, for either engine.
READERS = ("exporter", "serve", "aggregate-exporter", "aggregate-serve")
OURS = [name for name, service in SERVICES.items() if service["image"].startswith("sotto")]


@FILES
def test_the_file_is_as_compose_wants_it(file: ComposeFile) -> None:
    schema = get_builtin_schema("vendor.compose-spec")
    jsonschema.Draft202012Validator(schema).validate(yaml.safe_load(file.text))


@FILES
def test_what_services_refer_to_is_there_and_every_volume_is_used(file: ComposeFile) -> None:
    mounted = [pair for service in file.services.values() for pair in mounts(service)]
    for source, target in mounted:
        if source.startswith(KEYS):
            # Made by `make compose-up`.
            assert source.removeprefix(KEYS) in {"kafka", *passwords.CLIENTS}
            assert target == str(passwords.MOUNTED)
        elif source.startswith("."):
            place = ROOT / source
            # A file is mounted under its own name.
            assert place.is_dir() or (place.is_file() and target.endswith(f"/{place.name}")), target
        else:
            assert source in file.document["volumes"]
    assert set(file.document["volumes"]) <= set(dict(mounted))
    for service in file.services.values():
        if "build" in service:
            place = ROOT / service["build"]["context"]
            assert (place / service["build"]["dockerfile"]).is_file()


def test_every_file_of_an_environment_is_made(tmp_path: Path) -> None:
    wanted = {Path(f) for service in SERVICES.values() for f in service.get("env_file", [])}
    assert {ROOT / path.parent for path in wanted} == {passwords.FOLDER}
    passwords.make(tmp_path)
    made = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    token = ROOT / COMPOSE["secrets"]["token"]["file"]
    assert set(made) == {path.name for path in (*wanted, token)}
    assert token.parent == passwords.FOLDER
    assert len(token_of(tmp_path / token.name)) >= 32
    for name in made:
        # A container's user reads what is mounted as a file; the folder is its owner's alone.
        mode = 0o644 if name == token.name else 0o600
        assert (tmp_path / name).stat().st_mode & 0o777 == mode
    keys = contents(tmp_path / "keys")
    database, client = (
        made[f"{name}.env"].strip().split("=", 1) for name in ("postgres", "client")
    )
    assert database == ["POSTGRES_PASSWORD", client[1]]
    assert client[0] == "PGPASSWORD"
    assert len(client[1]) >= 32
    assert client[1] not in made["grafana.env"]
    passwords.make(tmp_path)
    again = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert again == made
    assert contents(tmp_path / "keys") == keys


def contents(folder: Path) -> dict[Path, bytes]:
    """Return what is in all files below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def key_folder(name: str) -> str | None:
    """Return whose keys a service has; None if it has none."""
    found = [source.removeprefix(KEYS) for source, _ in mounts(SERVICES[name]) if KEYS in source]
    assert len(found) <= 1
    return found[0] if found else None


def test_every_container_has_the_keys_of_its_role_and_no_others() -> None:
    assert {name: role for name in SERVICES if (role := key_folder(name)) is not None} == {
        "kafka": "kafka",
        "topics": "admin",
        "taskmanager": "aggregator",
        "stream": "aggregator",
        "sink": "reader",
        "exporter": "aggregator",
        "serve": "aggregator",
        "aggregate": "aggregator",
        "aggregate-exporter": "aggregator",
        "aggregate-serve": "aggregator",
    }
    given = parsed("topics")
    users = ("User:devices", "User:aggregator", "User:reader")
    assert (given.devices, given.aggregators, given.readers) == users
    said = SERVICES["kafka"]["environment"]
    assert said["KAFKA_SUPER_USERS"] == "User:kafka;User:admin"
    assert said["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false"
    assert said["KAFKA_SSL_CLIENT_AUTH"] == "required"


def test_keys_are_their_owner_s_and_of_who_they_say(tmp_path: Path) -> None:
    folder = tmp_path / "compose"
    passwords.make(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    for role, servers in passwords.CLIENTS.items():
        own = folder / "keys" / role
        says = json.loads((own / "client.json").read_text("utf-8"))
        assert says["servers"] == servers
        assert sorted(path.name for path in own.iterdir()) == [
            "authority.pem",
            "certificate.pem",
            "client.json",
            "key.pem",
        ]
        subject = ["openssl", "x509", "-in", str(own / "certificate.pem"), "-noout", "-subject"]
        done = subprocess.run(subject, capture_output=True, text=True, check=True, timeout=300)
        assert re.search(rf"CN ?= ?{role}$", done.stdout.strip())
        there = Path(says["key"])
        assert there.name == "key.pem"
        assert there.parent == (own if role == "devices" else passwords.MOUNTED)


def test_no_secret_is_in_the_file() -> None:
    for service in SERVICES.values():
        for variable in service.get("environment", {}):
            assert not re.search("PASSWORD|SECRET|TOKEN", variable)
    assert not re.search(r"://\w+:[^/\s]*@", WHOLE.text)


@pytest.mark.parametrize("profile", PROFILES)
def test_ports_are_this_machine_s_alone_and_are_documented(profile: str) -> None:
    document = (ROOT / "docs" / "operate" / "compose.md").read_text(encoding="utf-8")
    taken = []
    for name, service in of_profile(profile).items():
        for port in service.get("ports", []):
            address, outer, inner = port.split(":")
            assert address == "127.0.0.1", name
            assert outer == inner
            assert f"127.0.0.1:{outer}" in document
            taken.append(outer)
    assert len(set(taken)) == len(taken)
    assert {"9092", "9469", "8480", "9090", "3000", "5432"} <= set(taken)


@pytest.mark.parametrize(("file", "profile", "most"), DEPLOYMENTS)
def test_a_deployment_starts_in_its_order_and_fits_its_machine(
    file: ComposeFile, profile: str, most: int
) -> None:
    services, total = file.of_profile(profile), 0
    waits = [
        each for service in services.values() for each in service.get("depends_on", {}).items()
    ]
    ends = {name for name, how in waits if how["condition"] == "service_completed_successfully"}
    for name, service in services.items():
        for other, how in service.get("depends_on", {}).items():
            assert other in services, name
            # Services of the small deployment wait until those before them are healthy.
            assert file is WHOLE or how["condition"] == "service_healthy"
            if how["condition"] == "service_healthy":
                assert "healthcheck" in services[other]
        limit = service["mem_limit"]
        # A service that ends before all others start needs no memory beside them.
        total += 0 if name == "topics" else int(limit[:-1]) * {"m": 1 << 20, "g": GIB}[limit[-1]]
        assert service["restart"] == ("on-failure" if name in ends else "unless-stopped"), name
        assert service["logging"]["options"]["max-size"]
    assert total <= most


def test_versions_are_those_of_the_scripts() -> None:
    images = {name: service["image"].rpartition(":")[::2] for name, service in SERVICES.items()}
    assert all(version not in ("", "latest") for _, version in images.values())
    pom = ElementTree.parse(ROOT / "deploy" / "kafka" / "pom.xml")
    kafka = {
        each.findtext("{*}artifactId"): each.findtext("{*}version")
        for each in pom.iterfind(".//{*}dependency")
    }
    assert images["kafka"] == ("apache/kafka", kafka["kafka_2.13"])
    assert {images[name][1] for name in OURS} == {__version__}
    assert {service["image"] for name, service in SMALL.services.items() if name != "caddy"} == {
        f"sotto:{__version__}"
    }


@pytest.mark.real_randomness
@pytest.mark.parametrize(
    ("service", "program"),
    [("prometheus", "prometheus"), ("postgres", str(installation() / "bin" / "postgres"))],
)
def test_versions_are_those_that_are_tested_here(service: str, program: str) -> None:
    done = subprocess.run(
        [needed(program), "--version"], capture_output=True, text=True, check=True
    )
    found = re.search(r"\d+(\.\d+)+", done.stdout + done.stderr)
    assert SERVICES[service]["image"].rpartition(":")[2].removeprefix("v") == found[0]


def test_the_lock_of_images_is_a_part_of_the_project_s() -> None:
    def pins(path: Path) -> dict[str, frozenset[str]]:
        text = path.read_text(encoding="ascii").replace("\\\n", " ")
        found = re.findall(r"^(\S+==\S+)(.*)$", text, re.MULTILINE)
        return {name: frozenset(re.findall(r"sha256:\w+", hashes)) for name, hashes in found}

    whole = pins(ROOT / "requirements.lock")
    part = pins(ROOT / "deploy" / "images" / "requirements.lock")
    assert len(part) > 20
    assert part.items() <= whole.items()
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "--output-file deploy/images/requirements.lock pyproject.toml" in makefile
    names = {name.partition("==")[0] for name in part}
    assert {"apache-beam", "kafka-python", "prometheus-client", "psycopg-binary"} <= names
    assert not names & {"pytest", "mypy", "ruff"}


def test_all_commands_mean_the_same_topics_database_and_plans() -> None:
    made = parsed("topics")
    topic = str(ReportTopic(made.name, made.epoch, made.partitions))
    assert made.sinks
    for name in ("stream", *READERS, "aggregate"):
        assert parsed(name).topic == [topic], name
    assert parsed("sink").topic == f"{made.name}-estimates"
    said = SERVICES["postgres"]["environment"]
    url = f"postgresql+psycopg://{said['POSTGRES_USER']}@postgres/{said['POSTGRES_DB']}"
    assert {parsed(n).database for n in ("sink", "aggregate", *READERS)} == {url}
    plan = made.plan
    assert plan[0].parent == parsed("stream").plans == parsed("aggregate").plans
    assert plan == parsed("exporter").plan == parsed("serve").plan
    for service in ("topics", "stream", "aggregate", "exporter", "serve"):
        (source,) = [s for s, t in mounts(SERVICES[service]) if t == str(plan[0].parent)]
        load_plan(ROOT / source / plan[0].name)
    state = parsed("aggregate").state
    assert [state] == parsed("aggregate-exporter").state
    assert state == parsed("aggregate-serve").state


@pytest.mark.parametrize(
    ("file", "name"), [(WHOLE, "serve"), (WHOLE, "aggregate-serve"), (SMALL, "serve")]
)
def test_pages_are_for_who_has_the_token_and_write_alerts_alone(
    file: ComposeFile, name: str
) -> None:
    service = file.services[name]
    given = _parsed(words(service))
    assert given.token_file == Path("/run/secrets") / service["secrets"][0]
    assert file.document["secrets"].keys() == {service["secrets"][0]}
    assert not given.public
    assert service["ports"] == [f"127.0.0.1:{given.port}:{given.port}"]
    assert f"127.0.0.1:{given.port}/healthz" in service["healthcheck"]["test"][-1]
    written = [each for each in service["volumes"] if not each.endswith(":ro")]
    assert written == [f"alerts:{given.kept.parent}"]
    assert given.boards.parent == given.notes.parent == given.kept.parent
    # All figures are watched, by no file of anybody's.
    assert given.alerts is False
    assert str(given.kept.parent) in (ROOT / "deploy/images/sotto.Dockerfile").read_text()


def test_all_commands_reach_the_broker_where_it_listens() -> None:
    said = SERVICES["kafka"]["environment"]
    advertised = dict(each.split("://") for each in said["KAFKA_ADVERTISED_LISTENERS"].split(","))
    inside, outside = advertised["CLIENT"], advertised["HOST"]
    assert f"{outside}:{outside.rpartition(':')[2]}" in SERVICES["kafka"]["ports"]
    assert inside.partition(":")[0] == SERVICES["kafka"]["hostname"] == "kafka"
    assert (inside, outside) == (passwords.INSIDE, passwords.OUTSIDE)
    for name in ("topics", "stream", "sink", "aggregate", *READERS):
        assert parsed(name).broker == passwords.MOUNTED / "client.json", name
        role = key_folder(name)
        assert role is not None
        assert passwords.CLIENTS[role] == inside
    listeners = dict(each.split("://") for each in said["KAFKA_LISTENERS"].split(","))
    for name, address in advertised.items():
        assert listeners[name] == f":{address.rpartition(':')[2]}"
    voter = said["KAFKA_CONTROLLER_QUORUM_VOTERS"]
    assert voter == f"{said['KAFKA_NODE_ID']}@kafka{listeners['CONTROLLER']}"


#: Settings in which a container is not like a broker on loopback.
ADDRESSES = {
    "listeners",
    "advertised.listeners",
    "inter.broker.listener.name",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
}


def test_the_broker_s_settings_are_those_of_the_script() -> None:
    given = kafka_settings.common(Path("data"), 9092, 9093)
    native = {name: str(value) for name, value in given.items() if name not in ADDRESSES}
    said = {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value
        for name, value in SERVICES["kafka"]["environment"].items()
    }
    assert {name: said.get(name) for name in native} == native
    extra = {"heap.opts", "controller.quorum.voters", "ssl.client.auth"}
    extra |= {"ssl.principal.mapping.rules"}
    secured = kafka_settings.tls(Keys(Path("a"), Path("s")), "password")
    assert set(said) - set(native) - ADDRESSES - set(secured) == extra
    for name in ("authorizer.class.name", "allow.everyone.if.no.acl.found"):
        assert said[name] == secured[name]


def test_what_watches_finds_what_it_watches() -> None:
    scraped = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text("utf-8"))
    (target,) = scraped["scrape_configs"][0]["static_configs"][0]["targets"]
    for profile, name in zip(PROFILES, ("exporter", "aggregate-exporter"), strict=True):
        service = of_profile(profile)[name]
        aliases = service.get("networks", {}).get("default", {}).get("aliases", [name])
        assert target == f"{aliases[0]}:{parsed(name).port}"
        assert parsed(name).listen == "0.0.0.0"
    sources = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/prometheus.yml").read_text("utf-8")
    )
    assert sources["datasources"][0]["url"] == "http://prometheus:9090"
    (results,) = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/datasources/results.yml").read_text("utf-8")
    )["datasources"]
    assert results["url"] == "postgres:5432"
    reader = (ROOT / "deploy/postgres/reader.sh").read_text("utf-8")
    assert f"CREATE ROLE {results['user']} LOGIN" in reader
    assert results["secureJsonData"]["password"].strip("$") in reader
    board = json.loads((ROOT / "deploy/grafana/dashboards/results.json").read_text("utf-8"))
    assert {panel["datasource"]["uid"] for panel in board["panels"]} == {results["uid"]}
    of_one = "collector = ${collector:sqlstring} AND plan = ${plan:sqlstring} AND version = "
    queries = [target["rawSql"] for panel in board["panels"] for target in panel["targets"]]
    assert all(f"WHERE {of_one}" in query for query in queries), "collectors would be mixed"
    (provider,) = yaml.safe_load(
        (ROOT / "deploy/grafana/provisioning/dashboards/sotto.yml").read_text("utf-8")
    )["providers"]
    assert provider["options"]["path"] in dict(map(reversed, mounts(SERVICES["grafana"])))  # type: ignore[arg-type]
    assert dict(mounts(SERVICES["prometheus"]))["./deploy/prometheus"] == "/etc/prometheus"
    assert "--config.file=/etc/prometheus/prometheus.yml" in words(SERVICES["prometheus"])


def test_prometheus_takes_its_configuration() -> None:
    done = subprocess.run(
        [needed("promtool"), "check", "config", str(ROOT / "deploy/prometheus/prometheus.yml")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


DOCKERFILES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_made_of_what_is_there(path: Path) -> None:
    text = path.read_text(encoding="utf-8").replace("\\\n", " ")
    steps = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    let_in = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text("utf-8"), re.MULTILINE)
    for word, rest in steps:
        if word == "FROM":
            version = re.match(r"python:(\d+\.\d+)\.\d+-slim-bookworm( |$)", rest)
            assert version[1] == ".".join(map(str, sys.version_info[:2]))
        if word == "COPY" and "--from" not in rest:
            *sources, _ = rest.split()
            for source in sources:
                assert (ROOT / source).exists(), source
                assert source.split("/")[0] in let_in
    users = [rest for word, rest in steps if word == "USER"]
    assert users == ["sotto"]
    installs = [rest for word, rest in steps if word == "RUN" and "pip install" in rest]
    assert all("--require-hashes" in rest or "--no-deps" in rest for rest in installs)
    assert "--require-hashes -r" in text
    assert "requirements.lock" in text


def test_a_job_finds_job_server_and_workers_where_they_listen() -> None:
    given = words(SERVICES["stream"])
    options = dict(pairwise(given))
    assert options["--job_endpoint"] == f"{node.SERVER}:{node.JOB}"
    # Beside its task manager, which tells workers an address on loopback.
    assert options["--environment_config"] == f"127.0.0.1:{node.POOL}"
    slots = str(parsed("taskmanager").slots)
    assert options["--parallelism"] == slots
    assert f"--max_parallelism={flink_settings.MAX_PARALLELISM}" in FLINK
    assert set(node.ROLES) <= set(SERVICES)
    for name in node.ROLES:
        assert parsed(name).command == name


def test_a_job_is_watched_at_flink_and_workers_find_its_folder() -> None:
    given = parsed("stream")
    assert not given.detach
    assert given.flink == parsed("exporter").flink == f"http://{node.MANAGER}:{node.REST}"
    shared = [
        {source for source, target in mounts(SERVICES[name]) if given.state.is_relative_to(target)}
        for name in ("stream", "taskmanager")
    ]
    assert shared[0] == shared[1] != set()
    assert shared[0] <= set(COMPOSE["volumes"])
