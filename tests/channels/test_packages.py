"""Installs that an agent asks for, planned and carried out by real package managers at a registry
on loopback."""

import json
import os
import pwd
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from supervisor.core.actions import FileChange, Packages, PlannedPackage
from supervisor.core.approvals import Request
from tests.fakes import registry
from tests.fakes.registry import Registry
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import Supervised, make_repository, settings_in, supervised

pytestmark = pytest.mark.asyncio(loop_scope="module")

SCRIPT = {"scripts": {"postinstall": "echo ran > ../../ran.txt"}}


@pytest.fixture(scope="module")
def index() -> Iterator[Registry]:
    with registry.serving() as served:
        yesterday = (datetime.now(UTC) - timedelta(hours=30)).isoformat()
        served.add_npm("ruled", "1.0.0")
        served.add_npm("tiny-one", "1.0.0")
        served.add_npm("tiny-one", "1.1.0")
        served.add_npm("needs-one", "2.0.0", dependencies={"tiny-one": "^1.0.0"})
        served.add_npm("lodahs", "1.0.0", published=yesterday, **SCRIPT)
        served.add_npm("old-thing", "1.0.0", deprecated="use another")
        served.add_wheel("tiny-wheel", "1.0.0")
        served.add_wheel("tiny-wheel", "2.0.0", yanked="broken")
        served.add_crate("tinycrate", "1.2.3")
        yield served


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(
    tmp_path_factory: pytest.TempPathFactory, index: Registry
) -> AsyncIterator[Supervised]:
    policy = (
        f"version: 1\nallow: [network(127.0.0.1:{index.port}), network(modules.test:{index.port}),"
        " packages(npm:ruled),"
        " packages(npm ci)]\n"
        "deny: [packages(npm:event-stream)]\n"
    )
    settings = settings_in(tmp_path_factory.mktemp("packages"), policy)
    async with supervised(settings, names={"modules.test": ("127.0.0.1",)}) as running:
        yield running


@pytest.fixture
def workspace(tmp_path: Path, index: Registry) -> Path:
    made = make_repository(tmp_path / "project")
    (made / ".npmrc").write_text(f"registry={index.url}/\n")
    (made / "package.json").write_text('{"name": "app", "version": "1.0.0"}\n')
    return made


async def ask(
    running: Supervised, workspace: Path, *commands: str, answer: str = "approved"
) -> tuple[list[dict[str, Any]], list[Request]]:
    """What an agent is answered that runs these lines as commands, and the installs as asked."""
    calls = [("/v1/exec", {"command": line}) for line in commands]
    with running.answering(
        lambda one: answer if isinstance(one.action, Packages) else "approved"  # type: ignore[arg-type, return-value]
    ):
        session, output = await running.run(workspace, *agent_command(*calls))
    installs = [one for one in running.requests(session) if isinstance(one.action, Packages)]
    return answers(output), installs


def plan_of(request: Request) -> dict[str, PlannedPackage]:
    assert isinstance(request.action, Packages)
    return {one.name: one for one in request.action.plan}


async def test_npm_installs_what_its_card_shows(
    running: Supervised, workspace: Path, index: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    printing, seen = running.parts.gate.printing, dict[str, bytes]()
    monkeypatch.setattr(
        printing, "on_change", lambda one: seen.update({one: b"".join(printing.printed(one))})
    )
    found, (install,) = await ask(running, workspace, "npm install needs-one 2>&1 | tail -3")
    assert found[-1]["outcome"]["ok"], found
    # What npm said was to be seen while it ran.
    assert b"added 2 packages" in seen[install.id]
    plan = plan_of(install)
    assert {name: one.version for name, one in plan.items()} == {
        "needs-one": "2.0.0",
        "tiny-one": "1.1.0",
    }
    assert plan["needs-one"].licence == "MIT"
    assert plan["needs-one"].published_at == 1577934245.0
    assert plan["needs-one"].size == 120
    assert not plan["needs-one"].notes
    assert isinstance(install.action, Packages)
    assert install.action.hosts == (f"127.0.0.1:{index.port}",)
    assert any("not the index that you use" in note for note in install.action.notes)
    # What changed goes the way of all changed files.
    assert json.loads((workspace / "package.json").read_text())["dependencies"] == {
        "needs-one": "^2.0.0"
    }
    assert "needs-one" in (workspace / "package-lock.json").read_text()


async def test_what_must_not_be_overlooked_is_on_the_card_and_scripts_stay_off(
    running: Supervised, workspace: Path
) -> None:
    found, installs = await ask(running, workspace, "npm install lodahs", "npm i old-thing")
    assert [one["outcome"]["ok"] for one in found] == [True, True], [
        one["outcome"] for one in found
    ]
    first, second = (plan_of(one) for one in installs)
    assert first["lodahs"].notes == (
        "one edit from the popular `lodash`",
        "released a day ago",
        "has install scripts",
    )
    assert second["old-thing"].notes == ("deprecated: use another",)
    session = running.parts.sessions.recent()[0]
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert not list(copy.rglob("ran.txt"))


async def test_scripts_run_where_the_person_who_approves_says_so(
    running: Supervised, workspace: Path
) -> None:
    call = agent_command(("/v1/packages", {"command": "npm install lodahs"}))
    session = await running.start(workspace, *call)
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    running.parts.installs.allow_scripts(request.id, by="the test")
    running.approve(request)
    await running.became(request, "used", settled=True)
    with running.answering(lambda one: "denied"):
        await running.ended(session)
    paths = {
        one.action.path for one in running.requests(session) if isinstance(one.action, FileChange)
    }
    assert "ran.txt" in paths
    (line,) = running.audit("install_scripts_allowed", session=session.id)
    assert (line["request"], line["by"]) == (request.id, "the test")


async def test_an_index_that_is_not_the_person_s_is_not_reached_before_the_answer(
    running: Supervised, workspace: Path
) -> None:
    line = "npm install tiny-one --registry=http://other.test/"
    found, installs = await ask(running, workspace, line, answer="denied")
    (install,) = installs
    assert found[0]["status"] == "denied"
    session = running.parts.sessions.recent()[0]
    assert not [
        one
        for one in running.audit("verdict_given", session=session.id, category="network")
        if "other.test" in one["action"]
    ]
    assert isinstance(install.action, Packages)
    assert install.action.plan == ()
    assert any("isn't reached before you approve" in one for one in install.action.unknown)
    assert any("--registry=http://other.test" in note for note in install.action.notes)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("npm install event-stream", "packages(npm:event-stream)"),
        ("npm install event-stream && npm test", "packages(npm:event-stream)"),
    ],
)
async def test_what_is_not_carried_out_is_refused_with_a_reason(
    running: Supervised, workspace: Path, line: str, why: str
) -> None:
    found, installs = await ask(running, workspace, line)
    said = f"{found[0]['why']} {found[0].get('rule')}"
    assert why in said, found
    assert not [one for one in installs if one.used_at]


async def test_no_rule_allows_a_package_from_an_index_or_a_host_that_nobody_chose(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    """The rule names the package; where it comes from is the agent's doing."""
    (workspace / ".npmrc").write_text("registry=http://other.test/\n")
    found, (install,) = await ask(running, workspace, "npm install ruled", answer="denied")
    assert (found[0]["status"], install.decision) == ("denied", "ask")
    assert "what it would install isn't known" in install.why
    (workspace / ".npmrc").write_text(f"registry={index.url}/\n")
    lock = {
        "name": "app",
        "lockfileVersion": 3,
        "packages": {
            "": {"name": "app", "dependencies": {"ruled": "1.0.0"}},
            "node_modules/ruled": {"version": "1.0.0", "resolved": "http://evil.test/r.tgz"},
        },
    }
    (workspace / "package-lock.json").write_text(json.dumps(lock))
    (workspace / "package.json").write_text(json.dumps(lock["packages"][""]))  # type: ignore[index]
    found, (install,) = await ask(running, workspace, "npm ci", answer="denied")
    assert (found[0]["status"], install.decision) == ("denied", "ask")
    assert "ruled would come from evil.test" in install.why


async def test_a_rule_allows_what_comes_from_where_it_should(
    running: Supervised, workspace: Path
) -> None:
    found, (install,) = await ask(running, workspace, "npm install ruled", answer="denied")
    assert found[0]["outcome"]["ok"], found
    assert install.decision == "allow"


async def test_code_of_the_agent_s_own_does_not_run_to_be_planned(
    running: Supervised, workspace: Path
) -> None:
    (workspace / "setup.py").write_text("open('ran.txt', 'w').write('planned')\n")
    found, installs = await ask(running, workspace, "pip install -e .")
    assert "what the session's other programs run" in found[0]["why"]
    assert not [one for one in installs if one.used_at]
    (workspace / "env").mkdir()
    (workspace / "env/pyvenv.cfg").write_text("version = 3.13\n")
    _, (install,) = await ask(running, workspace, "pip --python env install -e .", answer="denied")
    assert isinstance(install.action, Packages)
    assert install.action.plan == ()
    assert install.action.unknown == ("what it would install: `.` is a path",)
    session = running.parts.sessions.recent()[0]
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert not list(copy.rglob("ran.txt"))


async def test_what_the_manager_can_not_plan_is_said_to_be_unknown(
    running: Supervised, workspace: Path
) -> None:
    found, (install,) = await ask(running, workspace, "npm install no-such-package")
    assert isinstance(install.action, Packages)
    assert install.action.plan == ()
    assert "npm says: " in install.action.unknown[0]
    assert "404" in install.action.unknown[0]
    assert not found[0]["outcome"]["ok"]


async def test_what_changed_since_it_was_shown_is_asked_again(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    index.add_npm("moving", "1.0.0")
    session = await running.start(
        workspace, *agent_command(("/v1/packages", {"command": "npm install moving"}))
    )
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    index.add_npm("moving", "1.0.1")
    running.approve(request)
    again = await running.asked(
        "packages", where=lambda one: one.session_id == session.id and one.id != request.id
    )
    assert plan_of(again)["moving"].version == "1.0.1"
    outcome = await running.done(request)
    assert outcome["asked_again"] == again.id
    running.deny(again)
    await running.ended(session)
    assert not (workspace / "package-lock.json").exists()


@pytest.mark.many
async def test_pip_installs_into_the_environment_of_the_project(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    found, (install,) = await ask(
        running,
        workspace,
        "python3 -m venv .venv",
        f"pip install --index-url {index.url}/simple/ tiny-wheel",
        ".venv/bin/python -c 'import tiny_wheel; print(tiny_wheel.VERSION)'",
    )
    assert found[-1]["outcome"]["stdout"] == "1.0.0\n", found
    plan = plan_of(install)
    assert (plan["tiny-wheel"].version, plan["tiny-wheel"].size) == (
        "1.0.0",
        plan["tiny-wheel"].size,
    )
    assert plan["tiny-wheel"].published_at == 1577934245.0
    assert plan["tiny-wheel"].has_scripts is False
    assert isinstance(install.action, Packages)
    assert any("--index-url" in note for note in install.action.notes)


def use_cargo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests have a home of their own, where rustup knows no toolchain: let it know the user's."""
    if shutil.which("cargo") is None:
        pytest.skip("there is no cargo here")
    toolchains = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".rustup"
    monkeypatch.setenv("RUSTUP_HOME", os.environ.get("RUSTUP_HOME", str(toolchains)))
    if subprocess.run(["cargo", "--version"], capture_output=True, check=False).returncode:
        pytest.skip("the cargo that is here can't be used by this user")


async def test_cargo_adds_a_crate_and_its_lock(
    running: Supervised, workspace: Path, index: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cargo(monkeypatch)
    (workspace / "Cargo.toml").write_text('[package]\nname = "app"\nversion = "0.1.0"\n')
    (workspace / "src").mkdir(exist_ok=True)
    (workspace / "src/lib.rs").write_text("")
    (workspace / ".cargo").mkdir()
    (workspace / ".cargo/config.toml").write_text(
        '[source.crates-io]\nreplace-with = "near"\n'
        f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
    )
    found, installs = await ask(running, workspace, "cargo add tinycrate")
    assert found[-1]["outcome"]["ok"], found
    (install,) = installs
    assert plan_of(install)["tinycrate"].version == "1.2.3"
    assert plan_of(install)["tinycrate"].licence == "MIT"
    assert "tinycrate" in (workspace / "Cargo.toml").read_text()
    assert 'name = "tinycrate"' in (workspace / "Cargo.lock").read_text()


PAD_GO = "package pad\n\nfunc Start(s string) string { return s }\n"


@pytest.fixture
def modules(index: Registry) -> Iterator[Registry]:
    """The person's own proxy of modules. Go asks no HTTP proxy for what lies on loopback, so it has
    a name."""
    if shutil.which("go") is None:
        pytest.skip("there is no go here")
    conf = Path(os.environ["HOME"]) / ".config/go/env"
    conf.parent.mkdir(parents=True, exist_ok=True)
    conf.write_text(f"GOPROXY=http://modules.test:{index.port}\nGOSUMDB=off\n")
    yield index
    conf.unlink()


def go_project(workspace: Path, index: Registry) -> None:
    """A module that imports one package everywhere, and another on Linux alone."""
    (workspace / "go.mod").write_text("module example.org/shop\n\ngo 1.17\n")
    (workspace / "main.go").write_text(
        'package main\n\nimport (\n\t"fmt"\n\n\tp "example.org/tidy/pad"\n)\n\n'
        'func main() { fmt.Println(p.Start("1")) }\n'
    )
    (workspace / "tool").mkdir()
    (workspace / "tool/tool_linux.go").write_text('package tool\n\nimport _ "example.org/loud"\n')
    tidy(workspace, index)


def tidy(workspace: Path, index: Registry) -> None:
    """By go itself, outside of Gatehouse."""
    env = os.environ | {"GOPROXY": index.url, "GOSUMDB": "off", "GOFLAGS": "-modcacherw"}
    env |= {"GOMODCACHE": str(workspace.parent / "modules")}
    subprocess.run(["go", "mod", "tidy"], cwd=workspace, check=True, capture_output=True, env=env)


@pytest.mark.many
async def test_go_gets_and_tidies_what_its_cards_show(
    running: Supervised, workspace: Path, modules: Registry
) -> None:
    for name in ("example.org/tidy/pad", "example.org/loud", "example.org/deep"):
        modules.add_go(name, "v1.0.0", PAD_GO)
    go_project(workspace, modules)
    deep = PAD_GO.replace("pad\n", 'pad\n\nimport _ "example.org/deep"\n', 1)
    modules.add_go("example.org/tidy/pad", "v1.1.0", deep, "\nrequire example.org/deep v1.0.0\n")
    lines = ("go get example.org/tidy/pad@v1.1.0", "go mod tidy", "go mod download")
    found, installs = await ask(running, workspace, *lines)
    assert all(one["outcome"]["ok"] for one in found), found
    pad = plan_of(installs[0])["example.org/tidy/pad"]
    assert (pad.before, pad.version, pad.published_at) == ("v1.0.0", "v1.1.0", 1577934245.0)
    assert pad.link == "https://example.org/tidy/pad"
    assert pad.has_scripts is False
    assert plan_of(installs[0])["example.org/deep"].version == "v1.0.0"
    # What the sources import stays, also on one system alone.
    assert {*plan_of(installs[2])} == {
        "example.org/tidy/pad",
        "example.org/loud",
        "example.org/deep",
    }
    before = [(workspace / name).read_text() for name in ("go.mod", "go.sum")]
    tidy(workspace, modules)
    assert [(workspace / name).read_text() for name in ("go.mod", "go.sum")] == before


@pytest.mark.many
@pytest.mark.skipif(shutil.which("pnpm") is None, reason="there is no pnpm here")
async def test_pnpm_installs_what_its_card_shows_and_runs_no_hooks(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    hooks = "require('fs').writeFileSync('/workspace/merged/hooked.txt', '')\n"
    lines = ("pnpm add needs-one lodahs", "pnpm remove lodahs", "rm -rf node_modules")
    frozen = "pnpm install --frozen-lockfile"
    found, installs = await ask(running, workspace, *lines, frozen)
    assert all(one["outcome"]["ok"] for one in found), found
    versions = {name: one.version for name, one in plan_of(installs[0]).items()}
    assert versions == {"needs-one": "2.0.0", "tiny-one": "1.1.0", "lodahs": "1.0.0"}
    assert {*plan_of(installs[2])} == {"needs-one", "tiny-one"}
    assert "needs-one@2.0.0" in (workspace / "pnpm-lock.yaml").read_text()
    (workspace / ".pnpmfile.cjs").write_text(hooks)
    found, (install,) = await ask(running, workspace, frozen)
    assert "approved without install scripts" in found[-1]["outcome"]["error"]
    assert isinstance(install.action, Packages)
    assert install.action.unknown[0] == "what .pnpmfile.cjs changes"
    (workspace / ".pnpmfile.cjs").unlink()
    (workspace / "pnpm-workspace.yaml").write_text("packages: ['web']\n")
    _, (install,) = await ask(running, workspace, frozen)
    assert isinstance(install.action, Packages)
    assert "a workspace of pnpm with packages of its own isn't planned" in install.action.unknown[0]
    sessions = running.parts.settings.sessions_dir
    assert not list(sessions.rglob("hooked.txt"))


async def test_an_index_that_is_swapped_after_the_question_is_asked_again_and_not_reached(
    running: Supervised, workspace: Path
) -> None:
    session = await running.start(
        workspace, *agent_command(("/v1/packages", {"command": "npm install tiny-one"}))
    )
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    (copy / ".npmrc").write_text("registry=http://other.test/\n")
    running.approve(request)
    again = await running.asked(
        "packages", where=lambda one: one.session_id == session.id and one.id != request.id
    )
    assert isinstance(again.action, Packages)
    assert again.action.index == "http://other.test/"
    assert not [
        one
        for one in running.audit("verdict_given", session=session.id, category="network")
        if "other.test" in one["action"] and one["verdict"] == "allow"
    ]
    running.deny(again)
    with running.answering(lambda one: "denied"):
        await running.ended(session)


async def test_an_install_reaches_nothing_but_its_card_s_hosts(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    """Its scripts run where the person let them, and still reach only the index."""
    script = "curl -sS -m 5 http://elsewhere.test/ > ../../reached.txt 2>&1; true"
    index.add_npm("calls-home", "1.0.0", scripts={"postinstall": script})
    session = await running.start(
        workspace, *agent_command(("/v1/packages", {"command": "npm install calls-home"}))
    )
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    running.parts.installs.allow_scripts(request.id, by="the test")
    running.approve(request)
    await running.became(request, "used", settled=True)
    with running.answering(lambda one: "denied"):
        await running.ended(session)
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert "an install reaches only what its card names" in (copy / "reached.txt").read_text()
