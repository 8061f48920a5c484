"""git, curl, pip and npm as people have them, in the sandbox, through egress, against local
servers: allowed, denied, asked."""

import asyncio
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import pytest_asyncio

from supervisor.core.approvals import status
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from tests.fakes.site import HELLO, WHEEL, Site
from tests.fakes.supervised import (
    PATIENCE_S,
    StartSupervisor,
    Supervised,
    git,
    make_repository,
    settings_in,
    supervised,
)
from tests.fakes.with_pip import python_with_pip

pytestmark = pytest.mark.asyncio(loop_scope="module")

# Names that egress resolves to this machine; `inner.test` is a private address that no rule names.
NAMES = dict.fromkeys(("site.test", "denied.test", "asked.test"), ("127.0.0.1",)) | {
    "inner.test": ("10.1.2.3",)
}
GREETING = HELLO.decode()


def policy(site: Site) -> str:
    return f"""
version: 1
modes: {{filesystem: deny}}
allow:
  - network(127.0.0.1:{site.https_port})
  - network(127.0.0.1:{site.http_port})
  - network(GET,HEAD {site.https("site.test", "/**")})
  - network(POST {site.https("site.test", "/**/git-upload-pack")})
  - network(site.test:{site.http_port})
  - network(inner.test)
deny:
  - network(* {site.https("site.test", "/forbidden/**")})
  - rule: network(denied.test:{site.https_port})
    why: this host is nobody's friend
  - network(denied.test:{site.http_port})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    whole_site: Site, upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    settings = settings_in(
        tmp_path_factory.mktemp("clients"), policy(whole_site), upstream_ca=upstream_ca
    )
    async with supervised(settings, names=NAMES) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


async def shell(running: Supervised, workspace: Path, script: str) -> tuple[Session, str]:
    """Run a script of bash as the agent."""
    return await running.run(workspace, "bash", "-c", script)


def refusal(output: str) -> dict[str, str]:
    """The JSON that egress answered with, somewhere in what a client printed."""
    found: dict[str, str] = json.JSONDecoder().raw_decode(output[output.index('{"error"') :])[0]
    return found


# -- curl -----------------------------------------------------------------------------------------


async def test_bodies_are_kept_where_a_session_wants_it_and_as_long(
    running: Supervised, workspace: Path, site: Site
) -> None:
    sessions, log = running.parts.sessions, running.parts.network_log
    script = f"curl -sS {site.https('site.test')}; curl -sS -d x {site.https('site.test')}"
    session = await running.start(workspace, "bash", "-c", script, keep_bodies=True)
    (started,) = running.audit("session_started", session=session.id)
    assert (started["network"], started["keep_bodies"]) == ("proxy", True)
    second = await running.asked("network", where=lambda one: one.session_id == session.id)
    async with asyncio.timeout(PATIENCE_S):
        while not log.bodies(session.id):
            await asyncio.sleep(0.01)
    sessions.keep_bodies(session.id, is_on=False, by="the test")
    running.approve(second)
    session = await running.ended(session)
    assert (
        len([one for one in log.of_session(session.id) if one.action.operation == "request"]) == 2
    )
    assert [one.response.text for one in log.bodies(session.id).values() if one.response] == [
        GREETING
    ]
    assert not session.keep_bodies
    assert [one["keep"] for one in running.audit("bodies_switched", session=session.id)] == [False]
    with pytest.raises(UserError, match="has ended"):
        sessions.keep_bodies(session.id, is_on=True, by="the test")


async def test_curl_gets_what_a_rule_allows(
    running: Supervised, workspace: Path, site: Site
) -> None:
    script = f"curl -sS {site.https('site.test')} {site.http('site.test')}"
    session, output = await shell(running, workspace, script)
    assert (session.exit_code, output) == (0, GREETING * 2)
    assert site.requests == ["GET /", "GET /"]
    verdicts = running.audit(
        "verdict_given", session=session.id, category="network", verdict="allow"
    )
    assert {record["action"]["operation"] for record in verdicts} == {"connect", "request"}


async def test_curl_shows_why_it_was_refused(
    running: Supervised, workspace: Path, site: Site
) -> None:
    """In the clear and inside of TLS the body is the reason; of a CONNECT clients show the
    status, and keep the body to themselves."""
    plain, inside, tunnel = (
        site.http("denied.test"),
        site.https("site.test", "/forbidden/page"),
        site.https("denied.test"),
    )
    _, output = await shell(running, workspace, f"curl -sS -w '%{{http_code}}' {plain}")
    assert output.endswith("403")
    assert refusal(output)["rule"] == f"network(denied.test:{site.http_port})"
    _, output = await shell(running, workspace, f"curl -sS -w '%{{http_code}}' {inside}")
    assert output.endswith("403")
    told = refusal(output)
    assert told["rule"] == f"network(* {site.https('site.test', '/forbidden/**')})"
    assert set(told) == {"error", "why", "remedy", "rule", "request_id"}
    session, output = await shell(running, workspace, f"curl -sS {tunnel}")
    assert session.exit_code != 0
    assert "403" in output
    (verdict,) = running.audit("verdict_given", session=session.id, verdict="deny")
    assert (
        "nobody's friend" in verdict["why"]
        or verdict["rule"] == f"network(denied.test:{site.https_port})"
    )
    assert site.untouched


async def test_an_asked_connection_is_held_and_goes_on_when_approved(
    running: Supervised, workspace: Path, site: Site
) -> None:
    session = await running.start(workspace, "curl", "-sS", site.https("asked.test"))
    request = await running.asked("network", where=lambda one: one.session_id == session.id)
    assert site.untouched
    assert request.hold_until is not None
    running.approve(request)
    session = await running.ended(session)
    assert (session.exit_code, running.output(session)) == (0, GREETING)
    assert (await running.done(request))["ok"]


async def test_an_asked_connection_ends_with_403_when_denied(
    running: Supervised, workspace: Path, site: Site
) -> None:
    session = await running.start(workspace, "curl", "-sS", site.http("asked.test"))
    request = await running.asked("network", where=lambda one: one.session_id == session.id)
    running.deny(request, "not this one")
    await running.ended(session)
    told = refusal(running.output(session))
    assert "not this one" in told["why"]
    assert told["request_id"] == request.id
    assert site.untouched


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_answer_that_comes_too_late_is_found_by_a_later_try(
    start_supervisor: StartSupervisor, workspace: Path, site: Site, upstream_ca: Path, scheme: str
) -> None:
    url = site.http("asked.test") if scheme == "http" else site.https("asked.test")
    later = "until [ -e /workspace/lower/later ]; do sleep 0.05; done"
    script = f"curl -sS {url}; echo; echo FIRST ENDED; {later}; curl -sS {url}"
    async with start_supervisor(
        policy(site), names=NAMES, upstream_ca=upstream_ca, hold_s=0.5
    ) as running:
        session = await running.start(workspace, "bash", "-c", script)
        first = await running.printed(session, "FIRST ENDED")
        (request,) = running.requests(session)
        assert status(request) == "pending", "it stays in the inbox"
        if scheme == "http":
            assert refusal(first)["error"] == "not answered in time"
            assert refusal(first)["request_id"] == request.id
        else:
            assert "403" in first
        assert site.untouched
        running.approve(request)
        (workspace / "later").write_text("go\n")
        session = await running.ended(session)
        assert running.output(session).endswith(GREETING)
        assert [one.id for one in running.requests(session)] == [request.id], (
            "the later try was the same request"
        )
        assert site.requests == ["GET /"]


async def test_there_is_no_other_way_out(running: Supervised, workspace: Path, site: Site) -> None:
    direct = f"curl -sS -m 5 --noproxy '*' http://127.0.0.1:{site.http_port}/; echo direct $?"
    private = "curl -sS http://inner.test/"
    target = f"site.test:{site.http_port}"
    tcp = (
        f"exec 3<>/dev/tcp/127.0.0.1/3128; printf 'CONNECT {target} HTTP/1.1\\r\\nHost:"
        f" {target}\\r\\n\\r\\n' >&3; printf 'SSH-2.0-client\\r\\n\\r\\n' >&3; timeout 20 cat <&3;"
        " echo tcp $?"
    )
    session, output = await shell(running, workspace, f"{direct}; {tcp}; {private}")
    assert "direct 7" in output
    assert "tcp 0" in output, "the connection is ended, not left open"
    assert "private address that no rule names" in refusal(output)["why"]
    assert site.untouched
    assert session.exit_code == 0


OWN = (
    "127.0.0.1",
    "127.1",
    "2130706433",
    "0x7f.1",
    "localhost",
    "own.test",
    "[::ffff:127.0.0.1]",
    "[::1]",
    "0.0.0.0",
)
ITSELF = (
    "is Gatehouse itself",
    "is this machine itself",
    "is not an address that anything is reached at",
)


async def test_the_operators_page_is_not_reached_through_egress(
    workspace: Path, upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """By no name and no form of its address, though rules name each of them; in the clear and by
    CONNECT."""
    settings = settings_in(tmp_path_factory.mktemp("own"), upstream_ca=upstream_ca)
    names = dict.fromkeys(("own.test", "localhost"), ("127.0.0.1",))
    async with supervised(settings, names=names) as running:
        port = urlsplit(running.supervisor.login_url()).port
        hosts = (
            "127.0.0.1",
            "localhost",
            "own.test",
            "[::1]",
            "0.0.0.0",
            "127.0.0.0/8",
            "[::1]/128",
        )
        rules = "".join(f"  - network({host}:{port})\n" for host in hosts)
        settings.policy_file.write_text(f"version: 1\nmodes: {{filesystem: deny}}\nallow:\n{rules}")
        running.parts.policies.current()
        assert running.parts.policies.banner is None
        asks = "; ".join(
            f"curl -sS{way} http://{host}:{port}/ 2>&1; echo" for host in OWN for way in ("", "p")
        )
        session, output = await shell(running, workspace, f"unset NO_PROXY no_proxy; {asks}; true")
        answers = [line for line in output.splitlines() if line]
        assert session.exit_code == 0
        assert len(answers) == 2 * len(OWN)
        for plain, tunnelled in itertools.batched(answers, 2, strict=True):
            assert any(why in plain for why in ITSELF), plain
            assert tunnelled.endswith("response 403"), tunnelled
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode()
        )
        assert b"Gatehouse" in await reader.read(), "it is there"
        writer.close()


async def test_the_key_of_the_authority_is_not_in_the_sandbox(
    running: Supervised, workspace: Path, site: Site
) -> None:
    """Its certificate is, in the bundle. While a connection is looked into, all of its files are
    searched but the system's own."""
    folder = running.parts.settings.data_dir / "ca"
    key, certificate = (
        (folder / name).read_text().splitlines()[1]
        for name in ("mitmproxy-ca.pem", "mitmproxy-ca-cert.pem")
    )
    script = (
        f"curl -sS {site.https('site.test')}; for text in {key} {certificate}; do echo for; "
        "grep -rlsF -D skip $text /etc /home /var /run /tmp /dev/shm /workspace; done"
    )
    _, output = await shell(running, workspace, script)
    assert output.splitlines() == [GREETING.strip(), "for", "for", "/etc/gatehouse/ca-bundle.pem"]


# -- git ------------------------------------------------------------------------------------------


async def test_git_clones_by_rule_and_pushes_only_when_approved(
    running: Supervised, workspace: Path, site: Site
) -> None:
    url = site.https("site.test", "/project.git")
    identity = "-c user.name=a -c user.email=a@example.org"
    script = (
        f"set -e; cd /tmp; git clone -q {url} clone; cd clone; python3 code.py 2>/dev/null || cat"
        f" code.py; echo new > new.txt; git add .; git {identity} commit -q -m pushed; git push -q"
        " origin HEAD:topic && echo PUSHED"
    )
    session = await running.start(workspace, "bash", "-c", script)
    request = await running.asked("network", where=lambda one: one.session_id == session.id)
    assert request.action.path == "/project.git/git-receive-pack"  # type: ignore[union-attr]
    assert request.action.method == "POST"  # type: ignore[union-attr]
    assert "topic" not in git(site.repository, "branch", "--list")
    running.approve(request)
    session = await running.ended(session)
    assert session.exit_code == 0, running.output(session)
    assert "PUSHED" in running.output(session)
    assert git(site.repository, "log", "-1", "--format=%s", "topic") == "pushed"


async def test_a_push_that_is_denied_changes_nothing(
    running: Supervised, workspace: Path, site: Site
) -> None:
    url = site.https("site.test", "/project.git")
    script = (
        f"cd /tmp; git clone -q {url} clone; cd clone; git push origin HEAD:refused; echo code $?"
    )
    session = await running.start(workspace, "bash", "-c", script)
    running.deny(await running.asked("network", where=lambda one: one.session_id == session.id))
    await running.ended(session)
    assert "403" in running.output(session)
    assert "code 0" not in running.output(session)
    assert "refused" not in git(site.repository, "branch", "--list")


# -- package managers -----------------------------------------------------------------------------


PYTHON = python_with_pip()
NPM = shutil.which("npm")


@pytest.mark.skipif(not PYTHON, reason="no Python with pip on this machine")
async def test_pip_downloads_from_an_allowed_index_and_says_403_at_another(
    running: Supervised, workspace: Path, site: Site
) -> None:
    common = (
        *("env", "-u", "PIP_PYTHON", PYTHON, "-m", "pip"),  # as a client of an index
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
        "-d",
        "/workspace/merged/wheels",
    )
    session, output = await running.run(
        workspace,
        *common,
        "--index-url",
        site.https("site.test", "/simple"),
        "gatehouse-demo",
    )
    assert session.exit_code == 0, output
    assert (running.parts.settings.sessions_dir / session.id / "merged/wheels" / WHEEL).exists()
    assert f"GET /files/{WHEEL}" in site.requests
    assert not (workspace / "wheels").exists(), "the policy denies files"
    site.forget()
    session, output = await running.run(
        workspace, *common, "--retries", "0", "--index-url", site.https("site.test",
        "/forbidden/simple"), "gatehouse-demo"
    )  # fmt: skip
    assert session.exit_code != 0
    assert site.untouched


@pytest.mark.skipif(
    NPM is None or not Path(NPM).resolve().is_relative_to("/usr"),
    reason="npm isn't installed below /usr",
)
async def test_npm_fetches_from_an_allowed_registry(
    running: Supervised, workspace: Path, site: Site
) -> None:
    registry = site.https("site.test", "/npm/")
    script = (
        f"cd /tmp; npm pack --no-update-notifier --registry {registry} gatehouse-demo && tar -tzf"
        " gatehouse-demo-1.0.0.tgz"
    )
    session, output = await shell(running, workspace, script)
    assert session.exit_code == 0, output
    assert "package/package.json" in output
    assert set(site.requests) == {"GET /npm/gatehouse-demo", "GET /npm/gatehouse-demo.tgz"}
