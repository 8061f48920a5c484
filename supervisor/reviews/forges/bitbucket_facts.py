"""Bitbucket's JSON as facts of the port, and our marks in its comments.

A missing field raises `KeyError` or `TypeError`. Bitbucket shows HTML as it is written, so a mark
is a short code span at a text's end. Beside a run's id it says what Bitbucket doesn't keep: the
finding that a comment shows, and the head that a verdict was about. Source:
developer.atlassian.com/cloud/bitbucket/rest (pullrequests, repositories, commit statuses).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from supervisor.core.forge_acts import Act
from supervisor.reviews.core.forge_people import NOBODY, person
from supervisor.reviews.core.posts import own_mark
from supervisor.reviews.forges.base import (
    CommentFacts,
    Posted,
    PostedComment,
    PullFacts,
    RepositoryFacts,
    ReviewFacts,
    ReviewState,
    ThreadFacts,
)

_PLACE = re.compile(r"`gatehouse:at:(?:([a-z0-9-]+):)?([0-9a-f]+):([0-9a-f]+)`\Z")
_SUMMARY = re.compile(r"`gatehouse:(?:note:|prompt:([a-z0-9-]+):)?([0-9a-f]+)`\Z")
# In the place of a prompt's id, which none has: what an agent said of a finding is no review's.
BY_AGENT = "-"
_VERDICT = re.compile(r":(approve|changes):([0-9a-f]{40,64})`\Z")
_VERDICTS = {"approve": "approve", "request_changes": "changes"}
_STATES: Mapping[str, ReviewState] = {"approve": "approved", "changes": "changes_requested"}
_PEOPLE = ("user",)


class FindingPlace(NamedTuple):
    """The finding that a comment of ours beside the code shows, the run that posted it, and the
    prompt whose finding it is; "" for the service's own."""

    prompt: str
    run: str
    finding: str


class GivenVerdict(NamedTuple):
    """A verdict that came with a text of ours, and the head that it was about."""

    word: str
    head: str


def repository_facts(one: dict[str, Any], hosts: Sequence[str]) -> RepositoryFacts:
    """Return a repository. Its code is on one of these hosts, or `ValueError` is raised."""
    (url,) = (each["href"] for each in one["links"]["clone"] if each["name"] == "https")
    parts = urlsplit(url)
    host = parts.netloc.rpartition("@")[2]
    if host not in hosts or parts.scheme not in ("https", "http"):
        raise ValueError("its code is elsewhere")
    return RepositoryFacts(
        forge="bitbucket",
        full_name=str(one["full_name"]),
        external_id=0,
        installation_id=0,
        default_branch=str((one.get("mainbranch") or {}).get("name") or "main"),
        clone_url=f"{parts.scheme}://{host}{parts.path}",
        may_resolve=True,
    )


def pull_facts(one: dict[str, Any], head_sha: str, base_sha: str) -> PullFacts:
    """Return a pull request; its JSON has short hashes alone."""
    is_open = one["state"] == "OPEN"
    return PullFacts(
        number=int(one["id"]),
        title=str(one["title"]),
        body=str(one.get("description") or ""),
        author=person_of(one.get("author")),
        is_fork=not is_own_branch(one),
        is_draft=bool(one.get("draft")),
        is_open=is_open,
        base_ref=str(one["destination"]["branch"]["name"]),
        base_sha=base_sha,
        head_ref=str(one["source"]["branch"]["name"]),
        head_sha=head_sha,
        is_merged=one["state"] == "MERGED",
        closed_at=None if is_open else datetime.fromisoformat(one["updated_on"]).timestamp(),
        url=page_of(one),
    )


def is_own_branch(one: dict[str, Any]) -> bool:
    """Return whether a pull request's head is in the repository that it is for."""
    source, target = one["source"].get("repository"), one["destination"]["repository"]
    return source is not None and bool(source["full_name"] == target["full_name"])


def short_hash(side: dict[str, Any]) -> str:
    """Return the short hash of a pull request's source or destination."""
    return str((side.get("commit") or {})["hash"])


def person_of(user: dict[str, Any] | None) -> str:
    """Return who made something; if the account is gone, nobody."""
    return person(user) if user else NOBODY


def page_of(one: dict[str, Any]) -> str:
    """Return the address of something for people; "" for none."""
    return str(((one.get("links") or {}).get("html") or {}).get("href") or "")


def posted(one: dict[str, Any]) -> Posted:
    """Return the place of one of our posts, or of a pull request by its number."""
    return Posted(id=int(one["id"]), url=page_of(one))


def posted_comment(number: int, one: dict[str, Any], first: int | None) -> PostedComment:
    """Return a comment on a pull request. `first`: the comment that began its thread."""
    return PostedComment(
        id=int(one["id"]),
        author=person_of(one.get("user")),
        is_bot=is_bot(one),
        body=raw(one),
        number=number,
        in_reply_to=first,
    )


def raw(one: dict[str, Any]) -> str:
    """Return a text as it was written."""
    return str((one.get("content") or {}).get("raw") or "")


def is_bot(one: dict[str, Any]) -> bool:
    """Return whether a program made something: an access token is no person."""
    return (one.get("user") or {}).get("type", "user") not in _PEOPLE


def first_of(one: dict[str, Any], by_id: Mapping[int, dict[str, Any]]) -> int:
    """Return the comment that began a comment's thread."""
    for _ in by_id:  # a ring would be endless
        parent = by_id.get((one.get("parent") or {}).get("id", 0))
        if parent is None:
            break
        one = parent
    return int(one["id"])


def inline_facts(comments: Sequence[dict[str, Any]]) -> list[CommentFacts]:
    """Return the comments beside the code, of all of a pull request, oldest first. A comment of a
    run belongs to the text that this run posted, which is its review; where a later round replaced
    that text, to the summary, which is the oldest."""
    by_id = {int(one["id"]): one for one in comments}
    runs = {run_of(one): id_ for id_, one in sorted(by_id.items()) if run_of(one)}
    found = []
    for one in comments:
        first = first_of(one, by_id)
        inline = one.get("inline") or by_id[first].get("inline")
        if not inline or one.get("deleted"):
            continue
        place = place_of(one)
        line = inline.get("to") or inline.get("from")
        found.append(
            CommentFacts(
                id=int(one["id"]),
                author=person_of(one.get("user")),
                is_bot=is_bot(one),
                body=raw(one),
                path=str(inline["path"]),
                line=None if inline.get("outdated") else line,
                original_line=line,
                in_reply_to=None if first == one["id"] else first,
                review_id=_review_of(place, runs) if place else None,
                commit="",
            )
        )
    return found


def _review_of(place: FindingPlace, runs: Mapping[str, int]) -> int | None:
    """Return the text that a comment belongs to. A prompt's comments aren't undone with a run."""
    summary = min(runs.values(), default=None)
    return None if place.prompt else runs.get(place.run, summary)


def thread_facts(number: int, comments: Sequence[dict[str, Any]]) -> list[ThreadFacts]:
    """Return the conversations beside the code. A thread's id has its pull request's number."""
    by_id = {int(one["id"]): one for one in comments}
    threads: dict[int, list[int]] = {}
    for one in comments:
        threads.setdefault(first_of(one, by_id), []).append(int(one["id"]))
    return [
        ThreadFacts(
            id=f"{number}/{first}",
            is_resolved=by_id[first].get("resolution") is not None,
            is_outdated=bool(by_id[first]["inline"].get("outdated")),
            comments=tuple(ids),
        )
        for first, ids in threads.items()
        if by_id[first].get("inline")
    ]


# -- marks ----------------------------------------------------------------------------------------


def place_of(one: dict[str, Any]) -> FindingPlace | None:
    """Return which finding a comment shows; None if it shows none."""
    found = _PLACE.search(raw(one).rstrip())
    return found and FindingPlace(found[1] or "", found[2], found[3])


def place_mark(act: Act, finding: str) -> str:
    """Return the mark of a review's comment about a finding."""
    if act.by_agent:
        prompt, run = BY_AGENT, "0"
    else:
        found = _SUMMARY.search(own_mark(act.body))
        prompt, run = (found[1] or "", found[2]) if found else ("", "0")
    return f"`gatehouse:at:{f'{prompt}:' if prompt else ''}{run}:{finding}`"


def run_of(one: dict[str, Any]) -> str:
    """Return the run whose text a comment on the pull request is; "" for others."""
    found = _SUMMARY.search(own_mark(plain_body(raw(one))))
    return found[2] if found and not found[1] else ""


def with_verdict(act: Act, body: str) -> str:
    """Return a text whose mark says the act's verdict, and the head that it is about."""
    word = _VERDICTS.get(act.verdict)
    return f"{body[:-1]}:{word}:{act.head}`" if word and own_mark(body) else body


def verdict_of(body: str) -> GivenVerdict | None:
    """Return the verdict that came with a text; None if none did."""
    found = _VERDICT.search(body.rstrip())
    return found and GivenVerdict(found[1], found[2])


def plain_body(body: str) -> str:
    """Return a text whose mark says no verdict, as it was composed."""
    return _VERDICT.sub("`", body.rstrip())


def edited(old: str, body: str) -> str:
    """Return a text in place of another one, with the verdict that came with that."""
    given = verdict_of(old)
    return f"{body[:-1]}:{given.word}:{given.head}`" if given and own_mark(body) else body


def review_facts(comments: Sequence[dict[str, Any]], state: str | None) -> list[ReviewFacts]:
    """Return our texts on a pull request as reviews, oldest first. `state` is that of ours as a
    participant: the newest verdict that gave it stands, others don't any more. One that no
    text gave is a review of no head, so that it is taken back."""
    verdicts = {int(one["id"]): verdict_of(raw(one)) for one in comments}
    stands = [id_ for id_, given in verdicts.items() if given and _STATES[given.word] == state]
    found = []
    for one in comments:
        id_, given = int(one["id"]), verdicts[int(one["id"])]
        kind: ReviewState = "commented"
        if given:
            kind = _STATES[given.word] if id_ in stands[-1:] else "dismissed"
        found.append(
            ReviewFacts(
                id=id_,
                body=plain_body(raw(one)),
                state=kind,
                commit=given.head if given else "",
                url=page_of(one),
            )
        )
    if not stands:
        kinds = [kind for kind in _STATES.values() if kind == state]
        found += [ReviewFacts(id=0, body="", state=kind, commit="") for kind in kinds]
    return found
