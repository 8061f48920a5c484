"""`--bind`: tools of a person's home, and the name on their commits, in a session's sandboxes."""

from pathlib import Path

import pytest

from supervisor.errors import UserError
from tests.fakes.sandboxed_agent import agent_command
from tests.fakes.supervised import StartSupervisor

CONTAINED = "version: 1\nmodes: {exec: contained}\ndeny: [filesystem(**)]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    made = tmp_path / "home-of-me"
    tool = made / ".pyenv/versions/3.13.0/bin/mytool"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\necho from the home\n")
    tool.chmod(0o755)
    (made / ".gitconfig").write_text("[user]\n\tname = Ada Love\n\temail = ada@example.org\n")
    (made / ".netrc").write_text("password secret\n")
    monkeypatch.setenv("HOME", str(made))
    return made


async def test_agent_and_commands_have_them_and_nothing_else_of_the_home(
    start_supervisor: StartSupervisor, workspace: Path, home: Path
) -> None:
    script = f"mytool; git var GIT_AUTHOR_IDENT; ls -A {home} {home}/.pyenv; cat {home}/.netrc"
    async with start_supervisor(CONTAINED, binds=("pyenv",)) as running:
        session, output = await running.run(workspace, "sh", "-c", script)
        assert "from the home\nAda Love <ada@example.org>" in output
        assert ".netrc" not in output.replace(f"{home}/.netrc", "")
        assert "secret" not in output
        call = ("/v1/exec", {"command": "mytool && git var GIT_AUTHOR_IDENT"})
        session = await running.ended(await running.start(workspace, *agent_command(call)))
        (request,) = running.requests(session)
        assert request.outcome is not None
        assert request.outcome["stdout"].startswith("from the home\nAda Love <ada@example.org>")


async def test_what_can_not_be_shown_starts_nothing(
    start_supervisor: StartSupervisor, workspace: Path, home: Path
) -> None:
    async with start_supervisor(CONTAINED) as running:
        with pytest.raises(UserError, match="there is no nvm"):
            await running.start(workspace, "true", binds=("nvm",))
        with pytest.raises(UserError, match="no folder of programs"):
            await running.start(workspace, "true", binds=(str(home),))
        assert running.parts.sessions.recent() == []
