"""Git verdicts: each ref on its own, options that only a rule which says so lifts, and remotes
that are known."""

from typing import Any

import pytest
from msgspec.structs import replace

from supervisor.core.actions import Git, RefUpdate
from supervisor.core.policy.git_refs import parse_command
from supervisor.core.policy.git_rules import compile_pattern
from supervisor.core.policy.rules import Verdict
from supervisor.errors import PolicyError
from tests.fakes.ruled import ruled
from tests.tables import each_row


def verdict(command: str | Git, **rules: Any) -> Verdict:
    return ruled(parse_command(command) if isinstance(command, str) else command, **rules)


@each_row(
    ("rule", "command", "expected"),
    [
        ("feature/*", "git push origin feature/a/b", "allow"),
        ("feature/*", "git push origin feature", "ask"),
        ("push origin feature/*", "git push origin HEAD:feature/a", "ask"),
        ("push origin HEAD:feature/*", "git push origin HEAD:feature/a", "allow"),
        ("push origin *:feature/*", "git push origin x:feature/a", "allow"),
        ("push origin *", "git push origin x:y", "ask"),
        ("push origin *", "git push origin HEAD", "ask"),
        ("push origin *", "git push origin 'refs/heads/*'", "ask"),
        ("push origin *", "git push origin refs/tags/v1", "ask"),
        ("push origin refs/tags/*", "git push origin tag v1", "allow"),
        ("push origin tag v*", "git push origin tag v1", "allow"),
        ("push origin refs/*", "git push origin refs/notes/x", "ask"),
        ("push origin refs/notes/*", "git push origin refs/notes/x", "allow"),
        ("push origin", "git push origin", "allow"),
        ("push", "git push", "allow"),
        ("*", "git push origin x", "allow"),
        ("*", "git push origin x:y", "ask"),
        ("*", "git push -f origin x", "ask"),
        ("*", "git fetch origin", "allow"),
        ("*", "git log", "ask"),
        # Options are matched only by a rule that says them.
        ("push --force origin x", "git push -f origin x", "allow"),
        ("push --force origin x", "git push origin +x", "allow"),
        ("push --force origin x", "git push --force-with-lease origin x", "allow"),
        (
            "push --force origin x",
            "git push --force-with-lease --force-if-includes origin x",
            "allow",
        ),
        ("push --force origin x", "git push origin x", "ask"),
        ("push --force-with-lease origin x", "git push --force-with-lease=x:abc origin x", "allow"),
        ("push --force-with-lease origin x", "git push --force origin x", "ask"),
        ("push origin +x", "git push -f origin x", "allow"),
        ("push origin :x", "git push --delete origin x", "allow"),
        ("push --delete origin x", "git push origin :x", "allow"),
        ("push -u origin x", "git push -u origin x", "allow"),
        ("push origin x", "git push -u origin x", "allow"),
        # What only reads.
        ("fetch origin", "git fetch origin main", "allow"),
        ("fetch origin", "git fetch --depth=1 origin", "allow"),
        ("fetch origin", "git fetch --upload-pack=x origin", "ask"),
        ("pull", "git pull", "allow"),
        # Operations that reach no further than the copy are judged by their words.
        ("tag v1", "git tag v1", "allow"),
        ("tag v1", "git tag v2", "ask"),
        ("stash", "git stash", "allow"),
        ("show refs/heads/x", "git show refs/heads/x", "allow"),
        ("show refs/heads/x", "git show x", "ask"),
        ("show x", "git show refs/heads/x", "ask"),
        ("show :README", "git show :README", "allow"),
        # What is harmless to a push need not be to another operation.
        ("commit", "git commit -q", "allow"),
        ("commit", "git commit -n", "ask"),
        ("commit -n", "git commit -n", "allow"),
        ("commit -n", "git commit", "ask"),
    ],
)
def test_an_allow_rule_covers_what_it_spells(rule: str, command: str, expected: str) -> None:
    assert verdict(command, allow=[f"git({rule})"]).decision == expected


@each_row(
    ("rule", "command", "expected"),
    [
        ("main", "git push origin main", "deny"),
        ("main", "git push origin HEAD:refs/heads/main", "deny"),
        ("main", "git push origin +x:main", "deny"),
        ("main", "git push origin :main", "deny"),
        ("main", "git push origin x", "ask"),
        ("push", "git push origin x", "deny"),
        ("push *", "git push origin x", "deny"),
        ("push upstream", "git push upstream x", "deny"),
        ("push upstream", "git push origin x", "ask"),
        ("push upstream main", "git push upstream main", "deny"),
        ("push upstream main", "git push origin main", "ask"),
        ("push upstream main", "git push", "ask"),
        ("push origin *", "git push origin x", "deny"),
        ("push origin x", "git fetch origin x", "ask"),
        ("push --force *", "git push -f origin x", "deny"),
        ("push --force *", "git push --force-with-lease=x origin x", "deny"),
        ("push --force *", "git push origin +x", "deny"),
        ("push --force *", "git push origin x", "ask"),
        ("refs/tags/v1", "git push origin tag v1", "deny"),
        ("*", "git status", "deny"),
        # Words of operations that don't reach a remote may stand anywhere.
        ("remote add", "git remote add x y", "deny"),
        ("remote add *", "git remote add x y", "deny"),
        ("remote add evil", "git remote add x evil", "deny"),
        ("remote add evil", "git remote add x y", "ask"),
        ("stash drop", "git stash", "ask"),
        ("commit -n", "git commit -n", "deny"),
        ("commit -n", "git commit", "ask"),
        ("push -n", "git push origin x", "deny"),
        ("show refs/heads/x", "git show x", "ask"),
        # What can't be read is searched for what it might hold.
        ("main", "cd x; git push origin main", "deny"),
        ("main", "git -C x push origin main", "deny"),
        ("main", "git push origin 'main", "deny"),
        ("main", "git push origin x 'y", "ask"),
        # A word that is no ref hides no other.
        ("push *", "git push origin -- -y; ls", "deny"),
        ("main", "git push origin main -- -y; ls", "deny"),
        ("main", "git push origin a..b main; ls", "deny"),
        ("main", "git push origin '..' (", "ask"),
    ],
)
def test_a_deny_rule_means_where_a_ref_ends_up(rule: str, command: str, expected: str) -> None:
    remotes = frozenset({"origin", "upstream"})
    assert verdict(command, deny=[f"git({rule})"], configured_remotes=remotes).decision == expected


def test_more_refs_than_can_be_judged_are_denied() -> None:
    refs = tuple(f"b{number}" for number in range(501))
    found = verdict(Git(operation="push", remote="origin", refspecs=refs), allow=["git(*)"])
    assert found.decision == "deny"
    assert "501 refs" in found.why


def test_exceptions_turn_round() -> None:
    allow = [{"rule": "git(push origin feature/*)", "except": ["git(feature/secret)"]}]
    assert verdict("git push origin feature/a", allow=allow).decision == "allow"
    assert verdict("git push origin refs/heads/feature/secret", allow=allow).decision == "ask"
    deny = [{"rule": "git(push *)", "except": ["git(push origin feature/*)"]}]
    assert verdict("git push origin feature/a", deny=deny).decision == "ask"
    assert verdict("git push -f origin feature/a", deny=deny).decision == "deny"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("git push evil x", "`evil` is not a remote that is configured"),
        (
            "git push https://evil.example/x y",
            "`https://evil.example/x` is not a remote that is configured",
        ),
        ("git clone ext::sh x", "`ext::sh` is not a remote that is configured"),
        ("git fetch --repo=evil", "`evil` is not a remote that is configured"),
        ("git archive ext::sh", "the remote `ext::sh` would run a program or read files"),
        ("git submodule FILE://x", "the remote `FILE://x` would run a program or read files"),
        (
            Git(operation="push", remote="-x", refspecs=("y",)),
            "the remote `-x` could be taken for an option",
        ),
        ("git push origin a..b", "`a..b` is not a valid ref"),
    ],
)
def test_a_remote_that_is_not_known_is_denied_whatever_allows_it(
    action: str | Git, why: str
) -> None:
    found = verdict(
        action, allow=["git(push *)", "git(*)", "git(archive *)"], modes={"git": "allow"}
    )
    assert (found.decision, found.why) == ("deny", why)
    assert found.remedy


def test_remotes_are_those_of_the_host() -> None:
    allow = ["git(push upstream *)"]
    assert (
        verdict(
            "git push upstream x", allow=allow, configured_remotes=frozenset({"upstream"})
        ).decision
        == "allow"
    )
    assert verdict("git push upstream x", allow=allow).decision == "deny"
    # A deny rule is named before the remote is looked at.
    assert verdict("git push evil main", deny=["git(main)"]).rule == "git(main)"


def test_a_push_that_does_not_say_which_branches_could_go_around_a_rule_about_one() -> None:
    for command in (
        "git push",
        "git push origin",
        "git push origin HEAD",
        "git push --all origin",
        "git push --mirror origin",
    ):
        found = verdict(
            command,
            allow=["git(push *)", "git(push)", "git(push origin)", "git(push --all origin)"],
            deny=["git(main)"],
        )
        assert found.decision == "ask", command
    assert (
        verdict("git push origin", allow=["git(push origin)"], deny=["git(fetch evil)"]).decision
        == "allow"
    )
    ended = [{"rule": "git(main)", "expires": "2001-01-01"}]
    assert verdict("git push origin", allow=["git(push origin)"], deny=ended).decision == "allow"


@each_row(
    ("command", "moves", "rules", "expected"),
    [
        ("git push", ["refs/heads/feature/a"], {"allow": ["git(feature/*)"]}, "allow"),
        ("git push origin HEAD", ["refs/heads/x"], {"allow": ["git(push origin x)"]}, "allow"),
        ("git push origin +HEAD", ["refs/heads/x"], {"allow": ["git(push origin x)"]}, "ask"),
        ("git push", ["refs/heads/main"], {"allow": ["git(push)"], "deny": ["git(main)"]}, "deny"),
        ("git push", ["refs/heads/main"], {"allow": ["git(push)"], "ask": ["git(main)"]}, "ask"),
        ("git push", ["refs/heads/x"], {"allow": ["git(push)"]}, "allow"),
        ("git push", ["refs/heads/x"], {"allow": ["git(push)"], "deny": ["git(main)"]}, "ask"),
        ("git push", ["refs/heads/x"], {}, "ask"),
        # A tag is no branch, whatever the words say.
        ("git push origin v1", ["refs/tags/v1"], {"allow": ["git(push origin v*)"]}, "ask"),
        ("git push origin v1", ["refs/tags/v1"], {"allow": ["git(push origin tag v1)"]}, "allow"),
        (
            "git push origin v1 x",
            ["refs/heads/v1", "refs/heads/x"],
            {"allow": ["git(push origin *)"]},
            "allow",
        ),
        # What is checked out beside a name: each by what it moves.
        (
            "git push origin HEAD x",
            ["refs/heads/main", "refs/heads/x"],
            {"allow": ["git(push origin *)"], "deny": ["git(push main)"]},
            "deny",
        ),
        ("git push origin x", ["refs/heads/x"], {"allow": ["git(push origin x)"]}, "allow"),
        # Another name of the same ref at the remote moves along.
        (
            "git push origin x",
            ["refs/heads/x", "refs/heads/release"],
            {"allow": ["git(push origin x)"]},
            "ask",
        ),
        (
            "git push",
            ["refs/heads/x", "refs/heads/release"],
            {"allow": ["git(push origin *)"], "deny": ["git(release)"]},
            "deny",
        ),
        ("git push origin HEAD:x", ["refs/heads/x"], {"deny": ["git(push x)"]}, "deny"),
    ],
)
def test_a_planned_push_is_judged_by_what_it_moves(
    command: str, moves: list[str], rules: dict[str, list[str]], expected: str
) -> None:
    updates = tuple(RefUpdate(ref, "", "b" * 40) for ref in moves)
    planned = replace(parse_command(command), url="git@git.example.org:a", updates=updates)
    assert verdict(planned, **rules).decision == expected


@pytest.mark.parametrize(
    ("command", "move", "is_deleted"),
    [
        ("git push origin feature/x", "refs/heads/main", False),
        ("git push origin refs/heads/x", "refs/tags/x", False),
        ("git push origin HEAD:x", "refs/heads/y", False),
        ("git push origin x", "refs/heads/x", True),
        ("git push", "refs/heads/x", True),
        ("git push origin :x", "refs/heads/x", False),
        ("git push --delete origin x", "refs/heads/x", False),
    ],
)
def test_a_push_that_would_move_what_its_words_do_not_name_is_denied(
    command: str, move: str, is_deleted: bool
) -> None:
    update = RefUpdate(move, "a" * 40, "" if is_deleted else "b" * 40)
    planned = replace(parse_command(command), updates=(update,))
    found = verdict(planned, allow=["git(push origin *)", "git(push --delete origin *)"])
    assert found.decision == "deny"
    assert found.why == f"this push moves `{move}`, which its words don't name"


@pytest.mark.parametrize(
    "name", ["refs/heads/HEAD", "heads/head", "x:HEAD", "refs/heads/refs/heads/main", "cafe\u0301"]
)
def test_a_name_that_could_be_read_in_two_ways_is_denied(name: str) -> None:
    found = verdict(f"git push origin {name}", allow=["git(push origin *)"])
    assert (found.decision, found.why.endswith("is not a valid ref")) == ("deny", True)


def test_the_why_names_the_option_that_needs_a_rule() -> None:
    found = verdict("git push -f origin x", allow=["git(push origin x)"])
    assert found.why == "no rule matches; git asks; `--force` needs a rule that says so"
    assert verdict("git push -f origin x", ask=["git(x)"]).why == "asked by git(x)"


def test_fields_and_command_must_say_the_same() -> None:
    both = Git(operation="push", remote="origin", refspecs=("x",), command="git push origin main")
    assert (
        verdict(both, allow=["git(x)"]).why
        == "the fields of this action and its command don't say the same"
    )
    alone = Git(operation="", command="git push origin x")
    assert verdict(alone, allow=["git(x)"]).decision == "allow"
    assert (
        verdict(Git(operation=""), allow=["git(*)"]).why
        == "no git operation is named, so no rule may allow it"
    )
    assert verdict(Git(operation="push; id", remote="origin"), allow=["git(*)"]).decision == "ask"


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("git push origin x", "names git twice"),
        ("--force", "names no operation"),
        ("push origin x y", "names more than one ref"),
        ("push origin x; y", "holds `;`"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_remedy(pattern: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        compile_pattern(pattern)
    assert said in caught.value.message
    assert caught.value.remedy


def test_a_ref_is_tidied_in_a_pattern_as_in_an_action() -> None:
    assert compile_pattern("push origin refs/heads/a:refs/heads/b").words == (
        "push",
        "origin",
        "a:b",
    )
    assert compile_pattern("push origin tag v1").words == ("push", "origin", "refs/tags/v1")
    assert compile_pattern("tag v1").words == ("tag", "v1")
    assert compile_pattern("git").words == ("git",)
    assert compile_pattern("* *").is_bare
