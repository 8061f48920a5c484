"""Planned, shown and done of an install are the same (law 13): forged files hide nothing, and
nothing else comes than was shown."""

import json
import shutil
from pathlib import Path

import pytest

from supervisor.core.actions import Exec, Packages
from supervisor.core.approvals import Request
from tests.channels.test_packages import SCRIPT, ask, index, plan_of, running, use_cargo, workspace
from tests.fakes.registry import Registry
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Supervised

__all__ = ["index", "running", "workspace"]  # fixtures
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_forged_lock_file_of_what_is_installed_hides_nothing(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    entry = {"version": "1.1.0", "resolved": f"{index.url}/tiny-one/-/1.1.0.tgz"}
    held = json.dumps({"lockfileVersion": 3, "packages": {"node_modules/tiny-one": entry}})
    found, (install,) = await ask(
        running,
        workspace,
        f"mkdir -p node_modules && echo '{held}' > node_modules/.package-lock.json",
        "npm install needs-one",
    )
    assert found[-1]["outcome"]["ok"], found
    assert set(plan_of(install)) == {"needs-one", "tiny-one"}


@pytest.mark.many
async def test_what_the_person_s_own_lock_file_names_is_no_news(
    running: Supervised, workspace: Path
) -> None:
    await ask(running, workspace, "npm install tiny-one")
    found, (install,) = await ask(running, workspace, "npm install needs-one")
    assert found[-1]["outcome"]["ok"], found
    assert set(plan_of(install)) == {"needs-one"}


async def test_another_file_by_the_name_of_one_is_said_and_no_rule_allows_it(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    package = {"name": "app", "version": "1.0.0", "dependencies": {"ruled": "1.0.0"}}
    forged = {
        "version": "1.0.0",
        "resolved": f"{index.url}/lodahs/-/1.0.0.tgz",
        "integrity": index.integrity("lodahs", "1.0.0"),
    }
    lock = {"lockfileVersion": 3, "packages": {"": package, "node_modules/ruled": forged}}
    (workspace / "package.json").write_text(json.dumps(package))
    (workspace / "package-lock.json").write_text(json.dumps(lock))
    _, (install,) = await ask(running, workspace, "npm ci", answer="denied")
    assert isinstance(install.action, Packages)
    assert install.decision == "ask"
    assert "ruled 1.0.0: the lock file names another file than the index" in install.action.notes


async def test_what_runs_code_in_any_case_needs_the_box_for_scripts(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    (workspace / "setup.py").write_text("open('ran.txt', 'w').write('built')\n")
    (workspace / "env").mkdir()
    (workspace / "env/pyvenv.cfg").write_text("version = 3.13\n")
    for line in ("pip --python env install -e .", "npm install lodahs --ignore-scripts=false"):
        session = await running.start(
            workspace, *agent_command(("/v1/packages", {"command": line}))
        )
        request = await running.asked("packages", where=lambda one: one.session_id == session.id)  # noqa: B023
        assert isinstance(request.action, Packages)
        assert any("approve it with install scripts" in one for one in request.action.notes)
        running.approve(request)
        outcome = await running.done(request)
        assert "approved without install scripts" in outcome["error"]
        copy = running.parts.settings.sessions_dir / session.id / "merged"
        assert not list(copy.rglob("ran.txt"))
        with running.answering(lambda one: "denied"):
            await running.ended(session)


async def test_the_project_s_configuration_gets_no_script_to_run_with_the_box_unticked(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    index.add_npm("with-script", "1.0.0", **SCRIPT)
    npmrc = (workspace / ".npmrc").read_text()
    (workspace / ".npmrc").write_text(
        f"{npmrc}ignore-scripts=false\nscript-shell=./evil\ndangerously-allow-all-scripts=true\n"
    )
    found, (install,) = await ask(running, workspace, "npm install with-script")
    assert isinstance(install.action, Packages)
    assert install.action.doubt
    assert found[-1]["outcome"]["ok"], found
    session = running.parts.sessions.recent()[0]
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert not list(copy.rglob("ran.txt"))


async def test_another_package_than_was_planned_is_a_failure(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    """The index answers the manager otherwise than the plan."""
    index.add_npm("turns", "1.0.0")
    index.add_npm("extra", "1.0.0")
    session = await running.start(
        workspace, *agent_command(("/v1/packages", {"command": "npm install turns"}))
    )
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    index.turn("/turns", after=3, what=lambda: index.add_npm("turns", "1.0.1"))
    running.approve(request)
    outcome = await running.done(request)
    assert "error" in outcome
    assert "turns" in outcome["error"] or outcome.get("asked_again")
    with running.answering(lambda one: "denied"):
        await running.ended(session)


@pytest.mark.many
@pytest.mark.parametrize("has_lock", [True, False])
async def test_what_is_installed_without_saving_it_is_shown_as_well(
    running: Supervised, workspace: Path, index: Registry, has_lock: bool
) -> None:
    """Neither npm's manifest nor its lock file names it then."""
    before = ["npm install ruled"] if has_lock else []
    found, installs = await ask(
        running, workspace, *before, "npm install needs-one --no-save", "npm uninstall ruled"
    )
    assert all(one["outcome"]["ok"] for one in found), found
    assert plan_of(installs[-2]).keys() == {"needs-one", "tiny-one"}
    assert isinstance(installs[-2].action, Packages)
    assert installs[-2].action.doubt == ""
    assert "needs-one" not in (workspace / "package.json").read_text()


@pytest.mark.many
async def test_other_packages_than_were_planned_are_seen_where_none_are_saved(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    index.add_npm("turning", "1.0.0")
    call = ("/v1/packages", {"command": "npm install turning --no-save"})
    session = await running.start(workspace, *agent_command(call))
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    index.turn("/turning", after=3, what=lambda: index.add_npm("turning", "1.0.1"))
    running.approve(request)
    outcome = await running.done(request)
    assert "turning" in outcome.get("error", "") or outcome.get("asked_again")
    with running.answering(lambda one: "denied"):
        await running.ended(session)


@pytest.mark.many
async def test_what_the_environment_has_is_not_planned_again(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    held = ".venv/lib/python3.11/site-packages/tiny_wheel-1.0.0.dist-info"
    metadata = "Metadata-Version: 2.1\\nName: tiny-wheel\\nVersion: 1.0.0\\n"
    _, (install,) = await ask(
        running,
        workspace,
        f"mkdir -p {held} && printf '{metadata}' > {held}/METADATA && touch .venv/pyvenv.cfg",
        f"pip install --index-url {index.url}/simple/ tiny-wheel",
        answer="denied",
    )
    assert isinstance(install.action, Packages)
    assert install.action.plan == ()
    assert install.action.doubt == ""


def locked(index: Registry, name: str, **more: object) -> dict[str, object]:
    return {
        "version": "1.0.0",
        "resolved": f"{index.url}/{name}/-/1.0.0.tgz",
        "integrity": index.integrity(name, "1.0.0"),
        **more,
    }


def put_project(folder: Path, packages: dict[str, object], **more: object) -> None:
    """A manifest that wants `ruled`, and a lock of its own."""
    package = {"name": "app", "version": "1.0.0", "dependencies": {"ruled": "1.0.0"}, **more}
    lock = {"lockfileVersion": 3, "requires": True, "packages": {"": package, **packages}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "package.json").write_text(json.dumps(package))
    (folder / "package-lock.json").write_text(json.dumps(lock))


async def ci_with(running: Supervised, workspace: Path, lock: str) -> Request:
    """What became of `npm ci` with a lock file of the agent's, which the person doesn't take
    over."""
    calls = [("/v1/exec", {"command": line}) for line in (f"mv {lock} package-lock.json", "npm ci")]
    with running.answering(lambda one: "approved" if isinstance(one.action, Exec) else "denied"):
        session, _ = await running.run(workspace, *agent_command(*calls))
    (install,) = (one for one in running.requests(session) if isinstance(one.action, Packages))
    return install


@pytest.mark.parametrize("how", ["no version", "no hash", "twice", "no answer"])
async def test_a_lock_file_brings_nothing_that_its_card_does_not_show(
    running: Supervised, workspace: Path, index: Registry, how: str
) -> None:
    """`npm ci` takes a lock file's word for what a name is; an allow rule covers the command."""
    index.add_npm("unshown", "1.0.0")
    other = locked(index, "lodahs")
    packages: dict[str, dict[str, object]] = {
        "no version": {
            "node_modules/ruled": locked(index, "ruled", dependencies={"lodahs": "*"}),
            "node_modules/lodahs": {key: other[key] for key in ("resolved", "integrity")},
        },
        "no hash": {
            "node_modules/ruled": {key: other[key] for key in ("resolved", "version")},
        },
        "twice": {
            "node_modules/ruled": locked(index, "ruled", dependencies={"tiny-one": "*"}),
            "node_modules/tiny-one": locked(index, "tiny-one", dependencies={"ruled": "1"}),
            "node_modules/tiny-one/node_modules/ruled": other,
        },
        "no answer": {
            "node_modules/ruled": locked(index, "ruled", dependencies={"nobody": "*"}),
            "node_modules/nobody": other,
        },
    }
    put_project(workspace, packages[how])
    (workspace / "package-lock.json").rename(workspace / "forged.json")
    install = await ci_with(running, workspace, "forged.json")
    assert isinstance(install.action, Packages)
    assert install.action.doubt
    assert "No such file" not in str(install.action.unknown)
    assert install.decision == "ask"


async def test_a_lock_file_that_the_index_agrees_with_is_no_doubt(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    ruled = locked(index, "ruled", dependencies={"tiny-one": "1.0.0"})
    bare = {key: value for key, value in locked(index, "tiny-one").items() if key != "integrity"}
    put_project(workspace, {"node_modules/ruled": ruled, "node_modules/tiny-one": bare})
    (workspace / "package-lock.json").rename(workspace / "written.json")
    install = await ci_with(running, workspace, "written.json")
    assert isinstance(install.action, Packages)
    assert install.action.doubt == ""
    assert len(install.action.plan) == 2


async def test_a_folder_of_a_workspace_is_not_planned_by_a_lock_file_of_its_own(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    """npm goes by the lock file of the workspace above."""
    member = workspace / "packages" / "one"
    put_project(member, {"node_modules/ruled": locked(index, "ruled")})
    put_project(
        workspace, {"node_modules/ruled": locked(index, "lodahs")}, workspaces=["packages/*"]
    )
    (member / "package.json").write_text('{"name": "one", "dependencies": {"ruled": "1.0.0"}}')
    _, (install,) = await ask(running, workspace, "cd packages/one && npm ci", answer="denied")
    assert isinstance(install.action, Packages)
    assert "what the workspace of `package.json` needs" in install.action.unknown
    assert install.decision == "ask"


async def test_the_nearest_configuration_of_cargo_hides_none_above(
    running: Supervised, workspace: Path, index: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_cargo(monkeypatch)
    crate = workspace / "crate"
    near = f'[source.near]\nregistry = "sparse+{index.url}/index/"\n'
    near += '[source.crates-io]\nreplace-with = "near"\n'
    for folder, text in ((workspace, '[build]\nrustc = "./evil"\n'), (crate, near)):
        (folder / ".cargo").mkdir(parents=True)
        (folder / ".cargo" / "config.toml").write_text(text)
    (crate / "Cargo.toml").write_text('[package]\nname = "a"\nversion = "0.1.0"\n')
    _, (install,) = await ask(running, workspace, "cd crate && cargo update", answer="denied")
    assert isinstance(install.action, Packages)
    assert "what `.cargo/config.toml` changes" in install.action.unknown
    assert any("approve it with install scripts" in one for one in install.action.notes)


@pytest.mark.many
async def test_pip_runs_no_module_of_the_folder_s(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    (workspace / "pip.py").write_text("open('ran.txt', 'w').write('x')\n")
    line = f"pip install --index-url {index.url}/simple/ tiny-wheel"
    await ask(running, workspace, "python3 -m venv .venv", line)
    session = running.parts.sessions.recent()[0]
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert not list(copy.rglob("ran.txt"))
    assert list(copy.rglob("tiny_wheel.py"))


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv here")
async def test_uv_s_pip_installs_what_its_card_shows_and_nothing_else(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    index.add_wheel("behind-a-comment", "1.0.0")
    (workspace / "requirements.txt").write_text("tiny-wheel\n# one \\\nbehind-a-comment==1.0.0\n")
    line = f"uv pip install --index-url {index.url}/simple/ -r requirements.txt"
    found, (install,) = await ask(running, workspace, "python3 -m venv .venv", line)
    assert found[-1]["outcome"]["ok"], found
    assert set(plan_of(install)) == {"tiny-wheel", "behind-a-comment"}
    session = running.parts.sessions.recent()[0]
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    assert list(copy.rglob("tiny_wheel.py"))
    assert list(copy.rglob("behind_a_comment.py"))


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv here")
@pytest.mark.parametrize("how", ["honest", "other", "no hash", "frozen", "later"])
async def test_uv_s_lock_file_brings_nothing_that_its_card_does_not_show(
    running: Supervised, workspace: Path, index: Registry, how: str
) -> None:
    """uv takes a lock file's word for which file a package is."""
    (workspace / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.8"\n'
        'dependencies = ["tiny-wheel"]\n'
    )
    index.add_wheel("other-wheel", "1.0.0")
    good, evil = (index.wheel(f"{name}_wheel-1.0.0") for name in ("tiny", "other"))
    file = evil if how in ("other", "frozen") else good
    hashed = f', hash = "sha256:{file[1]}"' if how != "no hash" else ""
    registry = f'registry = "{index.url}/simple/"'
    lock = (
        'version = 1\nrequires-python = ">=3.8"\n[[package]]\nname = "app"\nversion = "1"\n'
        'source = { virtual = "." }\ndependencies = [{ name = "tiny-wheel" }]\n'
        '[package.metadata]\nrequires-dist = [{ name = "tiny-wheel" }]\n'
        f'[[package]]\nname = "tiny-wheel"\nversion = "1.0.0"\nsource = {{ {registry} }}\n'
        f'wheels = [{{ url = "{file[0]}"{hashed} }}]\n'
    )
    if how == "no hash":
        lock += f'sdist = {{ url = "{evil[0]}" }}\n'
    (workspace / "written.lock").write_text(lock)
    (workspace / "evil.lock").write_text(lock.replace(good[0], evil[0]).replace(good[1], evil[1]))
    line = f"uv sync --default-index {index.url}/simple/{' --frozen' * (how == 'frozen')}"
    first = ("/v1/exec", {"command": "mv written.lock uv.lock"})
    session = await running.start(workspace, *agent_command(first, ("/v1/exec", {"command": line})))
    running.approve(
        await running.asked(
            "exec",
            where=lambda one: one.session_id == session.id and one.action.command[:2] == "mv",
        )
    )
    request = await running.asked("packages", where=lambda one: one.session_id == session.id)
    assert isinstance(request.action, Packages)
    assert plan_of(request).keys() == {"tiny-wheel"}
    assert bool(request.action.doubt) is (how not in ("honest", "later"))
    copy = running.parts.settings.sessions_dir / session.id / "merged"
    if how == "later":
        (copy / "evil.lock").replace(copy / "uv.lock")
    running.approve(request)
    outcome = await running.done(request)
    if how == "later":
        assert outcome.get("asked_again")
    elif how == "honest":
        assert outcome["ok"], outcome
    if how in ("honest", "later"):
        assert not list(copy.rglob("other_wheel.py"))
    with running.answering(lambda one: "denied"):
        await running.ended(session)


@pytest.mark.skipif(shutil.which("uv") is None, reason="there is no uv here")
async def test_uv_adds_what_its_card_shows(
    running: Supervised, workspace: Path, index: Registry
) -> None:
    (workspace / "pyproject.toml").write_text(
        '[project]\nname = "app"\nversion = "1"\nrequires-python = ">=3.8"\n'
    )
    line = f"uv add --default-index {index.url}/simple/ tiny-wheel"
    found, (install,) = await ask(running, workspace, line)
    assert found[-1]["outcome"]["ok"], found
    assert plan_of(install)["tiny-wheel"].version == "1.0.0"
    assert 'name = "tiny-wheel"' in (workspace / "uv.lock").read_text()
