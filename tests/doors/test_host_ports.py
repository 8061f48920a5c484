"""A server on the person's own loopback, as programs in a sandbox reach it: by name through the
proxy, and at a port of the sandbox's for programs that know no proxy."""

import json
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.doors.conftest import Door, no_bug
from tests.doors.test_home import GRANTED
from tests.scenarios.process import until

NAME = "host.gatehouse.internal"


@contextmanager
def serving() -> Iterator[tuple[int, list[str]]]:
    """A web server on loopback: its port, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"hello\n")

        def log_message(self, *words: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port, asked
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def speaks_first() -> Iterator[int]:
    """A server that greets before its client says anything, as databases do; then it gives back
    what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.sendall(b"READY\n")
                    while data := client.recv(4096):
                        client.sendall(data.upper())

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


# A program that knows no proxy.
TALK = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30) as one:
    print(one.recv(100).decode().strip())
    one.sendall(b"select 1\\n")
    print(one.recv(100).decode().strip())
"""


def test_a_database_is_at_its_own_port_for_the_agent_and_its_commands(
    door: Door, speaks_first: int
) -> None:
    port = str(speaks_first)
    (door.workspace / "talk.py").write_text(TALK)
    command = ("--", "python3", "talk.py", port)
    done = door.run("run", "--workspace", "workspace", "--host-port", port, *command)
    assert done.returncode == 0, no_bug(done)
    assert "READY\nSELECT 1\n" in done.stdout
    # Without it there is nothing at that port.
    done = door.run("run", "--workspace", "workspace", *command)
    assert "Connection refused" in done.stderr + done.stdout


def test_a_rule_that_comes_later_opens_the_port_for_the_next_command(
    door: Door, speaks_first: int
) -> None:
    """Also where a sandbox waits for that command already."""
    (door.workspace / "talk.py").write_text(TALK)
    talk = f"granted 'python3 talk.py {speaks_first}'"
    wait = "while ! test -e /workspace/lower/go; do sleep 0.1; done"
    door.up()
    script = f"{GRANTED}granted true; {talk}; echo REFUSED; {wait}; {talk}; echo DONE"
    started = door.start("run", "--workspace", "workspace", "--", "bash", "-c", script)
    assert "Connection refused" in started.until_printed("REFUSED\n")
    rule = f"network({NAME}:{speaks_first})"
    assert door.run("rules", "add", "allow", rule).returncode == 0
    (door.workspace / "go").touch()
    assert "READY" in started.until_printed("DONE\n")


@pytest.fixture
def database() -> Iterator[int]:
    """PostgreSQL, which knows `me` without a password."""
    programs = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin"))), None)
    if programs is None or shutil.which("psql") is None:
        pytest.skip("there is no PostgreSQL here")
    folder = Path(tempfile.mkdtemp(prefix="gatehouse-pg-"))
    own: dict[str, Any] = {"user": "postgres"} if folder.owner() == "root" else {}
    if own:
        try:
            shutil.chown(folder, "postgres")
        except LookupError:
            pytest.skip("there is no user for PostgreSQL here")
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    data = str(folder / "data")
    made = (programs / "initdb", "-D", data, "-A", "trust", "-U", "me", "--no-sync")
    subprocess.run(made, cwd=folder, check=True, capture_output=True, **own)
    where = ("-p", str(port), "-h", "127.0.0.1", "-k", str(folder))
    server = subprocess.Popen(
        (programs / "postgres", "-D", data, *where), cwd=folder, stderr=subprocess.DEVNULL, **own
    )
    ready = ("psql", "-h", "127.0.0.1", "-p", str(port), "-U", "me", "-c", "select 1", "postgres")
    until(
        lambda: subprocess.run(ready, capture_output=True, check=False).returncode == 0,
        "PostgreSQL",
    )
    yield port
    server.send_signal(signal.SIGQUIT)
    server.wait(30)
    shutil.rmtree(folder)


@pytest.mark.many
def test_psql_speaks_with_the_person_s_database(door: Door, database: int) -> None:
    words = (
        "psql",
        "-h",
        "127.0.0.1",
        "-p",
        str(database),
        "-U",
        "me",
        "-Atc",
        "select 6 * 7",
        "postgres",
    )
    done = door.run("run", "--workspace", "workspace", "--host-port", str(database), "--", *words)
    assert (done.returncode, "42\n" in done.stdout) == (0, True), no_bug(done)


def test_a_port_that_is_the_sandbox_s_own_is_refused(door: Door) -> None:
    done = door.run("run", "--workspace", "workspace", "--host-port", "3128", "--", "true")
    assert done.returncode == 1
    assert "a sandbox can't listen at port 3128" in done.stderr


def test_a_web_server_is_asked_by_its_name_and_a_rule_needs_name_and_port(door: Door) -> None:
    with serving() as (port, asked):
        get = ("curl", "-sS", "--max-time", "60", f"http://{NAME}:{port}/page")
        door.up()
        for wide in (f"network(127.0.0.1:{port})", f"network(*.gatehouse.internal:{port})"):
            assert door.run("rules", "add", "allow", wide).returncode == 0
        started = door.start("run", "--workspace", "workspace", "--", *get)
        until(lambda: door.http("GET", "/api/requests")[1], "the question")
        (waiting,) = door.http("GET", "/api/requests")[1]
        assert f"{NAME}:{port}" in json.dumps(waiting)
        assert asked == []
        assert door.run("approve", waiting["id"]).returncode == 0
        assert started.ended() == 0, started.printed
        assert "hello" in started.printed
        assert asked == ["/page"]
        # Never our own: nobody is asked, whatever the rules say.
        own = json.loads((door.data / "supervisor.json").read_text())["port"]
        get = ("curl", "-sS", f"http://{NAME}:{own}/")
        done = door.run("run", "--workspace", "workspace", "--", *get)
        assert "is Gatehouse itself" in done.stdout + done.stderr
        assert door.run("rules", "add", "allow", f"network({NAME}:{own})").returncode == 0
        done = door.run("run", "--workspace", "workspace", "--", *get)
        assert "is Gatehouse itself" in done.stdout + done.stderr
