"""Two sessions of one supervisor and one egress, each with another policy: neither profits from
what the other may."""

from pathlib import Path

from supervisor.core.sessions import Session
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.site import HELLO, Site
from tests.fakes.supervised import StartSupervisor, Supervised

NAMES = {"site.test": ("127.0.0.1",)}
GREETING = HELLO.decode()


def permissive(site: Site) -> str:
    ports = (site.https_port, site.http_port)
    allowed = [f"network({host}:{port})" for host in ("site.test", "127.0.0.1") for port in ports]
    return f"version: 1\nallow: {[*allowed, 'exec(echo *)', 'filesystem(**)']}\n"


STRICT = "version: 1\nmodes: {filesystem: deny, network: deny, exec: deny}\n"


async def test_what_one_session_may_reach_the_other_may_not(
    start_supervisor: StartSupervisor,
    workspace: Path,
    site: Site,
    upstream_ca: Path,
    tmp_path: Path,
) -> None:
    """They take turns, so that whatever egress remembers of one would be seen in the other."""
    own = tmp_path / "own.yaml"
    own.write_text(STRICT)
    urls = f"curl -sS {site.https('site.test')} || echo refused; curl -s {site.http('site.test')}"
    async with start_supervisor(permissive(site), names=NAMES, upstream_ca=upstream_ca) as running:
        for _ in range(2):
            _, allowed = await running.run(workspace, "sh", "-c", urls)
            assert allowed == GREETING * 2
            site.forget()
            denied, output = await running.run(workspace, "sh", "-c", urls, policy=own)
            assert GREETING not in output
            assert "refused" in output
            assert site.untouched
            assert running.audit(
                "verdict_given", session=denied.id, category="network", verdict="deny"
            )
        own.write_text(permissive(site))
        _, output = await running.run(workspace, "sh", "-c", urls, policy=own)
        assert output == GREETING * 2


async def test_a_policy_that_is_made_strict_ends_what_goes_on_in_its_session_alone(
    start_supervisor: StartSupervisor,
    workspace: Path,
    site: Site,
    upstream_ca: Path,
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(permissive(site))
    script = (
        f"echo ready; until ! curl -sS {site.https('site.test')} >/dev/null 2>&1 || test -e over;"
        " do sleep 0.1; done; echo lost"
    )
    async with start_supervisor(permissive(site), names=NAMES, upstream_ca=upstream_ca) as running:
        other = await running.start(workspace, "sh", "-c", script)
        mine = await running.start(workspace, "sh", "-c", script, policy=own)
        await running.printed(other, "ready")
        await running.printed(mine, "ready")
        own.write_text(STRICT)
        await running.printed(mine, "lost")
        assert "lost" not in running.output(other)
        loaded = running.audit("policy_loaded", policy=str(own))
        assert loaded
        await running.parts.sessions.stop(other.id, reason="done", by="test")
        await running.ended(other)


async def test_commands_and_files_are_judged_by_the_sessions_own_policy(
    start_supervisor: StartSupervisor, workspace: Path, site: Site, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(STRICT)
    calls = (("/v1/exec", {"command": "echo hello", "reason": "to see"}),)

    async def said(running: Supervised, **wanted: Path) -> tuple[str, Session]:
        session, output = await running.run(workspace, *agent_command(*calls), **wanted)
        (answer,) = answers(output)
        return answer["status"], session

    async with start_supervisor(permissive(site)) as running:
        assert (await said(running))[0] == "used"
        assert (await said(running, policy=own))[0] == "denied"
        assert (await said(running))[0] == "used"


async def test_a_host_is_looked_into_for_the_session_whose_policy_speaks_of_its_paths(
    start_supervisor: StartSupervisor,
    workspace: Path,
    site: Site,
    upstream_ca: Path,
    tmp_path: Path,
) -> None:
    own = tmp_path / "own.yaml"
    allowed = [
        f"network(GET {site.https('site.test', '/public/**')})",
        f"network(127.0.0.1:{site.https_port})",
    ]
    own.write_text(f"version: 1\nmodes: {{network: deny}}\nallow: {allowed}\n")
    script = " ".join(
        f"curl -s -o /dev/null -w '%{{http_code}} ' {site.https('site.test', path)};"
        for path in ("/public/a", "/b")
    )
    async with start_supervisor(permissive(site), names=NAMES, upstream_ca=upstream_ca) as running:
        for _ in range(2):
            _, ours = await running.run(workspace, "sh", "-c", script)
            _, theirs = await running.run(workspace, "sh", "-c", script, policy=own)
            assert (ours, theirs) == (
                "404 404 ",
                "404 403 ",
            )  # the site has neither: a 404 is its own
