"""The Kubernetes manifests: as their schemas want them, with commands that the program takes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from programs import needed

from deploy.images import node
from sotto.plan.durations import parse_duration
from sotto_cli import _parsed

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
DOCUMENTS = [
    pytest.param(document, id=f"{path.stem}-{document['kind']}-{document['metadata']['name']}")
    for path in sorted(FOLDER.glob("base/[!k]*.yaml"))
    for document in yaml.safe_load_all(path.read_text(encoding="utf-8"))
]
#: The version of Kubernetes whose schemas are asked.
VERSION = "1.31"


@cache
def built(overlay: str) -> list[dict[str, Any]]:
    """Return what an overlay comes to."""
    command = [needed("kubectl"), "kustomize", str(FOLDER / overlay)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return list(yaml.safe_load_all(made))


def pods(documents: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield the workloads, and the pod of each."""
    for each in documents:
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield each, each["spec"]["template"]["spec"]


def base() -> list[dict[str, Any]]:
    return [each.values[0] for each in DOCUMENTS]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_a_document_is_as_its_schema_wants_it(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, VERSION, strict=True)


def test_the_base_lists_all_that_there_is() -> None:
    listed = yaml.safe_load((FOLDER / "base" / "kustomization.yaml").read_text("utf-8"))
    files = {path.name for path in (FOLDER / "base").glob("*.yaml")}
    assert {*listed["resources"], "kustomization.yaml"} == files


def check(documents: list[dict[str, Any]]) -> None:
    """Check what holds of every deployment: commands, users, file systems, what is mounted."""
    kinds = {each["kind"] for each in documents}
    assert "Secret" not in kinds, "secrets are made by whoever deploys"
    for workload, pod in pods(documents):
        security = pod["securityContext"]
        assert security["runAsNonRoot"]
        assert security["runAsUser"] == 10001, "as the image's user"
        assert security["seccompProfile"]["type"] == "RuntimeDefault"
        assert not pod["automountServiceAccountToken"]
        claims = workload["spec"].get("volumeClaimTemplates", [])
        volumes = {each["name"] for each in pod["volumes"]}
        volumes |= {each["metadata"]["name"] for each in claims}
        mounted = set()
        for container in pod["containers"]:
            mine = container["securityContext"]
            assert mine["readOnlyRootFilesystem"]
            assert not mine["allowPrivilegeEscalation"]
            assert mine["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]
            assert container["resources"]["requests"]["cpu"]
            assert container["image"].partition(":")[0] in ("sotto", "sotto-flink")
            check_command(container)
            paths = [each["mountPath"] for each in container["volumeMounts"]]
            assert "/tmp" in paths, "Beam writes there, and nothing else can be written"
            for word in container["args"]:
                _, _, path = word.partition("=")
                if path.startswith("/"):
                    assert any(path.startswith(each) for each in paths), word
            mounted |= {each["name"] for each in container["volumeMounts"]}
        assert mounted == volumes


def check_command(container: dict[str, Any]) -> None:
    """Check that the command parses, and that probes ask where it listens."""
    program, *given = container["args"]
    if program == "deploy.images.node":
        assert node.parser().parse_args(given).command == container["name"]
        return
    if program == "deploy.images.job":
        check_stream(given)
        return
    parsed = _parsed(container["args"])
    assert parsed.command == container["args"][0]
    assert not getattr(parsed, "beam", [])
    ports = {each["name"]: each["containerPort"] for each in container.get("ports", [])}
    if parsed.command in ("aggregate", "sink"):
        assert parsed.follow
        assert not ports
        if getattr(parsed, "log", None) is not None:
            assert parsed.log_retention >= parse_duration("30d")
        return
    assert list(ports.values()) == [parsed.port]
    assert parsed.listen == "0.0.0.0"
    assert getattr(parsed, "behind_proxy", parsed.command == "exporter")
    for probe in ("readinessProbe", "livenessProbe"):
        asks = container[probe]
        known = {"collect": "/healthz", "exporter": "/metrics", "serve": "/healthz"}
        assert asks["httpGet"]["path"] == known[parsed.command]
        assert asks["httpGet"]["port"] in ports
    if parsed.command in ("exporter", "serve"):
        # They say what is not counted yet, and write nothing but the alerts that pages find.
        assert parsed.log or parsed.topic
        states = [m for m in container["volumeMounts"] if m["mountPath"] == "/var/lib/sotto"]
        assert len(states) == bool(parsed.state)
        written = {m["mountPath"] for m in container["volumeMounts"] if not m.get("readOnly")}
        kept = {str(parsed.kept.parent)} if parsed.command == "serve" else set()
        assert written == {"/tmp"} | kept
        # Boards are of a ConfigMap that need not be there.
        given = {str(parsed.boards.parent)} if parsed.command == "serve" else set()
        assert given <= {m["mountPath"] for m in container["volumeMounts"] if m.get("readOnly")}
        assert kept <= {str(getattr(parsed, "notes", Path()).parent)}
        # All figures are watched, and the exporter reads what pages find.
        assert parsed.alerts is False or parsed.alerts[0].match("alerts/alerts.json")


def check_stream(given: list[str]) -> None:
    parsed = _parsed(["stream", *given])
    assert parsed.flink == f"http://{node.MANAGER}:{node.REST}"
    assert parsed.state.is_relative_to(node.SHARED)
    assert f"--job_endpoint={node.SERVER}:{node.JOB}" in parsed.beam
    assert f"--environment_config=127.0.0.1:{node.POOL}" in parsed.beam
    assert not parsed.detach


def test_the_base_is_safe_and_its_commands_are_the_program_s() -> None:
    check(base())


@pytest.mark.slow
@pytest.mark.parametrize("overlay", ["base", "small", "stream"])
def test_an_overlay_is_built_and_is_as_good(overlay: str) -> None:
    documents = built(overlay)
    for document in documents:
        kubernetes_validate.validate(document, VERSION, strict=True)
        if document["kind"] != "Namespace":
            assert document["metadata"]["namespace"] == "sotto"
    check(documents)
    labels = [each["spec"]["template"]["metadata"]["labels"] for each, _ in pods(documents)]
    for each in documents:
        spec = each.get("spec", {})
        wanted = None
        if each["kind"] == "Service":
            wanted = spec["selector"]
        elif each["kind"] == "PodDisruptionBudget":
            wanted = spec["selector"]["matchLabels"]
        elif each["kind"] == "NetworkPolicy":
            wanted = spec["podSelector"].get("matchLabels", {})
        if wanted is not None:
            assert any(wanted.items() <= found.items() for found in labels), each["metadata"]
    small = overlay == "small"
    assert len(labels) == {"small": 1, "base": 2, "stream": 6}[overlay]
    rendered = yaml.safe_dump_all(documents)
    for gone in ("postgres", "--broker", "PGPASSWORD"):
        assert (gone in rendered) != small


def open_ports(documents: list[dict[str, Any]]) -> set[int]:
    """Return the ports that policies let others reach."""
    return {
        port["port"]
        for each in documents
        if each["kind"] == "NetworkPolicy"
        for rule in each["spec"].get("ingress", [])
        for port in rule["ports"]
    }


def test_policies_open_the_ports_that_there_are_and_nothing_by_default() -> None:
    documents = base()
    listening = {
        port["containerPort"]
        for _, pod in pods(documents)
        for container in pod["containers"]
        for port in container.get("ports", [])
    }
    assert open_ports(documents) == listening
    (everything,) = (
        each
        for each in documents
        if each["kind"] == "NetworkPolicy" and each["metadata"]["name"] == "nothing"
    )
    assert everything["spec"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
