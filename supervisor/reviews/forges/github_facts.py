"""GitHub's JSON as facts of the port. A missing field raises `KeyError` or `TypeError`.

Source: docs.github.com/rest (pulls, issues), docs.github.com/graphql.
"""

import re
from datetime import datetime
from typing import Any

from supervisor.reviews.forges.base import (
    CommentFacts,
    FailedDelivery,
    IssueFacts,
    Posted,
    PostedComment,
    PullFacts,
    RepositoryFacts,
    ReviewFacts,
    ThreadFacts,
)

_NUMBER = re.compile(r"/pulls?/([0-9]+)(?:#|\Z)")


def repository_facts(installation: dict[str, Any], one: dict[str, Any]) -> RepositoryFacts:
    """Return a repository of an installation. To resolve threads an App also needs write access to
    contents (github.com/orgs/community/discussions/204269)."""
    held = installation.get("permissions") or {}
    return RepositoryFacts(
        full_name=str(one["full_name"]),
        external_id=int(one["id"]),
        installation_id=int(installation["id"]),
        default_branch=str(one.get("default_branch") or "main"),
        clone_url=str(one["clone_url"]),
        may_resolve=held.get("contents") == "write" and held.get("pull_requests") == "write",
    )


def pull_facts(one: dict[str, Any]) -> PullFacts:
    """Return a pull request from GitHub's JSON."""
    head_repository = one["head"].get("repo")
    is_fork = head_repository is None or (
        head_repository["full_name"] != one["base"]["repo"]["full_name"]
    )
    return PullFacts(
        number=int(one["number"]),
        title=str(one["title"]),
        body=str(one.get("body") or ""),
        author=author(one)[0],
        is_fork=is_fork,
        is_draft=bool(one.get("draft")),
        is_open=one["state"] == "open",
        base_ref=str(one["base"]["ref"]),
        base_sha=str(one["base"]["sha"]),
        head_ref=str(one["head"]["ref"]),
        head_sha=str(one["head"]["sha"]),
        labels=tuple(str(label["name"]) for label in one.get("labels", ())),
        is_merged=bool(one.get("merged_at")),
        closed_at=_moment(one.get("closed_at")),
        url=str(one.get("html_url") or ""),
    )


def posted(one: dict[str, Any]) -> Posted:
    """Return the place of one of our posts."""
    return Posted(id=int(one["id"]), url=str(one.get("html_url") or ""))


def opened(one: dict[str, Any]) -> Posted:
    """Return one of our pull requests, identified by its number."""
    return Posted(id=int(one["number"]), url=str(one.get("html_url") or ""))


def review_facts(one: dict[str, Any]) -> ReviewFacts:
    """Return a review."""
    return ReviewFacts(
        id=int(one["id"]),
        body=str(one.get("body") or ""),
        state=one["state"].lower(),
        commit=str(one.get("commit_id") or ""),
        url=str(one.get("html_url") or ""),
    )


def comment_facts(one: dict[str, Any]) -> CommentFacts:
    """Return a comment beside the code; if its author's account is gone, it has no author."""
    login, is_bot = author(one)
    return CommentFacts(
        id=int(one["id"]),
        author=login,
        is_bot=is_bot,
        body=str(one.get("body") or ""),
        path=str(one["path"]),
        line=_number(one.get("line")),
        original_line=_number(one.get("original_line")),
        in_reply_to=_number(one.get("in_reply_to_id")),
        review_id=_number(one.get("pull_request_review_id")),
        commit=str(one.get("original_commit_id") or one["commit_id"]),
    )


def issue_facts(one: dict[str, Any]) -> IssueFacts:
    """Return an issue."""
    return IssueFacts(number=int(one["number"]), body=str(one.get("body") or ""))


def posted_comment(one: dict[str, Any]) -> PostedComment:
    """Return a comment. Its address says whether it is on a pull request."""
    login, is_bot = author(one)
    found = _NUMBER.search(str(one.get("pull_request_url") or one["html_url"]))
    return PostedComment(
        id=int(one["id"]),
        author=login,
        is_bot=is_bot,
        body=str(one.get("body") or ""),
        number=int(found[1]) if found else None,
        in_reply_to=_number(one.get("in_reply_to_id")),
    )


def thread_page(answer: dict[str, Any]) -> tuple[list[ThreadFacts], str]:
    """Return the threads of one GraphQL page, and the cursor of the next page; "" at the end."""
    page = answer["repository"]["pullRequest"]["reviewThreads"]
    found = [
        ThreadFacts(
            id=str(one["id"]),
            is_resolved=bool(one["isResolved"]),
            is_outdated=bool(one["isOutdated"]),
            comments=tuple(int(comment["fullDatabaseId"]) for comment in one["comments"]["nodes"]),
        )
        for one in page["nodes"]
    ]
    return found, str(page["pageInfo"]["endCursor"]) if page["pageInfo"]["hasNextPage"] else ""


def failed_deliveries(found: list[dict[str, Any]]) -> list[FailedDelivery]:
    """Return those of a list of deliveries, newest first, whose last attempt wasn't accepted."""
    newest: dict[str, dict[str, Any]] = {}
    for one in found:  # a redelivery is a line of its own
        newest.setdefault(one["guid"], one)
    return [
        FailedDelivery(id=int(one["id"]), guid=str(one["guid"]), event=str(one["event"]))
        for one in newest.values()
        if not 200 <= int(one["status_code"]) < 300
    ]


def last_labelled(label: str, events: list[dict[str, Any]]) -> str:
    """Return who set a label last, by the events of an issue, oldest first; "" if nobody did, or
    that account is gone."""
    actors = [
        one.get("actor") or {}
        for one in events
        if one["event"] == "labeled" and one["label"]["name"] == label
    ]
    return str(actors[-1].get("login") or "") if actors else ""


def author(one: dict[str, Any]) -> tuple[str, bool]:
    """Return an author, and whether it is a program."""
    user = one.get("user") or {}
    return str(user.get("login") or "ghost"), user.get("type") == "Bot"


def head_of(ref: dict[str, Any]) -> str:
    """Return the commit of a ref."""
    return str(ref["object"]["sha"])


def _moment(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()


def _number(value: Any) -> int | None:
    return None if value is None else int(value)
