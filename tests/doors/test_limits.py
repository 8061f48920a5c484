"""The settings and options that bound a session, or say what it may see: one that runs with another
value than the default does otherwise."""

import os
import subprocess
import threading
from collections.abc import Iterator

import pytest

from tests.doors.conftest import House
from tests.fakes.quiet_http import QuietHandler, QuietServer

pytestmark = [pytest.mark.timeout(300)]

STRICT = "version: 1\nmodes: {exec: contained, network: ask}\ndeny: ['exec(mytool *)']\n"


class _Hello(QuietHandler):
    def do_GET(self) -> None:
        self.respond(200, "text/plain", b"hello-body\n")


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that says hello."""
    with QuietServer(("127.0.0.1", 0), _Hello) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield int(server.server_address[1])
        server.shutdown()
        thread.join()


def ran(house: House, script: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`gatehouse run` beside `up`, to its end."""
    place = ("--workspace", str(house.workspace))
    return house.run("run", *place, *options, "--", "sh", "-c", script, **env)


def get(port: int) -> str:
    """A command that asks the server by way of egress: a sandbox has a loopback of its own."""
    return f'curl -s -m 60 --noproxy "" -x "$http_proxy" http://127.0.0.1:{port}/'


def test_what_a_session_may_use(house: House) -> None:
    house.up()
    done = ran(house, "while :; do :; done", GATEHOUSE_CPU="1s")
    assert "more than 1 s of CPU time" in done.stdout + done.stderr, done

    loud = "yes | head -c 3000000; echo THE-END"
    done = ran(house, loud, GATEHOUSE_OUTPUT_MB="1")
    assert len(done.stdout) < 1_200_000 < len(ran(house, loud).stdout)

    done = ran(
        house,
        "curl -s -o /dev/null -w 'code-%{http_code}' http://example.org/",
        GATEHOUSE_HOLD="1s",
    )
    assert "code-4" in done.stdout or "code-5" in done.stdout, done


@pytest.mark.many
def test_what_a_session_sees(house: House) -> None:
    (house.workspace / ".gitignore").write_text("own.env\n")
    (house.workspace / "own.env").write_text("of-mine\n")
    house.git("add", ".gitignore")
    house.git("commit", "-qm", "ignore")
    tools = house.folder / "tools/bin"
    tools.mkdir(parents=True)
    (tools / "mytool").write_text("#!/bin/sh\necho tool-ran\n")
    (tools / "mytool").chmod(0o755)
    strict = house.folder / "strict.yaml"
    strict.write_text(STRICT)
    house.up()

    assert "of-mine" not in ran(house, "cat own.env").stdout
    assert "of-mine" in ran(house, "cat own.env", "--include-ignored").stdout
    assert "of-mine" in ran(house, "cat own.env", GATEHOUSE_INCLUDE_IGNORED="yes").stdout

    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    assert "tool-ran" not in ran(house, "mytool", PATH=path).stdout
    bind = ("--bind", str(tools))
    assert "tool-ran" in ran(house, "mytool", *bind, PATH=path).stdout
    assert "tool-ran" in ran(house, "mytool", GATEHOUSE_BIND=str(tools), PATH=path).stdout

    under = (*bind, "--policy", str(strict))
    assert "tool-ran" in ran(house, "mytool", *under, PATH=path).stdout
    by_option = ran(house, "mytool", *under, "--exec-rules", "enforce", PATH=path)
    assert "tool-ran" not in by_option.stdout
    by_setting = ran(house, "mytool", *under, GATEHOUSE_EXEC_RULES="enforce", PATH=path)
    assert "tool-ran" not in by_setting.stdout

    assert "overlay" in ran(house, "mount; true", GATEHOUSE_COPY="overlay").stdout
    assert "overlay" not in ran(house, "mount; true").stdout
    past = "curl --noproxy '*' -s -m 9 -o /dev/null -w 'code-%{http_code}' http://169.254.169.254/"
    assert "code-000" in ran(house, past).stdout
    assert "code-4" in ran(house, past, GATEHOUSE_NETWORK="transparent").stdout


@pytest.mark.many
def test_bodies_are_kept_where_that_is_said(house: House, port: int) -> None:
    house.up()
    house.ok("rules", "add", "allow", f"network(GET http://127.0.0.1:{port}/**)")

    def body(*options: str, **env: str) -> str:
        started = house.start(
            "run", "--workspace", str(house.workspace), *options, "--", "sh", "-c",
            f"{get(port)}; sleep 60", **env,
        )  # fmt: skip
        started.until_printed("hello-body")
        session = house.sessions()[0]["id"]
        (one, *_) = house.until_told(
            lambda: house.http("GET", f"/api/sessions/{session}/network")[1]["exchanges"],
            "the exchange",
        )
        shown = house.page.get(f"/network/{session}/{one['number']}").text
        house.stop(session)
        return shown

    assert "hello-body" not in body()
    assert "hello-body" in body("--keep-bodies")
    assert "hello-body" in body(GATEHOUSE_KEEP_BODIES="yes")


@pytest.mark.many
def test_what_is_kept_of_sessions(house: House) -> None:
    house.up(GATEHOUSE_KEEP_LEFT="2s", GATEHOUSE_KEPT_COPIES_GB="0")
    session = house.ended("echo a > a.txt")
    house.until_told(lambda: house.http("GET", "/api/left") == (200, []), "what is left to be over")
    assert not house.requests()
    house.end()
    house.up(GATEHOUSE_KEPT_COPIES_GB="0")
    house.until_told(
        lambda: "copy of this session is gone" in house.run("resume", session).stderr,
        "the copy to go",
    )


@pytest.mark.parametrize(
    "more",
    [
        "MAX_COST_PER_DAY",
        *(pytest.param(one, marks=pytest.mark.many) for one in ("--budget", "MAX_COST")),
        pytest.param("MAX_COST_TOTAL", marks=pytest.mark.many),
    ],
)
def test_a_budget_is_for_a_session_a_day_or_all(house: House, port: int, more: str) -> None:
    given = {} if more == "--budget" else {more: "3-requests"}
    house.up(GATEHOUSE_AT_LIMIT="deny", **given)
    house.ok("rules", "add", "allow", f"network(GET http://127.0.0.1:{port}/**)")
    options = ("--budget", "3-requests") if more == "--budget" else ()
    two = f"{get(port)}; {get(port)}"
    assert ran(house, two, *options).stdout.count("hello-body") == 2
    is_each = more in ("--budget", "MAX_COST")
    done = ran(house, f"{two}; {two}", *options)
    assert done.stdout.count("hello-body") == (3 if is_each else 1), done.stdout
