"""Programs that know no proxy, in a sandbox whose network is transparent: each of their connections
is judged like any other.

Real ones (curl, git, Node, Python's sockets, Java where there is one) against a local site, with
the proxy's variables taken away.
"""

import ipaddress
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from supervisor.core.sessions import Session
from supervisor.egress.admission.names import _END, _FIRST, MOST_NAMES
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.site import HELLO, Site
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised
from tests.tables import share

pytestmark = pytest.mark.asyncio(loop_scope="module")

NAMES = dict.fromkeys(
    ("site.test", "denied.test", "asked.test", "looked.test", "other.test"), ("127.0.0.1",)
) | {
    "inner.test": ("10.1.2.3",),
    "metadata.test": ("169.254.169.254",),
}
GREETING = HELLO.decode()
NO_PROXY = (
    "unset HTTP_PROXY HTTPS_PROXY http_proxy https_proxy ALL_PROXY NODE_USE_ENV_PROXY"
    " JAVA_TOOL_OPTIONS; "
)

JAVA = """
import java.net.*; import java.net.http.*; import java.security.*; import java.security.cert.*; import javax.net.ssl.*;
public class Get {
  public static void main(String[] urls) throws Exception {
    KeyStore store = KeyStore.getInstance(KeyStore.getDefaultType());
    store.load(null, null);
    int count = 0;
    try (var file = new java.io.FileInputStream(System.getenv("SSL_CERT_FILE"))) {
      for (var one : CertificateFactory.getInstance("X.509").generateCertificates(file)) store.setCertificateEntry("c" + count++, one);
    }
    var trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
    trust.init(store);
    var context = SSLContext.getInstance("TLS");
    context.init(null, trust.getTrustManagers(), null);
    var client = HttpClient.newBuilder().sslContext(context).build();
    for (String url : urls) {
      // In the clear it would ask for an upgrade to HTTP/2, which is refused.
      var version = url.startsWith("https:") ? HttpClient.Version.HTTP_2 : HttpClient.Version.HTTP_1_1;
      var request = HttpRequest.newBuilder(URI.create(url)).version(version).build();
      System.out.print(client.send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
  }
}
"""  # noqa: E501


def policy(site: Site) -> str:
    return f"""
version: 1
modes: {{filesystem: deny}}
allow:
  - network(127.0.0.1:{site.https_port})
  - network(127.0.0.1:{site.http_port})
  - network(site.test:{site.https_port})
  - network(site.test:{site.http_port})
  - network(site.test:53)
  - network(site.test:22)
  - network(other.test:{site.https_port})
  - network(GET,HEAD {site.https("looked.test", "/**")})
  - network(inner.test)
  - network(metadata.test)
deny:
  - network(* {site.https("looked.test", "/forbidden/**")})
  - network(* {site.http("site.test", "/forbidden/**")})
  - rule: network(denied.test:{site.https_port})
    why: this host is nobody's friend
  - network(denied.test:{site.http_port})
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    whole_site: Site, upstream_ca: Path, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Supervised]:
    folder = tmp_path_factory.mktemp("transparent")
    settings = settings_in(
        folder, policy(whole_site), upstream_ca=upstream_ca, network_mode="transparent"
    )
    async with supervised(settings, names=NAMES) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


async def shell(running: Supervised, workspace: Path, script: str) -> tuple[Session, str]:
    """Run a script of bash as the agent, with no proxy to be seen."""
    return await running.run(workspace, "bash", "-c", NO_PROXY + script)


def refusal(output: str) -> dict[str, str]:
    found: dict[str, str] = json.JSONDecoder().raw_decode(output[output.index('{"error"') :])[0]
    return found


def clients(url: str) -> dict[str, str]:
    """One line of shell for each program; each prints the page or fails."""
    python = (
        "import urllib.request as u;"
        f" print(u.build_opener(u.ProxyHandler({{}})).open({url!r}).read().decode(), end='')"
    )
    node = (
        f"fetch({url!r}).then(async r => process.stdout.write(await r.text()), e => {{"
        " console.error(e); process.exit(1) })"
    )
    found = {"curl": f"curl -sS --noproxy '*' {url}", "curl6": f"curl -6 -sS --noproxy '*' {url}"}
    found["python"] = f"/usr/bin/python3 -c {json.dumps(python)}"
    if shutil.which("node"):
        found["node"] = f"node -e {json.dumps(node)}"
    return found


# -- what rules and answers do --------------------------------------------------------------------


@pytest.mark.parametrize("client", ["curl", "curl6", "python", "node"])
@pytest.mark.parametrize("scheme", share(["http", "https"], "https"))
async def test_what_a_rule_allows(
    running: Supervised, workspace: Path, site: Site, client: str, scheme: str
) -> None:
    url = site.https("site.test") if scheme == "https" else site.http("site.test")
    found = clients(url)
    if client not in found:
        pytest.skip(f"no {client} on this machine")
    session, output = await shell(running, workspace, found[client])
    assert (session.exit_code, output) == (0, GREETING)
    assert session.network == "transparent"
    verdict, *_ = running.audit(
        "verdict_given", session=session.id, category="network", verdict="allow"
    )
    assert verdict["action"]["host"] == "site.test"
    assert verdict["action"]["operation"] == ("connect" if scheme == "https" else "request")


async def test_the_page_and_the_api_say_which_way_out_a_session_has(
    running: Supervised, workspace: Path
) -> None:
    session = await running.ended(await running.start(workspace, "true"))
    plain = await running.ended(await running.start(workspace, "true", network="proxy"))
    login = running.supervisor.login_url()
    async with httpx.AsyncClient(
        base_url=login.split("/login")[0], follow_redirects=True
    ) as browser:
        form = (await browser.get(login)).raise_for_status()
        form = (await browser.get("/sessions")).raise_for_status()
        assert '<option value="transparent" selected>' in form.text
        for one, said in ((session, "also of programs that know no proxy"), (plain, "use it can")):
            page = (await browser.get(f"/sessions/{one.id}")).raise_for_status().text
            assert said in page
            answer = (await browser.get(f"/api/sessions/{one.id}")).raise_for_status().json()
            assert answer["network"] == one.network
    assert (session.network, plain.network) == ("transparent", "proxy")


async def test_without_it_such_a_program_finds_no_route(
    running: Supervised, workspace: Path, site: Site
) -> None:
    session, output = await running.run(
        workspace, "curl", "-sS", "--noproxy", "*", site.https("site.test"), network="proxy"
    )
    assert session.exit_code == 6, output
    assert site.untouched


async def test_git_clones_without_a_proxy(running: Supervised, workspace: Path, site: Site) -> None:
    command = f"git -c http.proxy= clone -q {
        site.https('site.test', '/project.git')
    } copy && cat copy/code.py"
    session, output = await shell(running, workspace, command)
    assert (session.exit_code, output) == (0, "print('cloned')\n")


async def test_java_gets_out_without_knowing_of_a_proxy(
    running: Supervised, workspace: Path, site: Site
) -> None:
    if not shutil.which("javac"):
        pytest.skip("no JDK on this machine")
    (workspace / "Get.java").write_text(JAVA)
    urls = f"{site.http('site.test')} {site.https('site.test')}"
    session, output = await shell(
        running, workspace, f"java -XX:TieredStopAtLevel=1 /workspace/lower/Get.java {urls}"
    )
    assert (session.exit_code, output) == (0, GREETING * 2)


@pytest.mark.parametrize("client", ["curl", "python", "node"])
async def test_a_rule_denies(running: Supervised, workspace: Path, site: Site, client: str) -> None:
    found = clients(site.https("denied.test"))
    if client not in found:
        pytest.skip(f"no {client} on this machine")
    session, output = await shell(running, workspace, found[client])
    assert session.exit_code != 0, output
    (verdict,) = running.audit("verdict_given", session=session.id, verdict="deny")
    assert (verdict["action"]["operation"], verdict["rule"]) == (
        "connect",
        f"network(denied.test:{site.https_port})",
    )
    assert site.untouched


async def test_the_alert_says_that_access_was_denied(
    running: Supervised, workspace: Path, site: Site
) -> None:
    _, output = await shell(
        running, workspace, f"curl -sS --noproxy '*' {site.https('denied.test')}"
    )
    assert "access denied" in output


async def test_in_the_clear_the_refusal_says_why(
    running: Supervised, workspace: Path, site: Site
) -> None:
    script = (
        f"curl -sS --noproxy '*' -w '%{{http_code}}' {site.http('site.test', '/forbidden/page')}"
    )
    session, output = await shell(running, workspace, script)
    assert output.endswith("403")
    assert refusal(output)["rule"] == f"network(* {site.http('site.test', '/forbidden/**')})"
    (verdict,) = running.audit("verdict_given", session=session.id, verdict="deny")
    assert (verdict["action"]["operation"], verdict["action"]["path"]) == (
        "request",
        "/forbidden/page",
    )
    assert site.untouched


async def test_a_host_with_rules_for_paths_is_looked_into(
    running: Supervised, workspace: Path, site: Site
) -> None:
    urls = f"{site.https('looked.test')} {site.https('looked.test', '/forbidden/page')}"
    _, output = await shell(running, workspace, f"curl -sS --noproxy '*' {urls}")
    assert output.startswith(GREETING)
    assert refusal(output)["rule"] == f"network(* {site.https('looked.test', '/forbidden/**')})"
    assert site.requests == ["GET /"]


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_asked_connection_is_held_and_goes_on_when_approved(
    running: Supervised, workspace: Path, site: Site, scheme: str
) -> None:
    url = site.https("asked.test") if scheme == "https" else site.http("asked.test")
    session = await running.start(workspace, "bash", "-c", f"{NO_PROXY} curl -sS {url}")
    request = await running.asked("network", where=lambda one: one.session_id == session.id)
    assert site.untouched
    assert request.hold_until is not None
    running.approve(request)
    session = await running.ended(session)
    assert (session.exit_code, running.output(session)) == (0, GREETING)
    assert (await running.done(request))["ok"]
    assert len(running.requests(session)) == 1


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_an_asked_connection_ends_when_denied(
    running: Supervised, workspace: Path, site: Site, scheme: str
) -> None:
    url = site.https("asked.test") if scheme == "https" else site.http("asked.test")
    session = await running.start(workspace, "bash", "-c", f"{NO_PROXY} curl -sS {url}")
    request = await running.asked("network", where=lambda one: one.session_id == session.id)
    running.deny(request, "not this one")
    session = await running.ended(session)
    output = running.output(session)
    if scheme == "http":
        assert "not this one" in refusal(output)["why"]
    else:
        assert "access denied" in output
        assert session.exit_code != 0
    assert site.untouched


async def test_the_proxy_is_there_as_well(running: Supervised, workspace: Path, site: Site) -> None:
    session, output = await running.run(
        workspace, "curl", "-sS", site.https("site.test"), site.http("site.test")
    )
    assert (session.exit_code, output) == (0, GREETING * 2)


async def test_over_an_overlay_it_is_the_same(
    running: Supervised, workspace: Path, site: Site
) -> None:
    command = ("curl", "-sS", "--noproxy", "*", site.https("site.test"))
    session, output = await running.run(workspace, *command, copy="overlay")
    assert (session.exit_code, output) == (0, GREETING)


async def test_a_tool_sandbox_has_it_too(running: Supervised, workspace: Path, site: Site) -> None:
    get = f"{NO_PROXY} curl -sS {site.https('site.test')} {site.https('denied.test')}"
    with running.answering(lambda request: "approved"):
        session, output = await running.run(
            workspace, *agent_command(("/v1/exec", {"command": get}))
        )
    (told,) = answers(output)
    assert told["outcome"]["stdout"] == GREETING, told
    assert "access denied" in told["outcome"]["stderr"]
    assert site.requests == ["GET /"]
    assert running.audit("verdict_given", session=session.id, verdict="deny")


async def test_each_session_has_names_of_its_own(
    running: Supervised, workspace: Path, site: Site
) -> None:
    wait = (
        "until [ -e /workspace/lower/address ]; do sleep 0.05; done; address=$(cat"
        " /workspace/lower/address); "
    )
    get = (
        f"curl -sS --connect-to site.test:{site.http_port}:$address:{site.http_port}"
        f" {site.http('site.test')}"
    )
    second = await running.start(workspace, "bash", "-c", f"{NO_PROXY} {wait} {get}")
    _, output = await shell(
        running, workspace, "getent ahostsv4 site.test | awk '{print $1; exit}'"
    )
    assert output.startswith(("198.18.", "198.19."))
    (workspace / "address").write_text(output.strip())
    second = await running.ended(second)
    assert "stands for no name" in refusal(running.output(second))["why"]
    assert site.untouched


BURST = """
import concurrent.futures, socket, threading
count = 500
together = threading.Barrier(count)
threading.stack_size(256 * 1024)

def look_up(number):
    together.wait()
    return socket.getaddrinfo(f"n{number}.test", 443, 0, socket.SOCK_STREAM)

with concurrent.futures.ThreadPoolExecutor(count) as threads:
    print(len(list(threads.map(look_up, range(count)))))
"""


async def test_who_looks_up_many_names_at_once_is_answered_later_not_never(
    running: Supervised, workspace: Path
) -> None:
    """An installer asks for hundreds, of which each is two queries: more than are answered in a
    second."""
    session, output = await running.run(workspace, "/usr/bin/python3", "-c", BURST)
    assert (session.exit_code, output) == (0, "500\n")


async def test_after_a_crash_of_egress_names_and_connections_are_served_again(
    running: Supervised, workspace: Path, site: Site
) -> None:
    later = "until [ -e /workspace/lower/later ]; do sleep 0.05; done; "
    get = f"curl -sS {site.https('site.test')}; "
    given = "getent ahostsv4 {}.test | awk '{{print $1; exit}}'; ".format
    script = f"{NO_PROXY} {get} {given('site')} echo FIRST ENDED; {later} {given('other')} {get}"
    session = await running.start(workspace, "bash", "-c", script)
    await running.printed(session, "FIRST ENDED")
    network = running.parts.network
    starts = network.starts
    network.end_connections()
    await network.wait_healthy(after_starts=starts)
    (workspace / "later").write_text("go\n")
    session = await running.ended(session)
    first, _, second = running.output(session).partition("FIRST ENDED\n")
    before, after = (
        ipaddress.IPv4Address(one.replace(GREETING, "").strip()) for one in (first, second)
    )
    assert (first, second) == (f"{GREETING}{before}\n", f"{after}\n{GREETING}")
    # What a program still holds from before means no other name.
    assert int(after) - int(before) in (MOST_NAMES, MOST_NAMES - (_END - _FIRST))
