"""What a rule would answer, shown before it is saved: over the database's requests, by API,
pages and CLI alike."""

from typing import Any

import httpx
import pytest

from supervisor.cli import terminal
from supervisor.core.actions import Exec, FileChange, Git, Network, Packages, Proposal
from supervisor.core.approvals import Request
from supervisor.core.lab.past import read_history
from supervisor.core.lab.preview import PastGroup, preview
from supervisor.core.policy.policy_text import parse_rule
from supervisor.errors import PolicyError
from supervisor.server.operator import decisions, rules_view
from tests.fakes.parts import SECRET, FakeParts

BY = "operator (browser)"


def ask(parts: FakeParts, command: str, answer: Any = None, session: str = "one") -> Request:
    request = parts.gate.ask(Exec(command=command), session_id=session)
    parts.clock.advance(1)
    if answer is not None:
        parts.gate.resolve(request.id, answer, by=BY)
    return request


def test_what_was_asked_before_and_what_waits_are_apart(parts: FakeParts) -> None:
    ask(parts, "npm test a", "approved")
    ask(parts, "npm run evil", "denied")
    ask(parts, "npm test b")
    own = ask(parts, "npm run check")
    seen = rules_view.preview_of_rule(parts, "allow", "exec(npm *)", leaving_out=own.id)
    assert (
        seen.summary
        == "would have answered 2 of the last 2 exec requests: 1 you approved, 1 you denied"
    )
    assert seen.waiting == PastGroup(1, ("npm test b",))
    assert seen.against == PastGroup(1, ("npm run evil",))
    assert rules_view.preview_of_rule(parts, "allow", "exec(npm *)").waiting.count == 2
    assert (
        parts.policies.current().of("exec", "allow")[0].text == "exec(git status)"
    )  # nothing was saved


async def test_superseded_closed_and_ruled_requests_are_nobodys_answer(parts: FakeParts) -> None:
    for after in ("1", "2"):
        parts.gate.ask(FileChange(operation="write", path="src/a", after=after), session_id="one")
    second = parts.queue.pending()[0]
    parts.gate.answers.close("the agent has exited", second.id)
    past = rules_view.preview_of_rule(parts, "allow", "filesystem(src/*)").past
    assert (past.asked, past.unanswered.count, past.denied.count) == (2, 2, 0)
    ask(parts, "npm test")
    await decisions.add_rule(parts, "allow", "exec(npm test)", why="", by=BY)
    assert rules_view.preview_of_rule(parts, "deny", "exec(npm *)").past.unanswered.titles == (
        "npm test",
    )


def test_rules_in_force_count(parts: FakeParts) -> None:
    ask(parts, "git status && npm test", "approved")
    ask(parts, "make deploy", "approved")  # a written ask rule asks it every time
    assert rules_view.preview_of_rule(parts, "allow", "exec(npm test)").past.approved.count == 1
    assert rules_view.preview_of_rule(parts, "allow", "exec(make *)").past.approved.count == 0


def test_a_stricter_rule_shows_what_was_let_through(parts: FakeParts) -> None:
    ask(parts, "git status")
    seen = rules_view.preview_of_rule(parts, "deny", "exec(git *)")
    assert seen.past.by_rules == PastGroup(1, ("git status",))
    assert (
        seen.summary
        == "no earlier exec request to compare with; would have denied 1 that rules allowed"
    )


def test_secrets_are_told_and_not_shown(parts: FakeParts) -> None:
    ask(parts, f"curl -H {SECRET} https://a.example.org", "denied")
    ask(parts, f"echo {SECRET}")
    parts.redactor.add("registered-later")
    ask(parts, "curl registered-early", "approved")
    parts.redactor.add("registered-early")
    seen = rules_view.preview_of_rule(parts, "allow", "exec(curl *)")
    assert seen.past.redacted == 1
    assert seen.past.approved.titles == ("curl [redacted]",)
    waiting = rules_view.preview_of_rule(parts, "allow", "exec(echo *)").waiting
    assert waiting == PastGroup(1, ("echo [redacted]",))


def test_the_work_of_a_click_is_bounded(parts: FakeParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules_view, "MOST_PAST", 3)
    monkeypatch.setattr(rules_view, "MOST_WAITING", 2)
    for number in range(30):
        ask(parts, f"npm test {number}", "approved" if number < 20 else None)
        parts.gate.ask(
            Network(operation="connect", host=f"h{number}.example.org", port=443), session_id="one"
        )
    seen = rules_view.preview_of_rule(parts, "allow", "exec(npm *)")
    assert (seen.past.asked, seen.waiting.count) == (2, 2)  # of the last 12 of the category 10 wait
    for one in parts.queue.pending():
        parts.gate.resolve(one.id, "denied", by=BY)
    seen = rules_view.preview_of_rule(parts, "allow", "exec(npm *)")
    assert seen.past.asked == 3
    assert seen.past.denied.titles == ("npm test 29", "npm test 28", "npm test 27")  # newest first


@pytest.mark.parametrize(
    ("rule", "actions"),
    [
        ("exec(npm *)", [Exec(command="npm a"), Exec(command="npm b; rm x"), Exec(command="make")]),
        ("filesystem(src/**)", [FileChange(operation="write", path=path) for path in ("src/a",
         "src/.envrc", "b")]),
        ("network(*.example.org)", [Network(operation="connect", host=host,
         port=443) for host in ("a.example.org", "b.test")]),
        ("git(main)", [Git(operation="push", remote="origin", refspecs=(ref,)) for ref in ("main",
         "dev")]),
        ("packages(npm:a)", [Packages(manager="npm", operation="install", names=(name,
         )) for name in ("a", "b")]),
    ],
)  # fmt: skip
def test_database_and_record_say_the_same(parts: FakeParts, rule: str, actions: list[Any]) -> None:
    """One implementation over two sources: the requests of the database, and the audit log read
    back."""
    for number, action in enumerate([*actions, Proposal(effect="allow", rule=rule)]):
        request = parts.gate.ask(action, session_id="one")
        parts.gate.resolve(request.id, "denied" if number % 2 else "approved", by=BY)
        parts.clock.advance(1)
    lines = (parts.settings.data_dir / "audit.log").read_bytes().splitlines(keepends=True)
    by_record = preview(
        parse_rule(rule, "allow"), reversed(read_history(lines, "log")), parts.policies.current()
    )
    assert rules_view.preview_of_rule(parts, "allow", rule).past == by_record
    assert by_record.asked == len(actions)
    assert by_record.answered >= 1


# -- the API --------------------------------------------------------------------------------------


async def test_the_api_gives_it(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    ask(parts, "npm test", "approved")
    answer = await cli.get("/api/rules/preview", params={"effect": "allow", "rule": "exec(npm *)"})
    body = answer.json()
    assert (answer.status_code, body["rule"], body["effect"]) == (200, "exec(npm *)", "allow")
    assert body["summary"] == "would have answered 1 of 1 exec request: 1 you approved"
    assert body["past"]["approved"] == {"count": 1, "titles": ["npm test"]}
    assert parts.policies.current().of("exec", "allow")[0].text == "exec(git status)"


@pytest.mark.parametrize(
    ("effect", "rule"), [("allow", "exce(x)"), ("allow", "network(*.com)"), ("allow", ""), ("allow",
     "x" * 5000), ("maybe", "exec(x)")]
)  # fmt: skip
async def test_a_rule_that_can_not_be_one_is_an_error(
    cli: httpx.AsyncClient, effect: str, rule: str
) -> None:
    answer = await cli.get("/api/rules/preview", params={"effect": effect, "rule": rule})
    assert answer.status_code == 400
    assert answer.json()["why"]


def test_the_function_says_why(parts: FakeParts) -> None:
    with pytest.raises(PolicyError, match="exce"):
        rules_view.preview_of_rule(parts, "allow", "exce(x)")


# -- pages ----------------------------------------------------------------------------------------


async def test_the_page_shows_it_for_a_rule_that_is_typed(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    ask(parts, "npm '<b>evil</b>'", "denied")
    text = (
        await browser.get("/rules/preview", params={"effect": "allow", "rule": "exec(npm *)"})
    ).text
    assert "would have answered 1 of 1 exec request: 1 you denied" in text
    assert "npm &#39;&lt;b&gt;evil&lt;/b&gt;&#39;" in text
    for params in (
        {"effect": "allow", "rule": "exce(x)"},
        {"effect": "", "rule": "exec(x)"},
        {"effect": "allow"},
    ):
        answer = await browser.get("/rules/preview", params=params)
        assert (answer.status_code, 'class="error"' in answer.text) == (200, True)


async def test_a_card_shows_it_for_each_rule_that_it_offers(
    browser: httpx.AsyncClient, parts: FakeParts
) -> None:
    def connect(host: str) -> Request:
        parts.clock.advance(1)
        return parts.gate.ask(Network(operation="connect", host=host, port=443), session_id="one")

    for host, answer in (
        ("a.example.org", "approved"),
        ("b.example.org", "approved"),
        ("evil.example.org", "denied"),
    ):
        parts.gate.resolve(connect(host).id, answer, by=BY)  # type: ignore[arg-type]
    text = (await browser.get(f"/requests/{connect('c.example.org').id}/always/allow")).text
    broad, _, exact = text.partition('value="network(c.example.org)"')
    assert (
        "would have answered 3 of the last 3 network requests: 2 you approved, 1 you denied"
        in broad
    )
    assert "<code>connect evil.example.org:443</code>" in broad
    assert "would have answered none of the last 3 network requests" in exact


# -- the CLI --------------------------------------------------------------------------------------


async def test_the_cli_prints_it(cli: httpx.AsyncClient, parts: FakeParts) -> None:
    for number in range(6):
        ask(parts, f"npm x{number}\x1b[2J", "approved")
    ask(parts, "npm y", "denied")
    seen = (
        await cli.get("/api/rules/preview", params={"effect": "deny", "rule": "exec(npm *)"})
    ).json()
    lines = terminal.rule_preview_lines(seen).splitlines()
    assert (
        lines[0]
        == "would have answered 7 of the last 7 exec requests: 6 you approved, 1 you denied"
    )
    assert lines[1].startswith("    you approved: npm x5")
    assert lines[1].endswith(", ...")
    assert "\x1b" not in lines[1]
    assert len(lines) == 2
