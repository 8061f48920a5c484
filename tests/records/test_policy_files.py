"""Policy files: the last good one stays, nothing opens by accident, and what was saved is there
after a crash."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from supervisor.core.actions import Network
from supervisor.core.policy.evaluate import evaluate
from supervisor.errors import NotFoundError, PolicyError
from supervisor.records.policy_files import PolicyFiles, Until
from tests.fakes.clock import FakeClock

BASE = "version: 1\nallow: [network(a.example.org)]\n"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    path = tmp_path / "base.yaml"
    path.write_text(BASE)
    return path


def opened(base: Path) -> PolicyFiles:
    return PolicyFiles(base, base.with_name("saved.yaml"), FakeClock())


def verdict(files: PolicyFiles, host: str, session_text: str = "") -> str:
    policy = files.for_session(session_text)
    return evaluate(policy, Network(operation="connect", host=host, port=443), now=0).decision


def test_a_changed_file_is_in_force_at_the_next_decision(base: Path) -> None:
    files = opened(base)
    assert verdict(files, "b.example.org") == "ask"
    base.write_text("version: 1\nallow: [network(b.example.org)]\n")
    assert (verdict(files, "a.example.org"), verdict(files, "b.example.org")) == ("ask", "allow")


def test_what_else_a_verdict_means_is_asked_of_the_rules_that_made_it(base: Path) -> None:
    files = opened(base)
    for session_text in ("", "version: 1\nallow: [network(c.example.org)]\n"):
        seen = files.for_session(session_text)
        base.write_text(BASE + "# changed\n")
        assert files.known_for_session(session_text) is seen
        assert files.for_session(session_text) is not seen
        base.write_text(BASE)


@pytest.mark.parametrize(
    "broken", ["version: 1\nallow: [network(", "allow: 3", "version: 1\nallwo: []", "\xff\xfe"]
)
def test_a_broken_file_keeps_the_last_good_policy_and_raises_a_banner(
    base: Path, broken: str
) -> None:
    files = opened(base)
    base.write_bytes(broken.encode("latin-1"))
    assert verdict(files, "a.example.org") == "allow"
    assert "the last good policy stays in force" in (files.banner or "")
    base.write_text(BASE)
    assert files.banner is None


def test_a_vanished_file_keeps_the_last_good_policy(base: Path) -> None:
    files = opened(base)
    base.unlink()
    assert verdict(files, "a.example.org") == "allow"
    assert files.banner is not None


def test_with_no_good_policy_ever_everything_is_denied(tmp_path: Path) -> None:
    files = opened(tmp_path / "absent.yaml")
    assert verdict(files, "a.example.org") == "deny"
    assert "everything is denied" in (files.banner or "")


def test_saved_rules_that_never_parsed_may_hold_denials_so_nothing_is_allowed(base: Path) -> None:
    base.with_name("saved.yaml").write_text("version: 1\ndeny: [")
    assert verdict(opened(base), "a.example.org") == "deny"


def test_a_saved_rule_survives_and_can_be_removed(base: Path) -> None:
    rule_id = opened(base).add_rule("deny", "network(a.example.org)", why="no more", by="operator")
    files = opened(base)
    assert verdict(files, "a.example.org") == "deny"
    saved = next(rule for rule in files.current().rules if rule.id == rule_id)
    assert (saved.why, saved.added_by, saved.added_at) == ("no more", "operator", FakeClock().now())
    assert files.remove_rule(rule_id) == "network(a.example.org)"
    assert verdict(opened(base), "a.example.org") == "allow"
    with pytest.raises(NotFoundError):
        files.remove_rule(rule_id)


@pytest.mark.parametrize(
    "rule",
    [
        "network(*)",
        "network(*.com)",
        "nonsense",
        "network(",
        "sandbox(x)",
        "network(a.example.org)\nallow: x",
    ],
)
def test_a_rule_that_may_not_be_saved_leaves_the_file_as_it_was(base: Path, rule: str) -> None:
    files = opened(base)
    files.add_rule("allow", "network(ok.example.org)", why="", by="operator")
    before = base.with_name("saved.yaml").read_bytes()
    with pytest.raises(PolicyError):
        files.add_rule("allow", rule, why="", by="operator")
    assert base.with_name("saved.yaml").read_bytes() == before


def test_a_saved_file_that_a_person_broke_is_not_built_upon(base: Path) -> None:
    files = opened(base)
    files.add_rule("allow", "network(ok.example.org)", why="", by="operator")
    base.with_name("saved.yaml").write_text("version: 1\nallow: [")
    with pytest.raises(PolicyError):
        files.add_rule("allow", "network(more.example.org)", why="", by="operator")
    assert verdict(files, "ok.example.org") == "allow"


def test_what_a_person_wrote_into_the_saved_file_is_kept_as_it_is_read(base: Path) -> None:
    files = opened(base)
    saved = base.with_name("saved.yaml")
    saved.write_text(
        "version: 1\nask:\nmodes: {git: ask}\n"
        "deny:\n- {rule: network(a.example.org), why: no, id: 12345678, expires: 2999-01-31}\n"
        "allow:\n- {rule: network(b.example.org), why: 2026-13-45, uses: 20, id: b}\n"
    )
    before = {rule.id: rule for rule in files.current().rules}
    assert (before["12345678"].why, before["b"].why) == ("no", "2026-13-45")
    rule_id = files.add_rule("ask", "network(c.example.org)", why="", by="operator")
    after = {rule.id: rule for rule in files.current().rules}
    assert after.pop(rule_id).text == "network(c.example.org)"
    assert [replace(rule, line=0) for rule in after.values()] == [
        replace(rule, line=0) for rule in before.values()
    ]
    assert files.remove_rule("12345678") == "network(a.example.org)"


def test_a_saved_file_nested_without_end_is_a_mistake_like_another(base: Path) -> None:
    files = opened(base)
    base.with_name("saved.yaml").write_text("allow: " + "[" * 100_000)
    with pytest.raises(PolicyError, match="nested too deeply"):
        files.add_rule("deny", "network(a.example.org)", why="", by="operator")


def test_a_session_has_rules_of_its_own_and_no_other_session_has_them(base: Path) -> None:
    files = opened(base)
    text = "version: 1\nallow: [network(model.example.org)]\n"
    assert verdict(files, "model.example.org", text) == "allow"
    assert verdict(files, "model.example.org") == "ask"
    files.add_rule("deny", "network(model.example.org)", why="", by="operator")
    assert verdict(files, "model.example.org", text) == "deny"


def test_watchers_hear_of_changes(base: Path) -> None:
    files = opened(base)
    heard: list[bool] = []
    files.on_change = heard.append
    files.add_rule("allow", "network(ok.example.org)", why="", by="operator")
    base.write_text(BASE + "# by hand\n")
    assert files.banner is None
    assert heard == [True, False]


def answer_to(files: PolicyFiles, clock: FakeClock, session_id: str) -> str:
    action = Network(operation="connect", host="b.example.org", port=443)
    return evaluate(files.current(), action, now=clock.now(), session_id=session_id).decision


def test_a_rule_for_a_time_ends_with_it_and_goes_with_the_next_one_saved(base: Path) -> None:
    clock, saved = FakeClock(), base.with_name("saved.yaml")
    files = PolicyFiles(base, saved, clock)
    until = Until(at=clock.now() + 900)
    files.add_rule("allow", "network(b.example.org)", why="for a while", by="tester", until=until)
    reopened = PolicyFiles(base, saved, clock)
    clock.advance(899)
    assert (answer_to(files, clock, "one"), answer_to(reopened, clock, "two")) == ("allow", "allow")
    clock.advance(2)
    assert (answer_to(files, clock, "one"), answer_to(reopened, clock, "two")) == ("ask", "ask")
    files.add_rule("deny", "network(c.example.org)", why="", by="tester")
    assert [one.pattern for one in files.drop_ended(lambda _: True)] == ["b.example.org"]
    assert files.drop_ended(lambda _: True) == []
    assert "b.example.org" not in saved.read_text()
    assert "c.example.org" in saved.read_text()


def test_a_rule_of_a_session_holds_in_no_other_and_goes_with_it(base: Path) -> None:
    clock, saved = FakeClock(), base.with_name("saved.yaml")
    files = PolicyFiles(base, saved, clock)
    files.add_rule(
        "allow", "network(b.example.org)", why="", by="tester", until=Until(session_id="one")
    )
    files.add_rule("deny", "network(c.example.org)", why="", by="tester")
    assert (answer_to(files, clock, "one"), answer_to(files, clock, "two")) == ("allow", "ask")
    assert files.drop_ended(lambda session: session == "two") == []
    assert answer_to(files, clock, "one") == "allow"
    assert [one.session for one in files.drop_ended(lambda session: session == "one")] == ["one"]
    assert answer_to(files, clock, "one") == "ask"
    assert "b.example.org" not in saved.read_text()
    assert "c.example.org" in saved.read_text()


def test_the_end_of_a_session_is_no_moment_to_fail_at(base: Path) -> None:
    clock, saved = FakeClock(), base.with_name("saved.yaml")
    files = PolicyFiles(base, saved, clock)
    files.add_rule(
        "allow", "network(b.example.org)", why="", by="tester", until=Until(session_id="one")
    )
    saved.write_text("version: 1\nallow: [network(")
    assert files.drop_ended(lambda _: True) == []
    assert saved.read_text() == "version: 1\nallow: [network("
