"""A session's name says where, who and when; its icon who, and its colour which of several."""

from datetime import datetime
from typing import Any

import pytest

from supervisor.core.jobs import Job
from supervisor.core.session_names import (
    HUES,
    MOST_NAME_CHARS,
    checked_name,
    identity,
    project_name,
    pull_name,
    shown_workspace,
)
from supervisor.core.sessions import Session, SessionId
from supervisor.errors import UserError
from tests.tables import each_row

AT = datetime(2026, 3, 2, 12, 15)
READER = ("gatehouse-review", "--base", "abc", "--pull")


def session(**facts: Any) -> Session:
    usual = {"kind": "agent", "workspace": "/home/me/shop", "command": ("sh",)}
    return Session(
        id=SessionId("s1"), token_hash="t", created_at=100.0, deadline_at=160.0, **usual | facts
    )


def named(now: datetime = AT, **facts: Any) -> tuple[str, str]:
    found = identity(session(**facts), 1, started=AT, now=now)
    return found.name, found.icon


NIGHTLY = Job(prompt="x", name="nightly")


@each_row(
    "facts, name, icon",
    [
        ({"agent": "claude", "command": ("claude",)}, "shop · Claude Code · 12:15", "spark"),
        ({"agent": "codex", "command": ("codex", "x")}, "shop · Codex · 12:15", "hex"),
        ({"agent": "opencode"}, "shop · OpenCode · 12:15", "braces"),
        ({"command": ("/usr/bin/claude", "-p")}, "shop · Claude Code · 12:15", "spark"),
        ({"command": ("make", "deploy")}, "shop · make deploy · 12:15", "exec"),
        ({"command": ("/bin/sh", "-c", "ls")}, "shop · sh · 12:15", "exec"),
        ({"command": ("odd/",)}, "shop · odd/ · 12:15", "exec"),
        ({"command": ()}, "shop · Command · 12:15", "exec"),
        ({"agent": "later", "command": ("later",)}, "shop · later · 12:15", "exec"),
        ({"kind": "review", "command": READER[:3]}, "shop · Review · 12:15", "eye"),
        ({"kind": "review", "command": READER}, "a pull request · Review · 12:15", "eye"),
        ({"kind": "maintenance", "job": Job(prompt="x")}, "shop · Maintain · 12:15", "wrench"),
        ({"kind": "maintenance", "job": NIGHTLY}, "shop · Maintain · nightly", "wrench"),
        (
            {"kind": "quarantine", "agent": "claude"},
            "shop · Claude Code in quarantine · 12:15",
            "eye",
        ),
        ({"kind": "standing", "command": ("gatehouse-reviews", "a/b")}, "a/b", "eye"),
        ({"workspace": "/"}, "/ · sh · 12:15", "exec"),
        ({"workspace": f"/{'x' * 60}/"}, f"{'x' * 39}… · sh · 12:15", "exec"),
        ({"name": "the old one", "agent": "codex"}, "the old one", "hex"),
    ],
)
def test_a_name_says_where_who_and_when(facts: dict[str, Any], name: str, icon: str) -> None:
    assert named(**facts) == (name, icon)


@pytest.mark.parametrize(
    ("now", "when"),
    [
        (datetime(2026, 3, 2, 23, 59), "12:15"),
        (datetime(2026, 3, 3, 0, 1), "yesterday 12:15"),
        (datetime(2026, 3, 5, 9, 0), "2 Mar, 12:15"),
        (datetime(2027, 1, 1, 9, 0), "2 Mar 2026, 12:15"),
        # The clock was put back.
        (datetime(2026, 3, 1, 9, 0), "2 Mar, 12:15"),
    ],
)
def test_the_start_is_said_as_seen_from_now(now: datetime, when: str) -> None:
    assert named(now) == (f"shop · sh · {when}", "exec")


def test_sessions_take_hues_in_turn() -> None:
    found = [identity(session(), at, started=AT, now=AT).hue for at in range(1, 15)]
    assert found == [1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6, 1, 2]
    assert max(found) == HUES


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({}, "/home/me/shop"),
        ({"command": ("x", "--pull")}, "/home/me/shop"),
        ({"kind": "review", "command": READER[:3]}, "/home/me/shop"),
        ({"kind": "review", "command": READER}, ""),
        ({"kind": "standing", "command": ("gatehouse-reviews", "a/b")}, ""),
        ({"kind": "maintenance", "job": Job(prompt="p", branch=True)}, "/home/me/shop"),
        ({"kind": "maintenance", "job": Job(prompt="p", branch_name="gatehouse/a-1")}, ""),
    ],
)
def test_a_folder_of_our_own_is_never_shown(facts: dict[str, Any], shown: str) -> None:
    assert shown_workspace(session(**facts)) == shown


def test_a_reader_of_a_pull_request_is_called_by_it_and_its_round() -> None:
    assert pull_name("acme/shop", 1, 2) == "acme/shop#1 · Review, round 2"
    assert pull_name("acme/shop", 7, 1, "changelog") == "acme/shop#7 · changelog, round 1"
    longest = pull_name("o" * 40 + "/" + "r" * 100, 10**7, 1000, "p" * 100)
    assert checked_name(longest) == longest


def test_a_given_name_is_one_line_of_bounded_length() -> None:
    assert checked_name("  the\tlong \n one ") == "the long one"
    assert checked_name(" \n") == ""
    assert len(checked_name("x" * MOST_NAME_CHARS)) == MOST_NAME_CHARS
    for wrong in ("x" * (MOST_NAME_CHARS + 1), "a\x1b[31mb", "a\u202eb", "\ud800"):
        with pytest.raises(UserError, match="a name has"):
            checked_name(wrong)


def test_the_project_is_the_last_part_of_the_path() -> None:
    assert [project_name(one) for one in ("/a/b", "/a/b/", "/")] == ["b", "b", "/"]
