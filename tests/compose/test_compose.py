"""compose.yaml for real: built images, three containers, a person's path through them in a browser.

`make test-compose` runs this, after it has built the images; what of it needs no engine is in
tests/test_compose_file.py and, for both backends, in tests/sandbox/test_base.py.
"""

import contextlib
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from supervisor.settings import ROOT
from tests.browser.conftest import ARGS
from tests.fakes.supervised import make_repository

ENGINE = os.environ.get("GATEHOUSE_ENGINE", "")
PORT = "3757"
PROJECT = "gatehouse-test"
PATIENCE_S = 40.0
SECRET = "canary: this is the host's"

pytestmark = [
    pytest.mark.skipif(not ENGINE, reason="run by `make test-compose`, which builds the images"),
    pytest.mark.xdist_group("compose"),
    pytest.mark.timeout(400),
]


def compose(*words: str, **env: str) -> str:
    done = subprocess.run(
        [ROOT / "scripts/compose", "-p", PROJECT, *words],
        env=os.environ | env,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    return done.stdout + done.stderr


def engine(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ENGINE, *words], capture_output=True, text=True, check=False, timeout=100
    )


def inside(service: str, script: str, user: str = "1000") -> subprocess.CompletedProcess[str]:
    """A script in a service's container, as whatever runs there could run it."""
    for name in (f"{PROJECT}_{service}_1", f"{PROJECT}-{service}-1"):
        done = engine("exec", "-u", f"{user}:{user}", name, "sh", "-c", script)
        if "no such container" not in done.stderr.lower():
            return done
    raise AssertionError(f"there is no container of {service}: {done.stderr}")


def gatehouse(*words: str) -> str:
    return inside("supervisor", f"/gatehouse/.venv/bin/gatehouse {' '.join(words)}").stdout


def until[T](found: Callable[[], T | None], what: str) -> T:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if (result := found()) is not None:
            return result
        time.sleep(0.5)
    raise AssertionError(f"never happened: {what}\n{compose('logs')[-4000:]}")


def asked(category: str) -> str | None:
    found = re.search(rf"^(\w{{32}})  {category} ", gatehouse("approvals"), re.MULTILINE)
    return found[1] if found else None


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A running composition over a repository that user 1000 owns."""
    made = make_repository(tmp_path_factory.mktemp("compose") / "project")
    with contextlib.suppress(PermissionError):  # an ordinary user's are that user's
        for path in (made, *made.rglob("*")):
            os.chown(path, 1000, 1000, follow_symlinks=False)
        for folder in made.parents[:3]:
            folder.chmod(0o755)
    env = {"WORKSPACE": str(made), "MAX_UPTIME": "20m", "GATEHOUSE_PORT": PORT}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"):
            patch.delenv(name, raising=False)
        compose("down", "-v")
        # The containers first: start order must not matter.
        compose("up", "-d", "agent", "tools")
        compose("up", "-d")
        yield made
        compose("down", "-v")


@pytest.fixture
def page(workspace: Path) -> Iterator[Page]:
    url = until(
        lambda: (
            (found := re.search(r"http://\S+/login\?token=\S+", gatehouse("url"))) and found.group()
        ),
        "the page's URL",
    )
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGS)
        made = browser.new_page(viewport={"width": 1200, "height": 900})
        made.goto(url)
        made.wait_for_url("**/")
        yield made
        browser.close()


def test_up_a_card_an_approval_and_the_file_on_the_host(workspace: Path, page: Page) -> None:
    request = until(lambda: asked("filesystem"), "the first review asks for a file")
    page.goto(f"http://127.0.0.1:{PORT}/requests/{request}")
    card = page.locator("#pane")
    expect(card).to_contain_text("REVIEW_NOTES.md")
    expect(card).not_to_have_attribute("data-settling", "all")
    card.locator("[data-key=a]:visible").click()
    until(lambda: (workspace / "REVIEW_NOTES.md").exists() or None, "the file on the host")
    assert (workspace / "REVIEW_NOTES.md").stat().st_uid == workspace.stat().st_uid


def test_a_granted_command_runs_in_the_tools_container(workspace: Path) -> None:
    request = until(lambda: asked("exec"), "the review asks for a command")
    assert "exit code 0" in gatehouse("approve", request)


def test_the_agent_is_alone(workspace: Path) -> None:
    for service in ("agent", "tools"):
        interfaces = inside(service, "tail -n +3 /proc/net/dev | cut -d: -f1").stdout.split()
        assert interfaces == ["lo"], service
        assert inside(service, "wc -l < /proc/net/route").stdout.strip() == "1", "no route"
        gateway = "10.89.0.1 10.88.0.1 172.17.0.1 172.18.0.1 192.0.2.1"
        for address in gateway.split():
            tried = inside(service, f"timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/{PORT}'")
            assert tried.returncode != 0, address
        assert inside(service, f"timeout 3 bash -c 'exec 3<>/dev/tcp/127.0.0.1/{PORT}'").returncode
        named = inside(service, "timeout 5 getent hosts canary.example.org supervisor")
        assert named.returncode != 0
        assert named.stdout == ""


def test_what_it_can_write_is_the_copy_and_scratch(workspace: Path) -> None:
    for service in ("agent", "tools"):
        assert inside(service, "touch /workspace/lower/x").returncode != 0
        assert inside(service, "touch /opt/x /usr/x /etc/x /x").returncode != 0
        for who, capabilities in (("self", 0), ("1", 0b11100000)):
            status = inside(service, f"cat /proc/{who}/status").stdout
            assert re.search(rf"^CapEff:\s+0*{capabilities or 0:x}$", status, re.MULTILINE), who
            assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
            assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE)


def test_what_runs_in_a_container_has_no_way_to_its_runner(workspace: Path) -> None:
    for service in ("agent", "tools"):
        assert inside(service, "grep ^Uid: /proc/1/status").stdout.split()[1:] == ["65333"] * 4
        assert inside(service, "ls /opt/gatehouse/private").returncode != 0
        for name in ("mem", "environ", "fd", "cwd"):
            tried = f"ls /proc/1/{name}/ 2>&1 || head -c 1 /proc/1/{name} 2>&1"
            assert "ermission denied" in inside(service, tried).stdout, name
        assert inside(service, "kill -9 1").returncode != 0
    assert inside("agent", "ls /data /run/secrets /workspace/host").returncode != 0


def test_a_link_in_the_copy_leads_to_no_file_of_the_supervisors(workspace: Path) -> None:
    inside("agent", "ln -s /data/gatehouse /workspace/merged/link; echo x > /workspace/merged/made")
    until(lambda: "made" in gatehouse("approvals") or None, "the new file is asked")
    assert not (workspace / "link").exists()
    assert inside("agent", "cat /workspace/merged/link/audit.log").returncode != 0


def test_containers_may_start_again_in_any_order(workspace: Path) -> None:
    compose("restart", "tools")
    compose("restart", "supervisor")
    until(lambda: "sessions" in gatehouse("--help") or None, "the supervisor")
    until(lambda: gatehouse("sessions").strip() or None, "its sessions")
    said = until(
        lambda: (
            (out := inside("supervisor", "/gatehouse/scripts/compose-start --check"))
            and (out.returncode == 0 or None)
        ),
        "its health",
    )
    assert said
    for service in ("agent", "tools"):
        check = (
            "python3 -I /opt/gatehouse/agent_image/runner.py /opt/gatehouse/private/control --check"
        )
        until(
            lambda service=service, check=check: (
                inside(service, check, user="0").returncode == 0 or None
            ),
            f"the health of {service}",
        )
    session = inside(
        "supervisor",
        "timeout 60 /gatehouse/.venv/bin/gatehouse run --workspace /workspace/host -- sh -c"
        " 'echo from the agent; id -u; which claude'",
    )
    assert "from the agent" in session.stdout, session.stderr + compose("logs")[-3000:]
    assert "/usr/local/bin/claude" in session.stdout


def test_a_wrong_user_is_one_clear_line(workspace: Path) -> None:
    done = engine(
        *("run", "--rm", "--user", "1234", "--network", "none"),
        *("-v", f"{workspace}:/workspace/host", "-e", f"GATEHOUSE_PORT={PORT}"),
        *("-e", "GATEHOUSE_DATA=/data/gatehouse", "gatehouse-supervisor"),
    )
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        "gatehouse: the workspace belongs to user 1000, and this runs as user 1234; set"
        " GATEHOUSE_UID=1000, or use `make up-compose`"
    )


def test_every_hostile_attempt_is_stopped(workspace: Path) -> None:
    """What tests/escape tries in a bubblewrap sandbox, as an agent in its container."""
    (workspace.parent / "canary").write_text(SECRET)
    place = workspace / "escape"
    shutil.copytree(ROOT / "tests/escape/hostile", place / "hostile")
    facts = {
        "inside": True,
        "canary_file": str(workspace.parent / "canary"),
        "home": str(Path.home()),
        "process_mark": "gatehouse up",
        "environment_mark": "GATEHOUSE_SANDBOX=compose",
        "supervisor_pid": os.getpid(),
        "unix_abstract": "gatehouse-1",
        "address": "10.89.0.1",
        "lower_inside": "/workspace/lower",
        "data_secret_inside": "/data/gatehouse/supervisor.json",
        "unix_in_workspace": "/workspace/lower/escape/agent.sock",
        "unix_datagram": "/workspace/lower/escape/datagram.sock",
        "unix_in_tmp": "/tmp/gatehouse.sock",
        **dict.fromkeys(("tcp_port", "tcp6_port", "tcp_any_port", "udp_port"), int(PORT)),
    }
    (place / "world.json").write_text(json.dumps(facts))
    for path in (place, *place.rglob("*")):
        with contextlib.suppress(PermissionError):
            os.chown(path, 1000, 1000)
    until(lambda: gatehouse("sessions").strip() or None, "the supervisor")
    for one in re.findall(r"^(\w{32})  (?!ended)", gatehouse("sessions"), re.MULTILINE):
        gatehouse("stop", one)
    until(
        lambda: not re.search(r"^\w{32}  (?!ended)", gatehouse("sessions"), re.MULTILINE) or None,
        "the end of what runs",
    )
    said = inside(
        "supervisor",
        "/gatehouse/.venv/bin/gatehouse run --max-uptime 40s --workspace /workspace/host --"
        " python3 escape/hostile escape/world.json",
    )
    assert "[[" in said.stdout, said.stdout[-2000:] + said.stderr[-2000:]
    attempts = json.loads(said.stdout[said.stdout.index("[[") :].splitlines()[0])
    assert len(attempts) > 80
    escaped = {name: what for name, is_out, what in attempts if is_out}
    # What an engine shows of the kernel, and what is the container's own: its /dev, its own copy
    # of the authorities, its own lower bounds.
    of_containers = {"write_programs_and_settings", "read_kernel_secrets", "see_sys"}
    of_containers |= {"change_own_bounds"}
    assert set(escaped) <= of_containers, json.dumps(escaped, indent=1)
