"""What a session's sandbox shows beside its copy."""

from pathlib import Path

import pytest

from supervisor.core.actions import Exec
from supervisor.core.agents.inside import PROGRAMS_PORT
from supervisor.core.sessions import QUARANTINED, Session, SessionId
from supervisor.sandbox import toolchains
from supervisor.sessions.named_secrets import NamedSecrets
from supervisor.sessions.session_sandboxes import SessionSandboxes, StartingShell
from tests.fakes.supervised import settings_in


def review_of(workspace: Path, *, is_quarantined: bool) -> Session:
    """A session that reviews a pull request."""
    words = ("gatehouse-review", "--base", "none", "--pull")
    return Session(
        id=SessionId("a" * 32),
        kind="review",
        workspace=str(workspace),
        command=(*words, QUARANTINED) if is_quarantined else words,
        token_hash="",
        created_at=0.0,
        deadline_at=1.0,
    )


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_other_checkouts_are_shown_to_whom_is_trusted(tmp_path: Path, is_quarantined: bool) -> None:
    other = tmp_path / "work"
    deep = other / "a/b/c/d/e/f"
    for one in (other / "more", deep):
        (one / ".git").mkdir(parents=True)
    (other / "more/.npmrc").write_text("//registry/:_authToken=x")
    (other / "gha-creds-12ab.json").write_text("{}")
    settings = settings_in(tmp_path, checkouts=(other,))
    sandboxes = SessionSandboxes(settings, NamedSecrets(), tmp_path, tmp_path, ())
    session = review_of(tmp_path, is_quarantined=is_quarantined)
    spec = sandboxes.of_agent(session, "t", None, StartingShell("/usr/bin", {}), tty=False)
    assert ((other, str(other)) in spec.readonly_binds) == (not is_quarantined)
    assert (f"--also={other}" in spec.command) == (not is_quarantined)
    masked = {other / "more/.git", other / "more/.npmrc", deep / ".git"}
    masked.add(other / "gha-creds-12ab.json")
    assert (masked <= set(spec.masked)) == (not is_quarantined)


def test_what_is_too_large_to_be_looked_through_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchains, "MOST_CHECKED_OUT", 3)
    for one in ("small/x", "large/1/2/3/.git"):
        (tmp_path / one).mkdir(parents=True)
    shown = toolchains.checkouts_in((tmp_path / "large", tmp_path / "small"))
    assert shown.folders == (tmp_path / "small",)


@pytest.mark.parametrize("is_quarantined", [False, True])
def test_who_is_in_quarantine_has_no_door_for_programs(
    tmp_path: Path, is_quarantined: bool
) -> None:
    sandboxes = SessionSandboxes(settings_in(tmp_path), NamedSecrets(), tmp_path, tmp_path, ())
    session = review_of(tmp_path, is_quarantined=is_quarantined)
    spec = sandboxes.of_agent(session, "t", None, StartingShell("/usr/bin", {}), tty=False)
    assert (PROGRAMS_PORT in spec.ports) == (not is_quarantined)
    assert spec.env["PATH"].startswith("/opt/gatehouse/bin:") == (not is_quarantined)
    # What plans, installs or packs has none, either.
    tool = sandboxes.of_tool(session, Exec(command="true"), None, StartingShell("/usr/bin", {}))
    assert PROGRAMS_PORT not in tool.ports
