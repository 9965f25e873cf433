"""The small deployment: natively, behind a real Caddy, and the commands of its compose file."""

from __future__ import annotations

import http.client
import os
import re
import shlex
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from compose_files import SMALL
from live_collector import received
from local_server import Answer, LocalServer
from programs import needed
from serving import PATIENCE, caddy, counted, running, served, status, trusted, wait_until

from clientsdk.publishers.http import HttpPublisher
from clientsdk.testing import FakeClock
from deploy import serve
from deploy.errors import MissingToolError
from deploy.ports import HOST, free_ports
from examples.compose.__main__ import PLAN, send
from pipelines.storage.directory import StateDirectory
from sotto.plan.compile import load_plan
from sotto_cli import _parsed

SERVICES = SMALL.services
DEVICES = 30


def report(publisher: HttpPublisher) -> int:
    """Let devices report to a collector; return how many values each metric has got."""
    clock = FakeClock(time.time_ns() // 1_000_000 - 120_000)
    plan = load_plan(PLAN).compile()
    send(plan, publisher, DEVICES, clock, lambda seconds: clock.advance(ms=int(seconds * 1000)))
    publisher.close()
    return DEVICES


def text_of(url: str) -> str:
    """Return a page, empty if there is none yet."""
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def children(pid: int) -> dict[str, int]:
    """Return the process ids of what is run, by subcommand, once all three of it are."""

    def found() -> dict[str, int]:
        listed = ["ps", "-o", "pid=,args=", "--ppid", str(pid)]
        said = subprocess.run(listed, capture_output=True, text=True, check=False).stdout
        words = [line.split() for line in said.splitlines()]
        # Amid its start a child has the command line of the parent.
        started = [each for each in words if "sotto" in each]
        return {each[each.index("sotto") + 1]: int(each[0]) for each in started}

    wait_until(lambda: len(found()) == 3)
    return found()


@pytest.mark.real_randomness
@pytest.mark.slow
def test_reports_come_to_estimates_whatever_is_killed_and_an_interrupt_ends_all(
    tmp_path: Path,
) -> None:
    with served(tmp_path, PLAN) as (process, url):
        before = children(process.pid)
        assert set(before) == {"collect", "aggregate", "serve"}
        assert "warning" not in (tmp_path / "serve.log").read_text("utf-8")
        for pid in before.values():
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not set(children(process.pid).values()) & set(before.values()))
        wait_until(lambda: status(int(url.rpartition(":")[2])) == 200)
        sent = report(HttpPublisher(url, timeout=300))
        wait_until(lambda: counted(tmp_path / "build/serve/state") == [sent] * 3)
        page = page_of(tmp_path)
        wait_until(lambda: "Nothing is wrong with the job" in text_of(f"{page}health"))
        wait_until(lambda: "No figure can be judged yet" in text_of(f"{page}alerts"))
        note = b'{"at": "2026-01-01", "text": "Release 1"}'
        kind = {"content-type": "application/json"}
        asked = urllib.request.Request(f"{page}api/v1/notes", note, kind)
        with urllib.request.urlopen(asked, timeout=60) as told:
            assert told.status == 201
        assert "Release 1" in (tmp_path / "build/serve/notes.yaml").read_text("utf-8")
        started = children(process.pid)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    assert not [pid for pid in started.values() if Path(f"/proc/{pid}").exists()]
    said = (tmp_path / "serve.log").read_text("utf-8")
    for name in before:
        assert f"sotto {name} has ended with status -9: it is started again" in said
    assert f"reports go to  {url} , from this machine\n" in said
    assert "Traceback" not in said
    assert (tmp_path / "build/serve").stat().st_mode & 0o077 == 0


def page_of(folder: Path) -> str:
    """Return the address of the page that ``make serve`` has printed."""
    said = (folder / "serve.log").read_text("utf-8")
    return re.findall(r"^results +(\S+) , on this machine$", said, re.MULTILINE)[0]


def ports() -> list[str]:
    """Return options that name free ports."""
    port, page = map(str, free_ports(2))
    return ["--port", port, "--page-port", page]


def test_what_is_missing_is_said_before_anything_starts(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert serve.main(["--plan", "no.yaml", *ports()]) == 2
    assert "--plan no.yaml: there is no such file or folder" in capsys.readouterr().err
    (tmp_path / "empty").mkdir()
    (tmp_path / "wrong.yaml").write_text("hello: 1")
    for wrong, said in (("empty", "there is no plan yet"), ("wrong.yaml", "collector is missing")):
        assert serve.main(["--plan", wrong, *ports()]) == 2
        told = capsys.readouterr()
        assert f"serve: error: --plan {wrong}: " in told.err
        assert said in told.err
        assert not told.out
        assert not (tmp_path / "build").exists()
    plan = load_plan(PLAN).compile()
    (tmp_path / "build/serve/state/plans").mkdir(parents=True)
    StateDirectory(tmp_path / "build/serve/state").plans.keep([plan], {})
    (tmp_path / "changed.yaml").write_text(PLAN.read_text().replace("collector: ", "collector: x"))
    assert serve.main(["--plan", "changed.yaml", *ports()]) == 2
    assert "changed.yaml: " in capsys.readouterr().err
    monkeypatch.setattr(serve.shutil, "which", lambda name: None)
    arguments = ["--plan", str(PLAN), "--site", "x.example", *ports()]
    with pytest.raises(MissingToolError, match="apt-get install caddy"):
        serve.prepare(serve.parser().parse_args(arguments))
    with ThreadingHTTPServer((HOST, 0), BaseHTTPRequestHandler) as taken:
        assert serve.main(["--plan", str(PLAN), "--port", str(taken.server_port)]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_a_site_is_served_by_caddy_and_keys_are_asked_for_where_there_are_some(
    tmp_path, monkeypatch
) -> None:
    for name in ("SOTTO_SITE", "SOTTO_COLLECTOR", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr(serve.shutil, "which", lambda name: f"/bin/{name}")
    given = ports()
    port = given[1]
    arguments = ["--plan", str(PLAN.parent), "--data", str(tmp_path), *given]
    args = serve.parser().parse_args([*arguments, "--site", "t.example"])
    programs, said = serve.prepare(args)
    assert programs["caddy"] == ["/bin/caddy", "run", "--config", str(serve.CADDYFILE)]
    assert os.environ["SOTTO_SITE"] == "t.example"
    assert os.environ["SOTTO_COLLECTOR"] == f"{HOST}:{port}"
    assert "reports go to  https://t.example , " in said
    collect = _parsed(programs["sotto collect"][3:])
    page = _parsed(programs["sotto serve"][3:])
    assert (page.state, page.log, page.listen) == (tmp_path / "state", collect.log, HOST)
    assert (collect.keys, collect.listen) == (None, HOST)
    assert collect.plans == PLAN.parent
    (tmp_path / "apps.json").write_text("{}")
    programs, _ = serve.prepare(args)
    assert _parsed(programs["sotto collect"][3:]).keys == tmp_path / "apps.json"


@contextmanager
def proxy(
    folder: Path, upstream: int, config: Path = serve.CADDYFILE
) -> Iterator[tuple[str, ssl.SSLContext]]:
    """Run Caddy with the shipped configuration; yield its URL and what trusts it."""
    (port,) = free_ports(1)
    said = SERVICES["caddy"]["environment"]
    site = f"{said['SOTTO_SITE']}:{port}"
    collector = said["SOTTO_COLLECTOR"].replace("collect:8470", f"{HOST}:{upstream}")
    with caddy(folder, config, SOTTO_SITE=site, SOTTO_COLLECTOR=collector):
        yield f"https://localhost:{port}", trusted(folder, port)


@pytest.mark.real_randomness
@pytest.mark.slow
def test_a_proxy_hands_on_nothing_that_says_who_sends_and_logs_no_request(tmp_path: Path) -> None:
    needed("caddy")
    planted = ("Cookie", "User-Agent", "Referer", "X-Forwarded-For", "X-Real-IP", "Forwarded")
    planted += ("Accept-Language", "X-Secret", "Sec-CH-UA", "DNT", "Via", "CF-Connecting-IP")
    kept = {"Authorization": "Bearer key", "Content-Type": "a/b", "Origin": "https://app.example"}
    # A connection that were kept would be served after the server has ended.
    once = Answer(headers={"Connection": "close"})
    with LocalServer(once) as server, proxy(tmp_path, server.server_port) as (url, context):
        for _ in range(2):
            connection = http.client.HTTPSConnection(url.removeprefix("https://"), context=context)
            headers = {**dict.fromkeys(planted, "planted"), **kept}
            connection.request("POST", "/v1/reports?key=planted", b"body", headers)
            status = connection.getresponse().status
            connection.close()
            server.shutdown()
            server.server_close()
        # The second one finds nobody behind the proxy.
        assert status == 502
    (asked,) = (each for each in server.requests if each.method == "POST")
    got = {name.lower(): value for name, value in asked.headers.items() if value}
    wanted = {name.lower(): value for name, value in kept.items()}
    own = {"host": f"{HOST}:{server.server_port}", "content-length": "4"}
    extra = {"accept-encoding": "gzip"}
    assert got == wanted | own | extra
    log = (tmp_path / "caddy.log").read_text("utf-8")
    assert "planted" not in log
    assert HOST not in log


@pytest.mark.real_randomness
@pytest.mark.slow
def test_a_proxy_cuts_off_slow_heads_and_long_ones_and_speaks_tls_1_3_alone(tmp_path: Path) -> None:
    impatient = tmp_path / "Caddyfile"
    impatient.write_text(serve.CADDYFILE.read_text().replace("read_header 10s", "read_header 1s"))
    (nobody,) = free_ports(1)
    with proxy(tmp_path, nobody, impatient) as (url, context):
        place = HOST, int(url.rpartition(":")[2])

        def answer(sent: bytes) -> bytes:
            with context.wrap_socket(
                socket.create_connection(place, PATIENCE), server_hostname="localhost"
            ) as connection:
                connection.sendall(sent)
                return received(connection)

        begun = b"POST /v1/reports HTTP/1.1\r\nHost: localhost\r\n"
        # It ends, perhaps with status 400: nobody behind the proxy was asked, which were a 502.
        for slow in (b"", b"POST /v1/rep", begun):
            assert answer(slow)[9:12] in (b"", b"400")
        assert answer(begun + b"X: " + b"a" * 100_000).startswith(b"HTTP/1.1 431 ")
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match=r"(?i)protocol"):
            answer(b"")


@contextmanager
def contained(folder: Path, service: str, *more: str) -> Iterator[int]:
    """Run the command of a service with folders and a port of this machine; yield the port."""
    (port,) = free_ports(1)
    places = {
        "/plans": PLAN.parent,
        "/var/lib/(sotto|alerts)": folder,
        "/run/secrets": folder,
        "--listen 0.0.0.0": f"--port {port}",
    }
    words = [sys.executable, "-m", "sotto", *SMALL.command(service, places), *more]
    with running(words, folder / f"{service}.log"):
        yield port


@pytest.mark.real_randomness
@pytest.mark.slow
def test_the_commands_of_the_containers_come_to_pages_behind_caddy_for_who_has_the_token(
    tmp_path: Path,
) -> None:
    needed("caddy")
    token = "a-token-of-this-test-alone"
    (tmp_path / "token").write_text(token)
    # Devices are no pages, and send no origin.
    asking = "--origin", "https://app.example"
    with contained(tmp_path, "serve") as page, contained(tmp_path, "collect", *asking) as port:
        url = f"http://{HOST}:{page}"
        wait_until(lambda: status(page))
        wait_until(lambda: status(port) == 200)
        assert not text_of(url)
        asked = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})
        with pytest.raises(urllib.error.HTTPError) as waiting:
            urllib.request.urlopen(asked, timeout=30)
        assert waiting.value.code == 503
        with contained(tmp_path, "aggregate"), proxy(tmp_path, port) as (site, context):
            sent = report(HttpPublisher(site, context=context, timeout=300))
            wait_until(lambda: counted(tmp_path / "state") == [sent] * 3)
        with urllib.request.urlopen(asked, timeout=30) as answer:
            assert "theme" in answer.read().decode()
        wait_until((tmp_path / "alerts.json").exists)


def test_only_caddy_is_open_to_others_and_all_mean_the_same_places() -> None:
    assert {name for name, service in SERVICES.items() if "ports" in service} == {"caddy", "serve"}
    assert SERVICES["caddy"]["ports"] == ["443:443", "443:443/udp"]
    assert SERVICES["caddy"]["image"] == "caddy:2.10.2"
    collect, aggregate, serve = (
        _parsed(shlex.split(SERVICES[name]["command"]))
        for name in ("collect", "aggregate", "serve")
    )
    assert (serve.log, serve.state) == (aggregate.log, aggregate.state)
    assert SERVICES["caddy"]["environment"]["SOTTO_COLLECTOR"] == f"collect:{collect.port}"
    assert (collect.log, collect.plans) == (aggregate.log, aggregate.plans)
    assert aggregate.follow
    assert SERVICES["collect"]["volumes"] == SERVICES["aggregate"]["volumes"]
