"""Routes of reviews, comments, threads and reactions, as an App sees them at GitHub.

They refuse what GitHub refuses: a remark outside of the diff fails the whole review, only an
approval or a request for changes can be dismissed, and resolving a thread needs write access to
contents.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from supervisor.reviews.demo.api_call import Call, Refusal, missing, page, pull_of, refuse
from supervisor.reviews.demo.github_json import comment_json, review_json
from supervisor.reviews.demo.state import DemoIssue, DemoPull, DemoRepository, Json

MOST_BODY_CHARS = 65_536
REACTIONS = ("+1", "-1", "laugh", "confused", "heart", "hooray", "rocket", "eyes")
_THREAD = "PRRT_"


def _reviews(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    pull = pull_of(repository, number)
    return 200, page(call, [review_json(call.forge, repository, pull, one) for one in pull.reviews])


def _comments(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    pull = pull_of(repository, number)
    found = [comment_json(call.forge, repository, pull, one) for one in pull.comments]
    return 200, page(call, found)


def _post_review(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull, wanted, forge = pull_of(repository, number), call.json, call.forge
    event, body = wanted.get("event", "PENDING"), wanted.get("body") or ""
    comments = wanted.get("comments", [])
    if len(body) > MOST_BODY_CHARS or any(len(one["body"]) > MOST_BODY_CHARS for one in comments):
        refuse(422, "Validation Failed", "body is too long (maximum is 65536 characters)")
    if event == "APPROVE" and pull.author == forge.app_login:
        refuse(422, "Unprocessable Entity", "Can not approve your own pull request")
    if event != "APPROVE" and not body and not comments:
        refuse(422, "Unprocessable Entity", "body can't be blank")
    head = wanted.get("commit_id") or pull.head_sha
    if head != pull.head_sha:
        known = [one["commit"] for one in pull.reviews]
        if head not in known:
            refuse(422, "Unprocessable Entity", "commit_id is not part of the pull request")
    places = forge.places(repository, pull)
    for one in comments:
        first = one.get("start_line") or one["line"]
        hunks = places.get(one["path"])
        if hunks is None:
            refuse(422, "Unprocessable Entity", "Path could not be resolved")
        if not any({first, one["line"]} <= shown for shown in hunks) or first > one["line"]:
            refuse(422, "Unprocessable Entity", "Line could not be resolved")
    state = {"APPROVE": "APPROVED", "REQUEST_CHANGES": "CHANGES_REQUESTED"}.get(event, "COMMENTED")
    with forge.lock:
        review = forge.add_review(repository, pull, forge.app_login, body, state, head)
        for one in comments:
            forge.add_beside(repository, pull, forge.app_login, one, review)
    return 200, review_json(forge, repository, pull, review)


def _review(call: Call, pull: DemoPull, review_id: str) -> Json:
    """Return a review of the App's own."""
    for one in pull.reviews:
        if one["id"] == int(review_id):
            if one["by"] != call.forge.app_login:
                refuse(403, "Resource not accessible by integration")
            return one
    raise missing()


def _edit_review(call: Call, name: str, number: str, review_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull = pull_of(repository, number)
    review = _review(call, pull, review_id)
    review["body"] = _body(call)
    return 200, review_json(call.forge, repository, pull, review)


def _dismiss(call: Call, name: str, number: str, review_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull = pull_of(repository, number)
    review = _review(call, pull, review_id)
    if not call.json.get("message"):
        refuse(422, "Validation Failed", "message can't be blank")
    if review["state"] not in ("APPROVED", "CHANGES_REQUESTED"):
        state = review["state"].lower()
        refuse(422, "Unprocessable Entity", f"Can not dismiss a {state} pull request review")
    review["state"] = "DISMISSED"
    return 200, review_json(call.forge, repository, pull, review)


def _beside(call: Call, repository: DemoRepository, comment_id: str) -> tuple[DemoPull, Json]:
    for pull in repository.pulls.values():
        for one in pull.comments:
            if one["id"] == int(comment_id):
                return pull, one
    raise missing()


def _one_beside(call: Call, name: str, comment_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    return 200, comment_json(call.forge, repository, *_beside(call, repository, comment_id))


def _delete_beside(call: Call, name: str, comment_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull, one = _beside(call, repository, comment_id)
    if one["by"] != call.forge.app_login:
        refuse(403, "Resource not accessible by integration")
    with call.forge.lock:
        pull.comments.remove(one)
    return 204, None


def _reply(call: Call, name: str, number: str, comment_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull, one = _beside(call, repository, comment_id)
    if pull.number != int(number):
        refuse(404, "Not Found")
    if one["in_reply_to"]:
        refuse(422, "Validation Failed", "in_reply_to is not the first comment of its thread")
    forge, body = call.forge, _body(call)
    made = forge.reply(name, pull.number, to=one["id"], author=forge.app_login, body=body)
    return 201, comment_json(forge, repository, pull, made)


def _said(
    call: Call, name: str, comment_id: str, level: str = "read"
) -> tuple[DemoRepository, DemoPull | DemoIssue, Json]:
    """Return a comment on a pull request or an issue that the token can reach."""
    for permissions, kind in (
        (("pull_requests", "issues"), "pulls"),
        (("issues",), "plain_issues"),
    ):
        repository = call.repository(name, "metadata")
        for about in getattr(repository, kind).values():
            for one in about.issue_comments:
                if one["id"] == int(comment_id):
                    return call.repository(name, *permissions, level=level), about, one
    raise missing()


def _one_said(call: Call, name: str, comment_id: str) -> tuple[int, Any]:
    return 200, comment_json(call.forge, *_said(call, name, comment_id))


def _all_said(call: Call, name: str, number: str) -> tuple[int, Any]:
    about, repository = _about(call, name, number, "read"), call.forge.repositories[name]
    found = [comment_json(call.forge, repository, about, one) for one in about.issue_comments]
    return 200, page(call, found)


def _say(call: Call, name: str, number: str) -> tuple[int, Any]:
    about, repository = _about(call, name, number, "write"), call.forge.repositories[name]
    author = call.forge.app_login
    made = call.forge.comment(name, int(number), author=author, body=_body(call))
    return 201, comment_json(call.forge, repository, about, made)


def _about(call: Call, name: str, number: str, level: str) -> Any:
    """Return a pull request or an issue by its number, if the token may comment there."""
    repository = call.repository(name, "metadata")
    pull, issue = repository.pulls.get(int(number)), repository.plain_issues.get(int(number))
    permissions = ("pull_requests", "issues") if pull is not None else ("issues",)
    call.repository(name, *permissions, level=level)
    if pull is None and issue is None:
        refuse(404, "Not Found")
    return pull or issue


def _react(call: Call, name: str, comment_id: str) -> tuple[int, Any]:
    _said(call, name, comment_id)
    # Documented only for issues, but also applies to comments on a pull request.
    call.repository(name, "issues", level="write")
    return _reacted(call, comment_id)


def _react_beside(call: Call, name: str, comment_id: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    _beside(call, repository, comment_id)
    return _reacted(call, comment_id)


def _reacted(call: Call, comment_id: str) -> tuple[int, Any]:
    content = call.json.get("content")
    if content not in REACTIONS:
        refuse(422, "Validation Failed", {"field": "content", "code": "invalid"})
    forge = call.forge
    with forge.lock:
        known = forge.reactions.setdefault(int(comment_id), [])
        for one in known:
            if (one["content"], one["user"]["login"]) == (content, forge.app_login):
                return 200, one
        user = {"login": forge.app_login, "type": "Bot"}
        known.append({"id": next(forge.ids), "user": user, "content": content})
        return 201, known[-1]


def _body(call: Call) -> str:
    body = str(call.json.get("body") or "")
    if not body.strip():
        refuse(422, "Validation Failed", "body can't be blank")
    if len(body) > MOST_BODY_CHARS:
        refuse(422, "Validation Failed", "body is too long (maximum is 65536 characters)")
    return body


# -- threads, which REST hasn't -------------------------------------------------------------------


def _graphql(call: Call) -> tuple[int, Any]:
    query, given = str(call.json.get("query")), call.json.get("variables") or {}
    answer = _resolve if "resolveReviewThread" in query else _threads
    answer = _viewer if "viewer" in query else answer
    try:
        return 200, {"data": _chosen(answer(call, query, given), set(re.findall(r"\w+", query)))}
    except Refusal as refusal:
        if refusal.status == 401:
            raise
        kinds = {403: "FORBIDDEN", 404: "NOT_FOUND"}
        error = {"type": kinds.get(refusal.status), "message": refusal.body["message"]}
        return 200, {"data": None, "errors": [error]}


def _viewer(call: Call, query: str, given: Json) -> Json:
    if call.authorization.partition(" ")[2] not in call.forge.tokens:
        refuse(401, "Bad credentials")
    return {"viewer": {"login": call.forge.app_login}}


def _threads(call: Call, query: str, given: Json) -> Json:
    repository = call.repository(f"{given['owner']}/{given['name']}", "pull_requests")
    pull = pull_of(repository, str(given["number"]))
    found = list(_all_threads(pull))
    wanted = re.search(r"reviewThreads\(first: (\d+)", query)
    start, size = int(given.get("after") or 0), int(wanted[1]) if wanted else 0
    if not 1 <= size <= 100:
        refuse(422, "reviewThreads wants `first`, up to 100")
    info = {"hasNextPage": start + size < len(found), "endCursor": str(start + size)}
    threads = {"pageInfo": info, "nodes": found[start : start + size]}
    return {"repository": {"pullRequest": {"reviewThreads": threads}}}


def _all_threads(pull: DemoPull) -> Iterator[Json]:
    for top in pull.comments:
        if not top["in_reply_to"]:
            of_it = [one for one in pull.comments if one["in_reply_to"] == top["id"]]
            yield {
                "id": f"{_THREAD}{top['id']}",
                "isResolved": top["id"] in pull.resolved,
                "isOutdated": top["line"] is None,
                "comments": {
                    "nodes": [{"fullDatabaseId": str(one["id"])} for one in (top, *of_it)]
                },
            }


def _resolve(call: Call, query: str, given: Json) -> Json:
    thread_id = str(given.get("thread"))
    for name, repository in call.forge.repositories.items():
        for pull in repository.pulls.values():
            for thread in _all_threads(pull):
                if thread["id"] == thread_id:
                    call.repository(name, "contents", level="write")
                    pull.resolved[int(thread_id.removeprefix(_THREAD))] = call.forge.app_login
                    return {"resolveReviewThread": {"thread": thread | {"isResolved": True}}}
    raise missing(f"Could not resolve to a node with the global id of '{thread_id}'")


def _chosen(value: Any, words: set[str]) -> Any:
    """Return the part of a response that a query asks for."""
    if isinstance(value, list):
        return [_chosen(one, words) for one in value]
    if isinstance(value, dict):
        return {key: _chosen(one, words) for key, one in value.items() if key in words}
    return value


_NAME = r"([^/]+/[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
    ("GET", rf"/repos/{_NAME}/pulls/(\d+)/reviews", _reviews),
    ("POST", rf"/repos/{_NAME}/pulls/(\d+)/reviews", _post_review),
    ("PUT", rf"/repos/{_NAME}/pulls/(\d+)/reviews/(\d+)", _edit_review),
    ("PUT", rf"/repos/{_NAME}/pulls/(\d+)/reviews/(\d+)/dismissals", _dismiss),
    ("GET", rf"/repos/{_NAME}/pulls/(\d+)/comments", _comments),
    ("POST", rf"/repos/{_NAME}/pulls/(\d+)/comments/(\d+)/replies", _reply),
    ("GET", rf"/repos/{_NAME}/pulls/comments/(\d+)", _one_beside),
    ("DELETE", rf"/repos/{_NAME}/pulls/comments/(\d+)", _delete_beside),
    ("POST", rf"/repos/{_NAME}/pulls/comments/(\d+)/reactions", _react_beside),
    ("GET", rf"/repos/{_NAME}/issues/(\d+)/comments", _all_said),
    ("POST", rf"/repos/{_NAME}/issues/(\d+)/comments", _say),
    ("GET", rf"/repos/{_NAME}/issues/comments/(\d+)", _one_said),
    ("POST", rf"/repos/{_NAME}/issues/comments/(\d+)/reactions", _react),
    ("POST", r"/graphql", _graphql),
]
