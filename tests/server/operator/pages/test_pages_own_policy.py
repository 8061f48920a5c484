"""What pages and API say of a session that has a policy and limits of its own, and where its
rules are saved."""

from pathlib import Path

import httpx
import pytest

from supervisor.core.actions import Exec
from supervisor.core.approvals import status
from supervisor.core.sessions import OwnLimits
from supervisor.server.operator import rules_view
from tests.fakes.parts import FakeParts


@pytest.fixture
def own(parts: FakeParts) -> Path:
    """The policy of session `apart`; `one` and `two` have the supervisor's."""
    file = parts.settings.data_dir / "strict.yaml"
    file.write_text("version: 1\nallow: [exec(git log)]\n")
    facts = parts.gate.rulings.policy_sets.wanted(file)
    parts.sessions.add("apart", limits=OwnLimits(memory_bytes=256 << 20), **facts)
    return file


async def test_always_says_where_it_saves_and_answers_only_there(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts, own: Path
) -> None:
    saved = own.with_name("saved-strict.yaml")
    mine = parts.gate.ask(Exec(command="make docs"), session_id="apart")
    other = parts.gate.ask(Exec(command="make docs"), session_id="one")
    form = await browser.get(f"/requests/{mine.id}/always/allow")
    assert f'<code data-role="saved-in">{saved}</code>' in form.text
    answer = await cli.post(
        f"/api/requests/{mine.id}/approve",
        json={"always": "exec(make docs)", "fingerprint": mine.fingerprint},
    )
    assert answer.json()["saved_in"] == str(saved)
    assert (status(parts.queue.get(other.id)), answer.json()["also"]) == ("pending", [])
    form = await browser.get(f"/requests/{other.id}/always/allow")
    assert f'<code data-role="saved-in">{parts.settings.saved_rules_file}</code>' in form.text
    await cli.delete(f"/api/rules/{answer.json()['rule_id']}")
    assert "make docs" not in saved.read_text()


async def test_the_agents_proposal_is_saved_for_its_own_policy(parts: FakeParts, own: Path) -> None:
    from supervisor.channels.proposals import ProposalBroker
    from supervisor.core.actions import Proposal

    proposal = Proposal(effect="allow", rule="exec(make docs)", why="often")
    request = parts.gate.ask(proposal, session_id="apart")
    parts.gate.resolve(request.id, "approved", by="operator")
    await ProposalBroker(parts.gate).carry_out(parts.queue.get(request.id))
    assert "make docs" in own.with_name("saved-strict.yaml").read_text()
    assert parts.gate.rulings.verdict(Exec(command="make docs"), "one").decision == "ask"


def test_a_preview_speaks_of_the_sessions_that_the_rule_would_hold_in(
    parts: FakeParts, own: Path
) -> None:
    for session in ("one", "apart"):
        parts.gate.ask(Exec(command="npm test a"), session_id=session)
        done = parts.gate.ask(Exec(command=f"npm test {session}"), session_id=session)
        parts.gate.resolve(done.id, "approved", by="operator")
    (mine,) = parts.queue.pending("apart")
    theirs = rules_view.preview_of_rule(parts, "allow", "exec(npm *)", leaving_out=mine.id)
    ours = rules_view.preview_of_rule(parts, "allow", "exec(npm *)")
    assert (theirs.waiting.count, theirs.past.approved.titles) == (0, ("npm test apart",))
    assert (ours.waiting.count, ours.past.approved.titles) == (1, ("npm test one",))


async def test_the_rules_page_shows_the_policies_of_single_sessions(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, parts: FakeParts, own: Path
) -> None:
    parts.gate.rulings.policies_of("apart").add_rule(
        "deny", "network(x.example.org)", why="", by="test"
    )
    page = (await browser.get("/rules")).text
    assert f"<code>{own}</code> judges the sessions that were started with it" in page
    assert "with strict.yaml only" in page
    listed = {(one["rule"], one["policy_file"]) for one in (await cli.get("/api/rules")).json()}
    assert {
        ("exec(git log)", str(own)),
        ("exec(git status)", str(parts.settings.policy_file)),
    } <= listed
    parts.gate.rulings.close_session("apart")
    assert str(own) not in (await browser.get("/rules")).text


async def test_the_sessions_page_shows_its_policy_and_limits(
    browser: httpx.AsyncClient, cli: httpx.AsyncClient, own: Path
) -> None:
    page = (await browser.get("/sessions/apart")).text
    assert f'data-role="policy">{own}</dd>' in page
    assert 'data-role="limits">memory 256 MB ' in page
    assert 'data-role="limits"' not in (await browser.get("/sessions/one")).text
    seen = (await cli.get("/api/sessions/apart")).json()
    assert (seen["policy_file"], seen["limits"]) == (str(own), {"memory_bytes": 256 << 20})


async def test_a_banner_names_the_policy_of_a_session_that_broke(
    cli: httpx.AsyncClient, parts: FakeParts, own: Path
) -> None:
    own.write_text("version: 1\nallwo: []\n")
    assert f"{own}:2" in (await cli.get("/api/status")).json()["banner"]
    assert parts.gate.rulings.verdict(Exec(command="git log"), "apart").decision == "allow"
