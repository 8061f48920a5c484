"""The refs of a fetch, each found at the remote, and the host that a remote's URL leads to."""

import re

import pytest

from supervisor.core.git.wishes import check_flags, remote_endpoint, tracking_ref, wanted_refs
from supervisor.core.policy.git_refs import parse_command
from tests.tables import each_row

A, B, C = "a" * 40, "b" * 40, "c" * 40
THERE = {"HEAD": A, "refs/heads/main": A, "refs/heads/x": B, "refs/tags/v1": C, "refs/pull/1": B}


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git fetch", {"refs/heads/main": A, "refs/heads/x": B}),
        ("git fetch origin", {"refs/heads/main": A, "refs/heads/x": B}),
        ("git fetch origin x", {"refs/heads/x": B}),
        ("git fetch origin v1", {"refs/tags/v1": C}),
        ("git fetch origin refs/pull/1", {"refs/pull/1": B}),
        ("git fetch -t origin x", {"refs/heads/x": B, "refs/tags/v1": C}),
        ("git pull origin main", {"refs/heads/main": A}),
    ],
)
def test_refs_are_those_of_the_remote(command: str, wanted: dict[str, str]) -> None:
    assert wanted_refs(parse_command(command), THERE) == wanted


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("git fetch origin nothere", "the remote has no branch or tag `nothere`"),
        ("git fetch origin HEAD", "doesn't name a branch or tag at the remote"),
        ("git fetch origin x:y", "doesn't name a branch or tag at the remote"),
        ("git fetch origin '+refs/heads/*:refs/heads/*'", "doesn't name a branch"),
    ],
)
def test_what_is_no_name_there_is_refused(command: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        wanted_refs(parse_command(command), THERE)


@pytest.mark.parametrize(
    ("command", "flag"),
    [
        ("git fetch --depth=1 origin", "--depth=1"),
        ("git fetch --prune origin", "--prune"),
        ("git fetch --rebase origin", "--rebase"),
        ("git pull --strategy=ours origin main", "--strategy=ours"),
        ("git fetch --upload-pack=/tmp/x origin", "--upload-pack=/tmp/x"),
    ],
)
def test_an_option_that_would_change_its_meaning_is_refused(command: str, flag: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"with `{flag}` is not carried out")):
        check_flags(parse_command(command))


def test_options_that_are_carried_out() -> None:
    for command in ("git fetch -q --tags origin", "git pull --rebase --autostash origin main"):
        check_flags(parse_command(command))


def test_a_branch_becomes_a_remote_tracking_ref_and_a_tag_stays() -> None:
    assert tracking_ref("up", "refs/heads/a/b") == "refs/remotes/up/a/b"
    assert tracking_ref("up", "refs/tags/v1") == "refs/tags/v1"
    with pytest.raises(ValueError, match="is no ref's name"):
        tracking_ref("u p", "refs/heads/a")


def test_what_git_takes_for_an_order_is_not_fetched() -> None:
    there = {"refs/replace/x": A, "refs/pull/1/head": C}
    with pytest.raises(ValueError, match="has no branch or tag"):
        wanted_refs(parse_command("git fetch origin refs/replace/x"), there)
    assert wanted_refs(parse_command("git fetch origin refs/pull/1/head"), there)


@each_row(
    ("url", "endpoint"),
    [
        ("https://git.example.org/a.git", ("git.example.org", 443)),
        ("https://user:word@git.example.org:8443/a", ("git.example.org", 8443)),
        ("http://[::1]:3000/a", ("::1", 3000)),
        ("ssh://git@git.example.org/a", ("git.example.org", 22)),
        ("ssh://git@git.example.org:2222/a", ("git.example.org", 2222)),
        ("git://git.example.org/a", ("git.example.org", 9418)),
        ("git@git.example.org:a/b.git", ("git.example.org", 22)),
        ("git.example.org:a", ("git.example.org", 22)),
        ("[::1]:a", ("::1", 22)),
        ("/srv/git/a.git", None),
        ("../a", None),
        ("a", None),
        ("./a:b", None),
        ("file:///srv/git/a.git", None),
        ("file://localhost/srv/git/a.git", None),
    ],
)
def test_where_a_remote_is(url: str, endpoint: tuple[str, int] | None) -> None:
    assert remote_endpoint(url) == endpoint


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("https://user:w@rd@git.example.org/a", ("git.example.org", 443)),
        ("https://git.example.org:/a", ("git.example.org", 443)),
        ("git+ssh://git@git.example.org/a", ("git.example.org", 22)),
        ("me@there@git.example.org:a", ("git.example.org", 22)),
        ("ssh://git@[::1]:22/a", ("::1", 22)),
    ],
)
def test_a_host_is_the_one_that_is_connected_to(url: str, endpoint: tuple[str, int]) -> None:
    assert remote_endpoint(url) == endpoint


@pytest.mark.parametrize(
    "url",
    [
        "git://git.example.org:https/a",
        "https://git.example.org?@other.example/a",
        "https://git.example.org#@other.example/a",
        "https://git.example.org\\@other.example/a",
        "https://git.ex%61mple.org/a",
        "ssh://",
        ":a",
        "[git.example.org:22]:a",
        "a b:c",
    ],
)
def test_an_address_with_two_readings_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="which host"):
        remote_endpoint(url)


def test_an_unknown_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="`rsync` is no scheme"):
        remote_endpoint("rsync://git.example.org/a")
