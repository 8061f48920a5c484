"""The review agent in its sandbox: the recorded model that shows the whole loop, and the real
loop over the Messages API."""

import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from supervisor.core.actions import CATEGORIES, category_of
from supervisor.core.approvals import Request, status
from supervisor.core.sessions import Session
from supervisor.errors import UserError
from supervisor.sessions.session_plans import (
    DEFAULT_POLICY,
    NO_GIT_NOTICE,
    RECORDED_NOTICE,
    STRICT_NOTICE,
    STRICT_POLICY,
)
from tests.fakes.messages_server import MessagesServer, Turn, calls, text, tool_use
from tests.fakes.sandboxed_agent import agent_command, answers
from tests.fakes.supervised import StartSupervisor, Supervised, git

KEY = "sk-ant-test-9b1f6d0c3e7a42f58c"
MODEL_HOST = "model.test"
ASK_ALL = "version: 1\n"
FINDING = {
    "path": "src/app.py",
    "line": 2,
    "severity": "high",
    "title": "wrong <b>operator</b>",
    "body": "[click](http://evil.test) - for +",
    "suggestion": "    return a + b",
}
REVIEW = {"summary": "add subtracts", "verdict": "request_changes", "findings": [FINDING]}
WRITTEN = text(f"Done.\n<review>\n{json.dumps(REVIEW)}\n</review>")


@pytest.fixture
def changed(workspace: Path) -> Path:
    """The workspace with a second commit and an uncommitted change."""
    (workspace / "README.md").write_text("# demo, second\n")
    git(workspace, "commit", "-q", "-a", "-m", "second")
    (workspace / "src/app.py").write_text("def add(a, b):\n    return a - b\n")
    return workspace


def files_of(running: Supervised, session: Session) -> tuple[dict[str, Any], str]:
    """review.json, without its turns, and review.md of a session."""
    folder = running.parts.settings.sessions_dir / session.id
    for name in ("review.json", "review.md"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    review = json.loads((folder / "review.json").read_bytes())
    review.pop("turns")
    return review, (folder / "review.md").read_text()


# -- recorded -------------------------------------------------------------------------------------


@pytest.mark.many
async def test_the_recorded_model_asks_for_all_six_kinds_at_once_and_goes_on_when_answered(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(changed.parent / "remote.git")], check=True)
    git(changed, "remote", "add", "origin", str(changed.parent / "remote.git"))
    async with start_supervisor(ASK_ALL) as running:
        session = await running.start(changed, kind="review")

        def all_kinds() -> dict[str, list[Request]] | None:
            waiting: dict[str, list[Request]] = {}
            for request in running.parts.queue.pending(session.id):
                waiting.setdefault(category_of(request.action), []).append(request)
            # All but more money, which no agent asks for itself.
            return (
                waiting
                if set(waiting) == set(CATEGORIES) - {"budget", "review"}
                and len(waiting["exec"]) == 2
                else None
            )

        waiting = await running.until(all_kinds, "a request of each kind at once")
        assert all(
            request.reason
            for kind, found in waiting.items()
            for request in found
            if kind != "network"
        )
        running.approve(waiting["sandbox"][0])
        # The approved proposal is a rule now, and answered the request that it covers.
        notes = await running.became(waiting["filesystem"][0], "used", settled=True)
        assert notes.answered_by != "the test"
        running.deny(waiting["packages"][0], "do it by hand")
        running.deny(waiting["git"][0], "not today")
        running.deny(waiting["network"][0])
        log, python = sorted(
            waiting["exec"], key=lambda request: "python3" in request.action.command
        )  # type: ignore[union-attr]
        running.approve(log)
        running.approve(python)
        with running.answering(lambda request: "approved"):
            session = await running.ended(session)
        assert session.exit_code == 0, running.story()
        assert "second" in (await running.done(log))["stdout"]
        assert "hello from the tool sandbox" in (await running.done(python))["stdout"]
        assert status(running.parts.queue.get(waiting["packages"][0].id)) == "denied"
        assert status(running.parts.queue.get(waiting["git"][0].id)) == "denied"
        assert (
            "filesystem(REVIEW_NOTES.md)"
            in (running.parts.settings.data_dir / "policy.yaml").read_text()
        )
        written = (changed / "REVIEW_NOTES.md").read_text()
        assert "src/app.py" in written
        assert session.model == "recorded"
        assert RECORDED_NOTICE in session.notices
        assert "recorded" in running.output(session).splitlines()[0]
        review, document = files_of(running, session)
        assert session.review == review
        assert "no model looked at the code" in review["summary"]
        assert "not today" in review["summary"], "the agent was told why"
        assert "no model looked at the code" in document
        assert running.audit("review_recorded", session=session.id)


async def test_the_first_look_of_a_new_installation_shows_a_card_of_each_kind(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    subprocess.run(["git", "init", "-q", "--bare", str(changed.parent / "remote.git")], check=True)
    git(changed, "remote", "add", "origin", str(changed.parent / "remote.git"))
    async with start_supervisor(ASK_ALL, policy_file=DEFAULT_POLICY) as running:
        session = await running.start(changed, kind="review")
        assert STRICT_NOTICE in session.notices
        assert session.policy_file == str(STRICT_POLICY)

        def kinds() -> bool | None:
            pending = running.parts.queue.pending(session.id)
            kinds = {category_of(one.action) for one in pending}
            return kinds == set(CATEGORIES) - {"budget", "review"} or None

        await running.until(kinds, "a card of each kind")
        assert running.parts.settings.policy_file == DEFAULT_POLICY
        other = await running.start(changed, "true")
        assert other.policy_file == str(DEFAULT_POLICY)
        assert STRICT_NOTICE not in other.notices


@pytest.mark.many
async def test_a_folder_without_git_is_reviewed_with_a_notice(
    start_supervisor: StartSupervisor, tmp_path: Path
) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "notes.txt").write_text("TODO: everything\n")
    async with start_supervisor(ASK_ALL) as running:
        with running.answering(lambda request: "denied"):
            session = await running.ended(await running.start(plain, kind="review"))
        assert session.exit_code == 0, running.story()
        assert NO_GIT_NOTICE in session.notices
        assert session.base is None
        assert session.review is not None
        assert session.review["base"] is None
        assert "notes.txt" in json.dumps(session.review)
        with pytest.raises(UserError, match="no git repository"):
            await running.start(plain, kind="review", base="main")


async def test_a_base_that_is_no_revision_is_refused_before_anything_starts(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    async with start_supervisor(ASK_ALL) as running:
        for base in ("no-such-branch", "--output=/tmp/x", "HEAD~99", "-h"):
            with pytest.raises(UserError, match="no revision"):
                await running.start(changed, kind="review", base=base)
        assert not running.parts.sessions.recent()


# -- the real loop --------------------------------------------------------------------------------


async def review(
    start_supervisor: StartSupervisor,
    changed: Path,
    script: list[Turn],
    rules: str = "",
    **wanted: Any,
) -> tuple[Session, MessagesServer, list[Request], str, str]:
    """One review over the local server, each request approved: the session, the server, what was
    asked, review.md, the audit log."""
    with MessagesServer([*script], api_key=KEY) as model:
        policy = (
            "version: 1\nmodes: {network: deny}\nallow:\n  -"
            f" network(127.0.0.1:{model.port})\n{rules}"
        )
        async with start_supervisor(
            policy,
            names={MODEL_HOST: ("127.0.0.1",)},
            anthropic_api_key=KEY,
            anthropic_base_url=f"http://{MODEL_HOST}:{model.port}",
        ) as running:
            with running.answering(lambda request: "approved"):
                session = await running.ended(await running.start(changed, kind="review", **wanted))
            assert session.exit_code == 0, running.story()
            _, document = files_of(running, session)
            assert KEY not in running.output(session)
            log = (running.parts.settings.data_dir / "audit.log").read_text()
            return session, model, running.requests(session), document, log


async def test_a_review_over_the_messages_api_ends_with_its_findings(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    base = git(changed, "rev-parse", "HEAD~1")
    script = [
        calls(
            tool_use("git_diff", {}), tool_use("read_file", {"path": "src/app.py"}), words="I read."
        ),
        calls(
            tool_use("run_command", {"command": "env; cat /proc/*/environ", "reason": "to look"})
        ),
        calls(
            tool_use("write_file", {"path": "NOTES.md", "content": "noted\n", "reason": "notes"})
        ),
        WRITTEN,
    ]
    session, model, requests, document, log = await review(
        start_supervisor, changed, script, base=base
    )
    assert session.review is not None
    assert session.review["findings"] == [FINDING]
    assert session.review["verdict"] == "request_changes"
    assert session.review["base"] == base
    assert session.review["head"] == git(changed, "rev-parse", "HEAD")
    assert session.review["usage"]["turns"] == 4
    assert session.model != "recorded"
    assert RECORDED_NOTICE not in session.notices
    assert (changed / "NOTES.md").read_text() == "noted\n"
    assert {category_of(request.action) for request in requests} == {"exec", "filesystem"}
    opening = json.dumps(model.conversations[0])
    assert "demo, second" in opening, "the diff is since the base that was given"
    assert "return a - b" in opening
    assert all(body["stream"] for body in model.conversations)
    keys = {
        name: value for one in model.requests for name, value in one.headers.items() if KEY in value
    }
    assert keys == {"x-api-key": KEY}
    told = json.dumps(model.conversations)
    assert KEY not in told
    assert "gatehouse-placeholder" not in told, "a command sees not even the placeholder"
    assert KEY not in document + log
    records = [json.loads(line) for line in log.splitlines()]
    verdicts = [
        one for one in records if one["event"] == "verdict_given" and one["category"] == "network"
    ]
    assert {(one["verdict"], one["action"]["host"]) for one in verdicts} == {("allow", MODEL_HOST)}
    assert "\\<b\\>operator" in document
    assert "\\[click\\](http\\:" in document


@pytest.mark.many
async def test_a_deny_rule_is_stronger_than_the_sessions_own_rule(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    """The review says so, in the words of the rule, and ends."""
    with MessagesServer([WRITTEN], api_key=KEY) as model:
        policy = (
            f"version: 1\nallow:\n  - network(127.0.0.1:{model.port})\ndeny:\n  -"
            f" network({MODEL_HOST}:{model.port})\n"
        )
        async with start_supervisor(
            policy,
            names={MODEL_HOST: ("127.0.0.1",)},
            anthropic_api_key=KEY,
            anthropic_base_url=f"http://{MODEL_HOST}:{model.port}",
        ) as running:
            session = await running.ended(await running.start(changed, kind="review"))
            assert session.exit_code == 2
            assert session.review is None
            assert f"network({MODEL_HOST}:{model.port})" in running.output(session)
            assert not model.requests


async def test_a_base_url_that_no_rule_can_name_is_refused(
    start_supervisor: StartSupervisor, changed: Path
) -> None:
    async with start_supervisor(
        ASK_ALL, anthropic_api_key=KEY, anthropic_base_url="model.test/v1?x=1"
    ) as running:
        with pytest.raises(UserError, match="ANTHROPIC_BASE_URL"):
            await running.start(changed, kind="review")


async def test_a_report_that_is_no_review_is_refused_and_nothing_is_written(
    start_supervisor: StartSupervisor, workspace: Path
) -> None:
    whole = {
        "model": "m",
        "base": None,
        "head": None,
        **REVIEW,
        "usage": {"turns": 1, "input_tokens": 1, "output_tokens": 1},
    }
    broken = [
        {**whole, "verdict": "fine"},
        {**whole, "findings": [{**FINDING, "severity": "dire"}]},
        {**whole, "approved": True},
        {name: value for name, value in whole.items() if name != "summary"},
    ]
    async with start_supervisor(ASK_ALL) as running:
        bad, output = await running.run(
            workspace, *agent_command(*(("/v1/review", body) for body in broken))
        )
        assert [answer["http"] for answer in answers(output)] == [400] * 4
        assert bad.review is None
        assert not list((running.parts.settings.sessions_dir / bad.id).glob("review.*"))
        good, _ = await running.run(
            workspace,
            *agent_command(("/v1/review", whole), ("/v1/review", {**whole, "summary": "later"})),
        )
        assert good.review is not None
        assert good.review["summary"] == files_of(running, good)[0]["summary"] == "later"
