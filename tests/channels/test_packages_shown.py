"""Planned, shown and done of an install are the same (law 13): forged files hide nothing, and
nothing else comes than was shown."""

import json
import shutil
from pathlib import Path

import pytest

from supervisor.core.actions import Packages
from tests.channels.test_packages import SCRIPT, ask, index, plan_of, running, workspace
from tests.fakes.registry import Registry
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import Supervised

__all__ = ["index", "running", "workspace"]  # fixtures
pytestmark = [pytest.mark.xdist_group("installs"), pytest.mark.asyncio(loop_scope="module")]


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
    for line in ("pip install -e .", "npm install lodahs --ignore-scripts=false"):
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
