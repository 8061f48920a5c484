"""The updates that a push asks for: each ref by its name, or no push."""

import re

import pytest

from supervisor.core.git.wishes import PushWish, check_leases, push_wishes
from supervisor.core.policy.git_refs import parse_command
from tests.tables import each_row


@each_row(
    ("command", "wishes"),
    [
        ("git push", [("HEAD", "")]),
        ("git push origin", [("HEAD", "")]),
        ("git push -u origin HEAD", [("HEAD", "")]),
        ("git push origin @", [("HEAD", "")]),
        ("git push origin main feature/x", [("main", ""), ("feature/x", "")]),
        ("git push -f origin main", [("main", "")]),
        ("git push --force-with-lease=main origin main", [("main", "")]),
        ("git push origin +main", [("main", "")]),
        ("git push origin HEAD:review", [("HEAD", "refs/heads/review")]),
        ("git push origin a:refs/heads/b", [("a", "refs/heads/b")]),
        ("git push origin a:heads/b", [("a", "refs/heads/b")]),
        ("git push origin tag v1", [("refs/tags/v1", "")]),
        ("git push origin tags/v1", [("refs/tags/v1", "")]),
        ("git push origin :old", [("", "refs/heads/old")]),
        ("git push origin new :old", [("new", ""), ("", "refs/heads/old")]),
        ("git push -d origin a :b", [("", "refs/heads/a"), ("", "refs/heads/b")]),
        ("git push --delete origin a refs/tags/b", [("", "refs/heads/a"), ("", "refs/tags/b")]),
    ],
)  # fmt: skip
def test_each_ref_is_named(command: str, wishes: list[tuple[str, str]]) -> None:
    assert push_wishes(parse_command(command)) == tuple(PushWish(*one) for one in wishes)


@each_row(
    ("command", "why"),
    [
        ("git push --all origin", "`--all` is not carried out"),
        ("git push --mirror origin", "`--mirror` is not carried out"),
        ("git push --tags origin main", "`--tags` is not carried out"),
        ("git push --follow-tags origin main", "`--follow-tags` is not carried out"),
        ("git push --receive-pack=/tmp/x origin main", "is not carried out"),
        ("git push -o ci.skip origin main", "`--push-option=ci.skip` is not carried out"),
        ("git push origin :", "`:` doesn't say which branches are meant"),
        ("git push origin 'refs/heads/*:refs/heads/*'", "doesn't say which branches are meant"),
        ("git push --delete origin", "has to name the branch"),
        ("git push origin a..b", "is not a valid ref"),
        ("git push origin refs/heads/HEAD", "is not a valid ref"),
        ("git push origin x:HEAD", "is not a valid ref"),
        ("git push origin x:refs/heads/refs/heads/main", "is not a valid ref"),
        ("git push origin HEAD:refs/for/main", "`refs/for/main` is no branch or tag"),
        ("git push origin :refs/notes/x", "`refs/notes/x` is no branch or tag"),
        ("git push origin a:x :x", "`refs/heads/x` is named twice"),
    ],
)
def test_a_push_that_moves_more_or_runs_something_is_refused(command: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        push_wishes(parse_command(command))


@each_row(
    ("lease", "is_held"),
    [
        ("--force-with-lease", True),
        ("--force-with-lease=main", True),
        ("--force-with-lease=main:abc0", True),
        ("--force-with-lease=main:abc", False),
        ("--force-with-lease=main:", False),
        ("--force-with-lease=other:", True),
        ("--force-with-lease=refs/heads/other:0000", True),
        ("--force-with-lease=other:abc0", False),
    ],
)
def test_a_lease_names_what_the_remote_must_have(lease: str, is_held: bool) -> None:
    push = parse_command(f"git push {lease} origin main")
    there = {"refs/heads/main": "abc0"}
    if is_held:
        check_leases(push, there)
    else:
        with pytest.raises(ValueError, match="stale info"):
            check_leases(push, there)
