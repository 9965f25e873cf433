"""The collector as a process: what it keeps and prints, whom it cuts off, how it ends."""

from __future__ import annotations

import json
import resource
import signal
import socket
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from live_collector import (
    NO_MIDNIGHT,
    PATIENCE,
    PLAN,
    LiveCollector,
    body,
    message,
    received,
    request,
)
from waiting import wait_until

from pipelines.collector.keys import drop_key, new_key
from sotto.wire.format import decode_message
from sotto_cli import main

pytestmark = [pytest.mark.slow, pytest.mark.real_randomness]

CANARY = "c4n4ry"
#: An address of loopback too, whose text is in no other address.
ADDRESS = "127.77.66.55"


@pytest.fixture(scope="module")
def collector(tmp_path_factory):
    with LiveCollector(tmp_path_factory.mktemp("collector")) as collector:
        yield collector


@pytest.fixture(scope="module")
def impatient(tmp_path_factory):
    prelude = """
from functools import partial
from pipelines.collector import limits
from pipelines.http import server; server._IDLE = 1
limits.Limits = partial(limits.Limits, body_seconds=0.6, body_bytes=100_000, connections=8)
"""
    with LiveCollector(tmp_path_factory.mktemp("impatient"), prelude=prelude) as collector:
        yield collector


def hostile(canary: str) -> list[bytes]:
    """Requests with a canary in every place that is not a message."""
    marked = [f"{name}: {canary}" for name in ("Cookie", "User-Agent", "X-Forwarded-For", canary)]
    head = f"POST /v1/reports?a={canary} HTTP/1.1\r\nHost: a\r\n"
    sound = body()
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: " + canary)
    return [
        request(
            sound, *marked, f"Authorization: Bearer {canary}", target=f"/v1/reports?b={canary}"
        ),
        request(sound, *marked, f"Origin: https://{canary}.example", f"Referer: {canary}"),
        request(sound, *marked, *upgrade),
        request(sound, f"Content-Type: {canary}", "Connection: close"),
        request(sound, f"Expect: {canary}", "Connection: close"),
        request(sound, f"{canary}"),
        request(sound, "Content-Length: 5", *marked),
        request(sound + canary.encode(), *marked),
        request(b"", *marked, target=f"/{canary}"),
        request(sound, *marked, target=f"/v1/plans/{canary}%0a{canary}"),
        f"GET /v1/plans/{canary}\xff HTTP/1.1\r\n\r\n".encode("latin-1"),
        f"{canary} /v1/reports HTTP/1.1\r\n\r\n".encode(),
        f"OPTIONS * HTTP/1.1\r\nOrigin: {canary}\r\n\r\n".encode(),
        f"OPTIONS /{canary} HTTP/1.1\r\nOrigin: {canary}\r\n"
        "Access-Control-Request-Method: POST\r\n\r\n".encode(),
        f"CONNECT {canary}:443 HTTP/1.1\r\n\r\n".encode(),
        f"GET http://[{canary}/ HTTP/1.1\r\n\r\n".encode(),
        f"{head}Transfer-Encoding: chunked\r\n\r\n{canary}\r\n".encode(),
        f"{head}Transfer-Encoding: {canary}\r\nContent-Length: 3\r\n\r\nabc".encode(),
        f"{head}Content-Length: {canary}\r\n\r\n".encode(),
        f"{head}Content-Length: 1000\r\n\r\n{canary}".encode(),
        f"{head}X: {canary}\0\r\n\r\n".encode(),
        f"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n{canary}".encode(),
        b"\x16\x03\x01" + canary.encode(),
        canary.encode() * 20_000,
        request(sound, *marked) * 3,
    ]


def test_nothing_of_a_request_but_its_messages_is_printed_or_stored(tmp_path):
    with LiveCollector(tmp_path, prelude=NO_MIDNIGHT) as collector:
        for each in hostile(CANARY):
            with collector.connect(ADDRESS) as connection:
                # The others are answered, or not, and wait for more.
                connection.settimeout(60 if b"Connection: close" in each else 0.3)
                with suppress(TimeoutError):
                    connection.sendall(each)
                    received(connection)
        wait_until(lambda: not connections_of(collector.port))
        # A disk that is full: what is printed then says nothing of a request either.
        size = max(path.stat().st_size for path in collector.log.rglob("*.seg"))
        limit = resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, (size, -1))
        assert collector.post(body(), f"Cookie: {CANARY}") == 503
        resource.prlimit(collector.process.pid, resource.RLIMIT_FSIZE, limit)
        stored = wait_until(lambda: len(collector.records()) >= 4 and collector.records())
        assert all(decode_message(each.body).fingerprint == PLAN.fingerprint for each in stored)
        assert collector.stop() == 0
        printed = collector.output().splitlines()
        # Nothing, that is, beside where it listens and that the disk was full.
        assert len(printed) == 2, printed
        assert "refused: a record was not written: File too large" in printed[1]
        for text in (CANARY, ADDRESS, socket.inet_aton(ADDRESS).decode("latin-1")):
            for path in (path for path in tmp_path.rglob("*") if path.is_file()):
                assert text.encode("latin-1") not in path.read_bytes(), path
                assert text not in str(path)


def connections_of(port: int) -> int:
    """Return how many connections to a port are open at its end."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    # Established, or closed at the other end alone.
    return sum(row[1].endswith(f":{port:04X}") and row[3] in ("01", "08") for row in rows)


def test_what_is_stored_has_no_time_finer_than_a_second(tmp_path):
    with LiveCollector(tmp_path, prelude=NO_MIDNIGHT) as collector:
        sent = [message() for _ in range(20)]
        for each in sent:
            assert collector.post(body(each)) == 204
        assert collector.post(body(*sent[:5])) == 204
        found = collector.records()
        assert sorted(each.body for each in found) == sorted(sent + sent[:5])
        assert {each.append % 1000 for each in found} == {0}
        # The partition's name is the collector's, and says nothing of who sent.
        names = {str(path.relative_to(collector.log)) for path in collector.log.rglob("*")}
        assert names == {"collector", "collector/lock", f"collector/{0:020d}.seg"}


def cut_off(connection: socket.socket, part: bytes, pause: float) -> int:
    """Send a part over and over until the connection breaks; return how often."""
    begin, sent = time.monotonic(), 0
    while time.monotonic() < begin + 300:
        try:
            connection.sendall(part)
        except ConnectionError:
            return sent
        sent += 1
        time.sleep(pause)
    raise AssertionError("it is not cut off")


def test_a_trickling_body_is_answered_and_cut_off(impatient):
    with impatient.connect() as connection:
        connection.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n")
        stopped = threading.Event()

        def trickle() -> None:
            while not stopped.wait(0.1):
                try:
                    connection.sendall(b"a")
                except OSError:
                    return

        thread = threading.Thread(target=trickle)
        thread.start()
        try:
            assert received(connection).startswith(b"HTTP/1.1 408 ")
        finally:
            stopped.set()
            thread.join()


def test_an_endless_head_is_cut_off_for_its_length(collector):
    with collector.connect() as connection:
        connection.sendall(b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nX: ")
        # every draw: parts of 64 KiB, beside what is in buffers.
        assert cut_off(connection, b"a" * 65536, 0) < 500


@pytest.mark.parametrize(
    ("begin", "part"),
    [(b"0\r\nX: ", b"a" * 65536), (b"0\r\n", b"X: 1\r\n" * 10_000), (b"5;a=", b"a" * 65536)],
    ids=["trailer", "trailers", "extension"],
)
def test_what_is_around_chunks_is_cut_off_for_its_length(collector, begin, part):
    """The parser keeps the fields after the last chunk, and copies them for each part."""
    with collector.connect() as connection:
        head = b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head + begin)
        # every draw: parts of 64 KiB, beside what is in buffers.
        assert cut_off(connection, part, 0) < 500


@pytest.mark.parametrize("size", [60_000, 100_000])
def test_a_head_that_comes_at_once_is_refused_for_its_length(collector, size):
    statuses = (b" 204 ", b" 200 ") if size < 65_536 else (b" 431 ", b" 431 ")
    found = collector.ask(request(body(), "X: " + "a" * size, "Connection: close"))
    assert found[8:13] == statuses[0]
    assert collector.ask(get("/healthz?" + "a" * size))[8:13] == statuses[1]


def test_many_fields_that_are_read_are_refused_and_others_are_no_matter(collector):
    fields = [f"Origin: {each}" for each in range(33)]
    assert collector.post(body(), *fields[:30]) == 204
    assert collector.post(body(), *fields) == 431
    assert collector.post(body(), *(f"X-{each}: {each}" for each in range(1000))) == 204


def test_large_bodies_that_never_end_lock_nobody_out(tmp_path):
    with LiveCollector(tmp_path) as collector, ExitStack() as held:
        part = b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nContent-Length: 4194304\r\n\r\n" + bytes(
            4_194_303
        )
        for _ in range(20):
            connection = held.enter_context(collector.connect())
            # One that gives way is answered before it is sent whole.
            with suppress(ConnectionError):
                connection.sendall(part)
            assert collector.post(body()) == 204
            assert collector.post(body(*(message() for _ in range(500)))) == 204


@pytest.mark.parametrize(("connections", "files"), [(20, 256), (2000, 84)])
def test_many_bodies_that_never_end_lock_nobody_out(tmp_path, connections, files):
    few = f"""
import functools, resource
from pipelines.collector import limits
limits.Limits = functools.partial(limits.Limits, connections={connections}, body_seconds=600)
resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))
"""
    with LiveCollector(tmp_path, prelude=few) as collector, ExitStack() as held:
        for _ in range(40):
            held.enter_context(collector.connect()).sendall(request(bytes(9))[:-1])
            assert collector.post(body()) == 204


def test_what_is_stored_is_for_its_owner_and_group_alone(collector):
    collector.post(body())
    paths = [collector.log, *collector.log.rglob("*")]
    assert {path.stat().st_mode & 0o007 for path in paths} == {0}


def test_bodies_in_chunks_of_any_size_are_taken(collector):
    whole = body(*(message() for _ in range(2000)))
    for size in (3, 1000, len(whole)):
        parts = [whole[at : at + size] for at in range(0, len(whole), size)]
        chunks = b"".join(b"%x;a=b\r\n%b\r\n" % (len(each), each) for each in parts)
        head = b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n"
        sent = head + b"Connection: close\r\n\r\n" + chunks + b"0\r\nX: 1\r\n\r\n"
        assert collector.ask(sent).startswith(b"HTTP/1.1 204 "), size


def test_a_body_of_two_lengths_ends_the_connection(collector):
    lengths = "Content-Length: 4\r\nTransfer-Encoding: chunked"
    head = f"POST /v1/reports HTTP/1.1\r\nHost: a\r\n{lengths}\r\n\r\n".encode()
    found = collector.ask(head + b"0\r\n\r\n" + get("/healthz"))
    assert found.startswith(b"HTTP/1.1 400 ")
    assert found.count(b"HTTP/1.1") == 1


def test_an_endless_body_is_refused_and_cut_off(impatient):
    with impatient.connect() as connection:
        connection.sendall(
            b"POST /v1/reports HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n"
        )
        assert connection.recv(100).startswith(b"HTTP/1.1 413 ")
        cut_off(connection, b"a" * 65536, 0.01)


def test_a_connection_lives_for_many_requests_and_ends_when_idle(collector, impatient):
    with collector.connect() as connection:
        for _ in range(20):
            connection.sendall(request(body()))
            assert connection.recv(1000).startswith(b"HTTP/1.1 204 ")
    # Unless it was cut off before, since this process had to wait amid a request.
    wait_until(lambda: impatient.ask(request(body())).startswith(b"HTTP/1.1 204 "))
    with impatient.connect() as connection:
        connection.sendall(b"POST /v1/reports HTTP/1.1\r\nHo")
        assert received(connection) == b""


def test_more_connections_than_there_may_be_are_answered(impatient):
    def answer() -> bytes:
        with ExitStack() as held:
            for _ in range(8):
                held.enter_context(impatient.connect())
            return impatient.ask(request(body()))

    # Unless the others were cut off before.
    found = wait_until(answer)
    assert found.startswith(b"HTTP/1.1 503 ")
    assert wait_until(lambda: b" 204 " in impatient.ask(request(body(), "Connection: close")))


def test_what_was_taken_is_answered_before_it_ends(tmp_path):
    prelude = """
from pipelines.collector.commits import GroupCommit
write = GroupCommit.write
def noted(self, messages):
    print("taken", flush=True)
    return write(self, messages)
GroupCommit.write = noted
"""
    with LiveCollector(tmp_path, "--hold", "2", prelude=prelude) as collector:
        with collector.connect() as connection, collector.connect() as idle:
            connection.sendall(request(body()))
            wait_until(lambda: "taken" in collector.output())
            collector.process.send_signal(signal.SIGTERM)
            assert received(connection).startswith(b"HTTP/1.1 204 ")
            assert received(idle) == b""
        assert collector.process.wait(PATIENCE) == 0
        assert len(collector.records()) == 1
        assert collector.output().count("\n") == 2


def test_a_full_disk_is_a_503_until_there_is_room(tmp_path):
    with LiveCollector(tmp_path, "--listen", "localhost", prelude=NO_MIDNIGHT) as collector:
        assert collector.url == f"http://localhost:{collector.port}"
        assert collector.post(body()) == 204
        (segment,) = collector.log.rglob("*.seg")
        # In the middle of the next record.
        full = segment.stat().st_size + 10
        pid = collector.process.pid
        limit = resource.prlimit(pid, resource.RLIMIT_FSIZE, (full, -1))
        answer = collector.ask(request(body(), "Connection: close"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 60" in answer
        # Others are refused without a try, and soon one is made again.
        assert collector.post(body()) == 503
        time.sleep(1.2)
        assert collector.post(body()) == 503
        resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)
        kept = message()
        wait_until(lambda: collector.post(body(kept)) == 204)
        records = collector.records()
        assert len(records) == 2
        assert records[-1].body == kept
        assert collector.stop() == 0
        assert [line.partition(": ")[2] for line in collector.output().splitlines()[1:]] == [
            "warning: messages are refused: a record was not written: File too large",
            "warning: messages are taken again",
        ]


def test_keys_and_plans_are_read_again(tmp_path):
    keys, folder = tmp_path / "keys.json", tmp_path / "plans"
    folder.mkdir()
    first = new_key(keys, "app")
    options = "--keys", str(keys), "--plans", str(folder)
    prelude = "from pipelines.http import server; server.LOOK = 0.1"
    with LiveCollector(tmp_path, *options, prelude=prelude) as collector:

        def status(key: str, content: bytes | None = None) -> int:
            return collector.post(content or body(), f"Authorization: Bearer {key}")

        assert status(first) == 204
        second = new_key(keys, "app")
        wait_until(lambda: status(second) == 204)
        drop_key(keys, first)
        wait_until(lambda: status(first) == 401)
        good = keys.read_text()
        keys.write_text(good[:20])
        wait_until(lambda: "the keys that were read before hold" in collector.output())
        assert status(second) == 204
        keys.write_text(good)

        later = json.loads(PLAN.to_json()) | {"version": PLAN.version + 1}
        text = json.dumps(later, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        put(folder / "later.json", text)
        wait_until(lambda: b'"version":2' in collector.ask(get("/v1/plans/fleet.example")))
        put(folder / "wrong.json", text[:50])
        wait_until(lambda: "wrong.json is left out" in collector.output())
        time.sleep(1.5)
        assert collector.output().count("\n") == 3


def put(path: Path, text: str) -> None:
    """Write a file that nobody finds before it is whole."""
    written = path.with_suffix(".new")
    written.write_text(text)
    written.replace(path)


def get(target: str) -> bytes:
    return f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


def test_what_stands_in_the_way_of_starting_is_said(collector, tmp_path, capsys):
    plan = tmp_path / "plan.json"
    plan.write_bytes(PLAN.to_json())
    given = ["collect", "--plan", str(plan)]

    def failed(*options: str) -> str:
        assert main([*given, *options]) == 2
        return capsys.readouterr().err

    log = ("--log", str(tmp_path / "log"))
    assert failed(*log, "--port", str(collector.port)) == (
        f"sotto: error: --listen 127.0.0.1 --port {collector.port}: Address already in use\n"
    )
    held = failed("--log", str(collector.log), "--port", "0")
    assert held == "sotto: error: partition 'collector' is in use: give another name\n"
    assert "give --behind-proxy" in failed(*log, "--listen", "0.0.0.0")
    assert not (tmp_path / "log").exists()
