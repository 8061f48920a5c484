"""Git command lines: what git would read, and what an action is called."""

import pytest

from supervisor.core.actions import Git
from supervisor.core.policy.git_refs import (
    agrees,
    is_git,
    parse_command,
    refs_of,
    rough_actions,
    special_flags,
)
from supervisor.core.policy.git_rules import compile_pattern
from supervisor.core.text.words import fits, split_command
from supervisor.errors import PolicyError
from tests.tables import each_row


@each_row(
    ("command", "remote", "refspecs", "flags", "force", "delete"),
    [
        ("git push origin main", "origin", ("main",), (), False, False),
        ("git push -u origin main", "origin", ("main",), (), False, False),
        ("git push origin main -f", "origin", ("main",), ("--force",), True, False),
        ("git push -uqf origin main", "origin", ("main",), ("--force",), True, False),
        (
            "git push --force-with-lease=main:abc origin main",
            "origin",
            ("main",),
            ("--force-with-lease=main:abc",),
            True,
            False,
        ),
        (
            "git push --force-w origin main",
            "origin",
            ("main",),
            ("--force-with-lease",),
            True,
            False,
        ),
        ("git push --mirr origin", "origin", (), ("--mirror",), False, False),
        ("git push --del origin main", "origin", ("main",), ("--delete",), False, True),
        ("git push -d origin main", "origin", ("main",), ("--delete",), False, True),
        ("git push origin :main", "origin", (":main",), (), False, True),
        ("git push origin +main", "origin", ("+main",), (), True, False),
        ("git push origin +:main", "origin", ("+:main",), (), True, True),
        ("git push origin tag v1", "origin", ("refs/tags/v1",), (), False, False),
        ("git push -o a=b origin x", "origin", ("x",), ("--push-option=a=b",), False, False),
        ("git push -oab origin x", "origin", ("x",), ("--push-option=ab",), False, False),
        ("git push --repo evil", "evil", (), ("--repo=evil",), False, False),
        (
            "git push --receive-pack 'x y' origin",
            "origin",
            (),
            ("--receive-pack=x y",),
            False,
            False,
        ),
        ("git push -- origin -x", "origin", ("-x",), (), False, False),
        ("git push --no-verify origin x", "origin", ("x",), ("--no-verify",), False, False),
        ("git push", None, (), (), False, False),
        ("git --no-pager fetch origin", "origin", (), (), False, False),
        ("git fetch -f origin", "origin", (), ("-f",), False, False),
    ],
)
def test_a_command_is_read_as_git_reads_it(
    command: str,
    remote: str | None,
    refspecs: tuple[str, ...],
    flags: tuple[str, ...],
    force: bool,
    delete: bool,
) -> None:
    action = parse_command(command)
    assert (action.remote, action.refspecs, action.flags, action.force, action.delete) == (
        remote,
        refspecs,
        flags,
        force,
        delete,
    )
    assert agrees(action)


@each_row(
    "command",
    ["", "git", "ls", "./git push", "/tmp/git push", "git -c a=b push", "git --exec-path=x push",
     "git -C x push", "git push; id",
     "git push | x", "git push $(id)", "git push `id`", "git push\nid", "git push 'x",
     "git push \\", 'git push "$x"', 'git push "x', "X=1 git push",
     "git push > x", "git push {a,b}", "git push #x", "git push ~x", "git push a\u202eb",
     "x" * 20_000],
)  # fmt: skip
def test_what_can_t_be_read_says_so(command: str) -> None:
    action = parse_command(command)
    assert action.operation == ""
    assert action.flags[0].startswith("--gatehouse-unread=")


def test_words_are_split_without_a_shell() -> None:
    assert split_command('a \'b c\' "d\\"e" f\\ g') == ["a", "b c", 'd"e', "f g"]
    assert split_command("a  b\tc") == ["a", "b", "c"]
    assert split_command("''") == [""]
    assert is_git("/usr/bin/git")


@each_row(
    ("refspec", "kind", "name", "text"),
    [
        ("main", "branch", "main", "main"),
        ("refs/heads/main", "branch", "main", "main"),
        ("main:main", "branch", "main", "main"),
        ("HEAD:main", "mapping", "main", "HEAD:main"),
        ("HEAD:refs/heads/main", "mapping", "main", "HEAD:main"),
        ("+a:b", "mapping", "b", "a:b"),
        (":b", "branch", "b", "b"),
        ("refs/tags/v1", "tag", "refs/tags/v1", "refs/tags/v1"),
        ("refs/for/main", "ref", "refs/for/main", "refs/for/main"),
        ("HEAD", "unknown", "", "HEAD"),
        ("@", "unknown", "", "@"),
        (":", "unknown", "", ":"),
        ("refs/heads/*:refs/heads/*", "unknown", "", "refs/heads/*:refs/heads/*"),
    ],
)
def test_a_refspec_is_one_ref(refspec: str, kind: str, name: str, text: str) -> None:
    (ref,) = refs_of(Git(operation="push", remote="origin", refspecs=(refspec,)))
    assert (ref.kind, ref.name, ref.text) == (kind, name, text)


@each_row(
    "refspec",
    [
        "-x",
        "a:-x",
        "a..b",
        "a b",
        "a~1",
        "a^",
        "/a",
        "a/",
        "a.lock",
        "a//b",
        "x:a:b",
        "a\\b",
        "a@{1}",
        ".a",
        "a/.b",
        "a.",
        "",
        "x:",
        "a\nb:c",
        "a b:c",
    ],
)
def test_what_is_no_ref_is_refused(refspec: str) -> None:
    with pytest.raises(ValueError):
        refs_of(Git(operation="push", remote="origin", refspecs=(refspec,)))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("git remote add x y", ("x", "y")),
        ("git diff a b..c", ("b..c",)),
        ("git log main tag v1", ("tag", "v1")),
        ("git checkout a -- b/../c '*.py' HEAD", ("b/../c", "*.py", "HEAD")),
    ],
)
def test_an_operation_that_reaches_no_remote_has_words_and_no_refs(
    command: str, words: tuple[str, ...]
) -> None:
    action = parse_command(command)
    assert action.refspecs == words
    assert agrees(action)
    assert refs_of(action) == []


@pytest.mark.parametrize(
    "word", ["-x", "--output=x", "ext::sh", "EXT::sh", "file:///x", "fd::7", "a\nb", "a\u200bb"]
)
def test_no_word_is_an_option_a_remote_that_runs_or_hidden(word: str) -> None:
    with pytest.raises(
        ValueError, match=r"could be taken for an option|would run a program|nobody sees"
    ):
        refs_of(Git(operation="remote", remote="add", refspecs=("x", word)))


@pytest.mark.parametrize("operation", ["push", "fetch", "pull", "ls-remote", "clone"])
def test_an_operation_that_reaches_a_remote_has_refs_only(operation: str) -> None:
    with pytest.raises(ValueError, match="not a valid ref"):
        refs_of(Git(operation=operation, remote="origin", refspecs=("a..b",)))


def test_special_flags_come_from_everywhere() -> None:
    assert special_flags(Git(operation="push", force=True)) == {"--force"}
    assert special_flags(Git(operation="push", flags=("-f", "-u"))) == {"--force"}
    assert special_flags(Git(operation="push", refspecs=("+x",))) == {"--force"}
    assert special_flags(Git(operation="push", refspecs=(":x",), delete=True)) == {"--delete"}
    assert special_flags(Git(operation="push", force=True, flags=("--force-with-lease",))) == {
        "--force-with-lease"
    }
    assert special_flags(Git(operation="fetch", flags=("-q",))) == frozenset()
    assert special_flags(Git(operation="push", flags=("--repo=x",))) == frozenset()
    assert special_flags(parse_command("git fetch --prune --depth 1 origin")) == frozenset()
    assert special_flags(parse_command("git fetch --upload-pack x origin")) == {"--upload-pack"}
    assert special_flags(parse_command("git push --prune origin")) == {"--prune"}


@each_row(
    ("command", "special"),
    [
        ("git push -n origin x", set()),
        ("git fetch -n origin", set()),
        ("git commit -n", {"-n"}),
        ("git clean -n", {"-n"}),
        ("git push -u origin x", set()),
        ("git fetch -u origin", {"-u"}),
        ("git branch -u origin/x", {"-u"}),
        ("git fetch -v origin", set()),
        ("git tag -v v1", {"-v"}),
        ("git pull --ff-only origin", set()),
        ("git push --ff-only origin x", {"--ff-only"}),
        ("git pull -r --autostash origin", set()),
        ("git fetch -r origin", {"-r"}),
        ("git fetch --atomic origin", set()),
        ("git pull --atomic origin", {"--atomic"}),
        ("git ls-remote --heads --tags origin", set()),
        ("git push --heads origin x", {"--heads"}),
        ("git fetch --heads origin", {"--heads"}),
        ("git clone -n origin", set()),
        ("git clone --depth=1 origin", {"--depth=1"}),
        ("git commit -q", set()),
        ("git merge --verify x", {"--verify"}),
    ],
)
def test_an_option_is_harmless_to_one_operation_and_not_to_another(
    command: str, special: set[str]
) -> None:
    action = parse_command(command)
    assert special_flags(action) == special
    assert (
        special_flags(Git(operation=action.operation, flags=tuple(command.split()[2:3]))) <= special
    )


def test_deny_rules_see_what_can_t_be_read() -> None:
    found = rough_actions("true && git -c a=b push -f origin main; echo 'git push x'")
    assert [(action.operation, action.remote, action.refspecs) for action in found] == [
        ("push", "origin", ("main",)),
        ("push", "x", ()),
    ]
    assert rough_actions("") == []


def test_patterns() -> None:
    assert compile_pattern("push --force-w origin x").options == {"--force-with-lease"}
    assert compile_pattern("push +x").options == {"--force"}
    assert compile_pattern("push origin :x").options == {"--delete"}
    assert compile_pattern("push origin tag v*").words == ("push", "origin", "refs/tags/v*")
    assert compile_pattern("refs/heads/x").words == ("x",)
    assert compile_pattern("push origin HEAD:refs/heads/x").words == ("push", "origin", "HEAD:x")
    assert compile_pattern("* *").is_bare
    assert compile_pattern("push -u origin x").options == {"-u"}
    # Only where a ref is meant is there another way to write it.
    assert compile_pattern("* refs/heads/x").words == ("*", "x")
    assert compile_pattern("show refs/heads/x :README +y").words == (
        "show",
        "refs/heads/x",
        ":README",
        "+y",
    )
    assert compile_pattern("show :README").options == frozenset()
    for bad in ("--force", "--for*", "-*", "git push", "push 'x", "push a b c d"):
        with pytest.raises(PolicyError):
            compile_pattern(bad)


@each_row(
    ("pattern", "word", "expected"),
    [
        ("a*", "a/b", True),
        ("a*", "a", True),
        ("*", "", False),
        ("*", "x", True),
        ("a*c", "abbc", True),
        ("a*c", "ab", False),
        ("a**c", "abc", True),
        ("a", "a", True),
        ("*a*b*", "xaybz", True),
        ("a.b", "axb", False),
    ],
)
def test_a_wildcard_stays_in_its_word(pattern: str, word: str, expected: bool) -> None:
    assert fits(pattern, word) is expected
