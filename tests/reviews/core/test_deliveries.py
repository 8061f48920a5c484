"""Webhooks as text: signatures, heads, bodies, and the names in them."""

import hashlib
import hmac
import json

import pytest

from supervisor.errors import UserError
from supervisor.reviews.core import deliveries
from supervisor.reviews.core.deliveries import GitHubWebhooks

GITHUB = GitHubWebhooks()


def test_a_signature_is_of_the_very_bytes() -> None:
    body = b'{"a": 1}'
    good = "sha256=" + hmac.new(b"secret", body, hashlib.sha256).hexdigest()
    assert deliveries.is_signed(b"secret", body, good)
    for wrong in ("", good.upper(), good[:-1], "sha1=" + good[7:], good + "0", "é"):
        assert not deliveries.is_signed(b"secret", body, wrong)
    assert not deliveries.is_signed(b"secret", b'{"a":1}', good)
    assert not deliveries.is_signed(b"other", body, good)


def test_a_head_names_a_delivery_and_an_event() -> None:
    head = {"x-github-delivery": "1-a", "x-github-event": "pull_request"}
    assert GITHUB.head(head) == ("1-a", "pull_request", "")
    for wrong in ({}, head | {"x-github-event": "../x"}, head | {"x-github-delivery": "a" * 65}):
        with pytest.raises(UserError):
            GITHUB.head(wrong)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"[]", "no JSON object"),
        (b"[" * 65 + b"]" * 65, "deeper"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b'{"x": {"a": 1, "\\u0061": 2}}', "twice"),
        (b"\xff", "no JSON"),
    ],
)
def test_a_body_that_is_none_says_why(body: bytes, why: str) -> None:
    with pytest.raises(UserError, match=why):
        deliveries.read_body(body)


def test_brackets_in_texts_nest_nothing() -> None:
    body = {"text": "[" * 100 + '\\"', "list": [[1], {"a": [2]}]}
    assert deliveries.read_body(json.dumps(body).encode()) == body


def test_what_an_event_is_about() -> None:
    payload = {
        "action": "opened",
        "repository": {"full_name": "acme/shop.js"},
        "pull_request": {"number": 3},
    }
    assert deliveries.repository_name(payload) == "acme/shop.js"
    assert deliveries.pull_number(payload) == 3
    assert deliveries.action_name(payload) == "opened"
    for wrong in (0, -1, True, "3", 1 << 40, None, 1.5):
        assert deliveries.pull_number({"pull_request": {"number": wrong}}) is None
    for name in ("../x", "a/..", "a/b/c", "a b/c", "a/" + "b" * 101, 5, "-a/b", "a/b\n"):
        assert deliveries.repository_name({"repository": {"full_name": name}}) == ""
    assert deliveries.pull_number({"pull_request": []}) is None
    found = GITHUB.comment("issue_comment", {"comment": {"id": 1 << 40}})
    assert found is not None
    assert (found.id, found.is_inline) == (1 << 40, False)
    for wrong in (0, True, "7", 1 << 63, None):
        assert GITHUB.comment("issue_comment", {"comment": {"id": wrong}}) is None
    assert deliveries.action_name({"action": ["x"]}) == ""


def test_names_that_git_may_see() -> None:
    assert deliveries.is_sha("a" * 40)
    assert deliveries.is_sha("0" * 64)
    for wrong in ("a" * 39, "A" * 40, "a" * 41, "HEAD", "--all" + "a" * 35, "a" * 40 + "\n"):
        assert not deliveries.is_sha(wrong)
    for branch in ("main", "feature/x-1", "a.b", "fix_ü"):
        assert deliveries.is_branch(branch)
    for wrong in (
        *("", "-x", "a..b", "a b", "a~b", "a:b", "/a", "a/", "a.lock", "a//b", "a@{b", "a\nb"),
        *("a?b", "a*b", "a[b", "a\\b", "a.", "x" * 256, "a\udc80", "\ud800"),
    ):
        assert not deliveries.is_branch(wrong), wrong


def test_what_no_signature_can_be_is_known_before_the_body() -> None:
    assert deliveries.is_signature("sha256=" + "0a" * 32)
    for wrong in ("", "0a" * 32, "sha256=" + "0A" * 32, "sha256=" + "0a" * 33, "sha1=" + "0a" * 20):
        assert not deliveries.is_signature(wrong)


def test_a_body_of_brackets_alone_is_refused_before_it_is_read() -> None:
    with pytest.raises(UserError, match="deeper"):
        deliveries.read_body(b"[" + b"[]," * deliveries.MOST_BRACKETS + b"[]]")


def test_a_comments_words_are_texts_or_nothing() -> None:
    event = "pull_request_review_comment"
    said = {"comment": {"id": 7, "user": {"login": "ada"}, "body": "@gatehouse why"}}
    assert GITHUB.comment(event, said) == (7, "ada", "@gatehouse why", True)
    wrong = {"comment": {"id": 7, "user": None, "body": None}}
    assert GITHUB.comment(event, wrong) == (7, "", "", True)
    assert GITHUB.comment(event, {"comment": {"id": True}}) is None


def test_what_kind_of_event_it_is() -> None:
    for event, action, kind in (
        *(("pull_request", "opened", "pull"), ("pull_request", "assigned", "")),
        *(("issue_comment", "created", "comment"), ("issue_comment", "edited", "")),
        ("pull_request_review_comment", "created", "comment"),
        *(("installation", "deleted", "repositories"), ("ping", "", ""), ("watch", "opened", "")),
    ):
        assert GITHUB.kind(event, action) == kind
    payload = {"action": "opened", "pull_request": {"number": 3}}
    assert GITHUB.action(deliveries.Webhook("a", "pull_request"), payload) == "opened"
    assert GITHUB.number(payload) == 3
