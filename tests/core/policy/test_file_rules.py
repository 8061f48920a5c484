"""Filesystem verdicts: paths, protected names, hazards, and how deny rules see other spellings."""

from typing import Any

import msgspec
import pytest

from supervisor.core.actions import FileChange
from supervisor.core.policy.file_rules import (
    FileJudge,
    check_name,
    check_pattern,
    exception_for,
    fits,
    spells_out,
)
from supervisor.core.policy.policy_text import parse_policy, parse_rule, policy_from_data
from supervisor.core.policy.rules import Verdict
from supervisor.core.text.paths import canonical
from supervisor.errors import PolicyError
from tests.fakes.ruled import ruled
from tests.tables import each_row


def write(path: str, **fields: Any) -> FileChange:
    return FileChange(**{"operation": "write", "path": path, **fields})


def verdict(action: str | FileChange, **rules: Any) -> Verdict:
    return ruled(write(action) if isinstance(action, str) else action, **rules)


@each_row(
    ("pattern", "path", "allowed", "denied"),
    [
        ("src/*", "src/a.py", True, True),
        ("src/*", "src/a/b.py", False, False),
        ("src/**", "src/a/b.py", True, True),
        ("**/*.py", "a/b.py", True, True),
        ("*.py", "a.py", True, True),
        ("**/secret", "a/secret", True, True),
        ("**/secret/**", "a/secret/b", True, True),
        ("src/a.py", "src/a.py", True, True),
        ("./src//a.py", "src/a.py", True, True),
        (".", "a/b", True, True),
        ("*", "a/b", True, True),
        ("**", "a/b", True, True),
        # Other spellings of a name are the same file on some file system: denied, never allowed.
        ("src/a.py", "SRC/A.PY", False, True),
        ("src/*.py", "src/A.PY", False, True),
        ("caf\u00e9", "cafe\u0301", False, True),
        ("src/a", "src/a.", False, True),
    ],
)
def test_a_rule_allows_its_own_spelling_and_denies_every_other(
    pattern: str, path: str, allowed: bool, denied: bool
) -> None:
    assert (verdict(path, allow=[f"filesystem({pattern})"]).decision == "allow") is allowed
    assert (verdict(path, deny=[f"filesystem({pattern})"]).decision == "deny") is denied


def test_exceptions_of_each_kind_err_to_the_stricter_side() -> None:
    allow = [{"rule": "filesystem(src/**)", "except": ["filesystem(src/gen/**)"]}]
    assert verdict("src/a", allow=allow).decision == "allow"
    assert verdict("src/gen/a", allow=allow).decision == "ask"
    assert verdict("src/GEN/a", allow=allow).decision == "ask"
    deny = [{"rule": "filesystem(**)", "except": ["filesystem(src/**)"]}]
    assert verdict("src/a", deny=deny).decision == "ask"
    assert verdict("SRC/a", deny=deny).decision == "deny"
    asked = [{"rule": "filesystem(lib/**)", "except": ["filesystem(lib/a)"]}]
    assert verdict("lib/a", ask=asked).rule is None
    assert verdict("lib/A", ask=asked).rule == "filesystem(lib/**)"


@pytest.mark.parametrize(
    ("action", "why"),
    [
        (write("../a"), "`../a` holds `..`, so it could leave the workspace"),
        (write("/etc/passwd"), "`/etc/passwd` is absolute, so it leaves the workspace"),
        (FileChange(operation="rename", path="a"), "a rename that doesn't say where to"),
        (
            FileChange(operation="rename", path="a", to="../b"),
            "`../b` holds `..`, so it could leave the workspace",
        ),
        (
            FileChange(operation="symlink", path="a/l", link_target="../../x"),
            "a link that points out of the workspace",
        ),
    ],
)
def test_what_leaves_the_workspace_is_denied(action: FileChange, why: str) -> None:
    found = verdict(action, allow=["filesystem(**)"], modes={"filesystem": "allow"})
    assert (found.decision, found.why) == ("deny", why)
    assert found.remedy


@pytest.mark.parametrize(
    "action",
    [
        FileChange(operation="symlink", path="a/l", link_target="b"),
        write("a", hazards=("hardlink",)),
        write("a", mode=0o4755),
        FileChange(operation="chmod", path="a"),
        FileChange(operation="chmod", path="a", mode=0o755),
        write("a\x07b"),
        FileChange(operation="write", path="", path_b64="YYBi"),
    ],
)
def test_a_hazard_is_asked_whatever_allows_it(action: FileChange) -> None:
    found = verdict(action, allow=["filesystem(**)"], modes={"filesystem": "allow"})
    assert (found.decision, found.sticky) == ("ask", True)
    assert "is never allowed by a rule" in found.why


def test_a_rename_is_judged_by_the_bytes_of_both_names() -> None:
    def to(encoded: str) -> str:
        move = FileChange(operation="rename", path="src/a", to="src/shown", to_b64=encoded)
        return verdict(
            move, allow=["filesystem(src/**)"], deny=["filesystem(src/closed/**)"]
        ).decision

    assert to("c3JjL2I=") == "allow"  # src/b
    assert to("c3JjL/8=") == "ask"  # src/\xff
    assert to("bGliL2I=") == "ask"  # lib/b
    assert to("c3JjL2Nsb3NlZC//") == "deny"  # src/closed/\xff
    assert to("Li4v/w==") == "deny"  # ../\xff
    assert to("LmdpdC//") == "deny"  # .git/\xff
    assert to("not base64") == "deny"


def test_a_folders_mode_makes_nothing_executable() -> None:
    opened = FileChange(operation="chmod", path="src/a", before="dir", after="dir", mode=0o755)
    assert verdict(opened, allow=["filesystem(src/**)"]).decision == "allow"
    assert verdict(opened, deny=["filesystem(src/**)"]).decision == "deny"
    for mode in (None, 0o2755):
        assert (
            verdict(msgspec.structs.replace(opened, mode=mode), allow=["filesystem(**)"]).decision
            == "ask"
        )


def test_a_mode_that_adds_nothing_is_no_hazard() -> None:
    assert (
        verdict(
            FileChange(operation="chmod", path="a", mode=0o644), allow=["filesystem(**)"]
        ).decision
        == "allow"
    )
    assert verdict(write("a", mode=0o755), allow=["filesystem(**)"]).decision == "allow"


@pytest.mark.parametrize(
    "path", [".git", ".git/config", "sub/.GIT/hooks/x", "git~1", ".git./x", ".g\u200bit/x"]
)
def test_git_itself_is_denied_at_any_depth_and_in_any_spelling(path: str) -> None:
    found = verdict(path, allow=["filesystem(**)"])
    assert found.decision == "deny"
    assert "git operation" in found.remedy


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        "a/.env.local",
        ".github/workflows/ci.yml",
        "x/.ENVRC",
        "node_modules/.bin/x",
        "a/b.pth",
    ],
)
def test_a_protected_name_is_asked_unless_a_rule_spells_the_path_out(path: str) -> None:
    asked = verdict(path, allow=["filesystem(**)"])
    assert (asked.decision, asked.sticky) == ("ask", False)
    assert asked.why.startswith("protected name ")
    assert verdict(path, allow=[f"filesystem({path})"]).decision == "allow"
    # A mode never lifts one either; a rule that asks for the path is what asks.
    assert verdict(path, modes={"filesystem": "allow"}).decision == "ask"
    assert verdict(path, ask=[f"filesystem({path})"]).rule == f"filesystem({path})"


def test_a_policy_adds_protected_names_and_takes_some_off() -> None:
    protected = {"ask": ["Makefile"], "deny": [{"name": "vault/**", "why": "keys"}]}
    policy = policy_from_data(
        {"allow": ["filesystem(**)"], "protected": protected, "unprotected": [".env*"]}
    )
    judge = policy.judge_for("filesystem")
    assert isinstance(judge, FileJudge)
    assert [name.decision if name else None for name in map(judge.protected, ("Makefile",
    "a/vault/x", ".env", "a/.env.local", "src/a"))] == [
        "ask", "deny", None, None, None,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("/a", "is not below the workspace"),
        ("~/a", "is not below the workspace"),
        ("a/", "ends in a slash"),
        ("a/../b", "holds `..`"),
        ("a**", "`**` beside other characters"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_remedy(pattern: str, said: str) -> None:
    for check in (lambda: check_pattern(pattern, "allow"), lambda: check_name(pattern)):
        with pytest.raises(PolicyError) as caught:
            check()
        assert said in caught.value.message
        assert caught.value.remedy


def test_a_protected_name_is_not_nothing() -> None:
    with pytest.raises(PolicyError, match="an empty protected name"):
        check_name("  ")


def test_one_rule_can_be_asked_about_one_path() -> None:
    """What `explain` tells of a rule, whatever else is in force."""
    rule = policy_from_data(
        {
            "deny": [
                {
                    "rule": "filesystem(src/**)",
                    "except": ["filesystem(src/gen/*)", "filesystem(src/x)"],
                }
            ]
        }
    ).rules[0]
    assert fits(rule, canonical("src/gen/a"))
    assert fits(rule, canonical("SRC/a"))
    assert not fits(rule, canonical("lib/a"))
    assert fits(parse_rule("filesystem(*)"), canonical("a/b"))
    assert exception_for(rule, canonical("src/x")) == "src/x"
    assert exception_for(rule, canonical("src/gen/a")) == "src/gen/*"
    assert exception_for(rule, canonical("src/y")) is None
    assert spells_out(parse_rule("filesystem(./a[*]b)"), canonical("a*b"))
    assert not spells_out(parse_rule("filesystem(a*)"), canonical("a*"))


# -- a folder that git takes for a repository's own -----------------------------------------------


@pytest.mark.parametrize(
    ("path", "repositories", "decision"),
    [
        ("a/b/HEAD", ("a/b",), "deny"),
        ("a/b", ("a/b",), "deny"),
        ("a/b/hooks/x", ("a/b",), "deny"),
        ("a/bc/x", ("a/b",), "allow"),
        ("x", (".",), "deny"),
        ("x", (), "allow"),
        ("x/.git/config", ("x",), "deny"),
    ],
)
def test_all_in_a_repositorys_folder_is_denied_but_for_a_rule_that_spells_the_path(
    path: str, repositories: tuple[str, ...], decision: str
) -> None:
    action = write(path, repositories=repositories)
    assert verdict(action, allow=["filesystem(**)"]).decision == decision
    assert verdict(action, allow=[f"filesystem({path})"]).decision == "allow"
    assert verdict(action, ask=[f"filesystem({path})"]).decision == "ask"


def test_the_denial_names_the_folder_and_what_is_open_instead() -> None:
    found = verdict(write("a/HEAD", repositories=("a",)), allow=["filesystem(**)"])
    assert (
        found.why
        == "protected name a/**: git takes this folder for a repository's own, with its hooks and"
        " configuration"
    )
    assert (
        found.remedy
        == "leave HEAD, objects and refs out of one folder; only a rule that spells the path out"
        " lifts this"
    )


def test_one_path_of_several_in_a_repository_denies_all() -> None:
    action = FileChange(operation="rename", path="x", to="a/HEAD", repositories=("a",))
    assert verdict(action, allow=["filesystem(**)"]).decision == "deny"
    assert verdict(action, allow=["filesystem(**)", "filesystem(a/HEAD)"]).decision == "allow"


def test_names_that_arent_utf_8_are_in_the_folder_that_an_action_shows() -> None:
    path = {"path": "caf\\xe9/HEAD", "path_b64": "Y2Fm6S9IRUFE"}
    assert (
        verdict(write(**path, repositories=("caf\\xe9",)), allow=["filesystem(**)"]).decision
        == "deny"
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "decision"),
    [("a/b", "deny"), ("x/a/q/r/b/z", "deny"), ("a/q/c", None), ("q/a", None)],
)
def test_a_protected_name_may_have_any_folders_within(path: str, decision: str | None) -> None:
    policy = policy_from_data({"protected": {"deny": ["a/**/b"]}})
    judge = policy.judge_for("filesystem")
    assert isinstance(judge, FileJudge)
    found = judge.protected(path)
    assert (found.decision if found else None) == decision


def test_what_needs_a_look_of_its_own_says_which_name() -> None:
    policy = parse_policy("version: 1\nallow: [filesystem(.envrc)]\n", "t")
    judge = policy.judge_for("filesystem")
    assert isinstance(judge, FileJudge)

    def noted(path: str, **more: Any) -> list[str]:
        return judge.names_noted(FileChange(operation="write", path=path, **more))

    assert noted("src/a.py") == []
    assert noted("sub/.ENVRC")[0].startswith("protected name .envrc: ")
    assert noted(".envrc") != []
    assert noted("../a") == ["`../a` holds `..`, so it could leave the workspace"]
    (odd,) = noted("a\x07b")
    assert "can't be" in odd or "never allowed" in odd
