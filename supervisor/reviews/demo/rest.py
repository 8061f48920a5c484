"""The demo forge as an App sees it: GitHub's REST API, on loopback.

It refuses as the real one does: a remark outside of the diff fails the whole review (422), a diff
of more than 300 files isn't given (406), a token works only for what it was minted for (403, 404),
and only until it expires (401).
"""

import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

from supervisor.reviews.demo import conversation_routes
from supervisor.reviews.demo.api_call import Call, missing, page, pull_of, refuse
from supervisor.reviews.demo.github_json import pull_json, repository_json, user_json
from supervisor.reviews.demo.state import DemoIssue, Json, run_git

MOST_DIFF_FILES, MOST_DIFF_LINES = 300, 20_000


def _tokens(call: Call, installation: str) -> tuple[int, Any]:
    call.as_app()
    if int(installation) != call.forge.installation:
        refuse(404, "Not Found")
    wanted = call.json
    token = call.forge.mint(
        int(installation), wanted.get("repositories", []), wanted.get("permissions", {})
    )
    if token is None:
        refuse(422, "The permissions requested are not granted to this installation.")
    expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(token.expires_at))
    body = {"token": token.value, "expires_at": expires, "permissions": token.permissions}
    return 201, body


def _convert(call: Call, code: str) -> tuple[int, Any]:
    made = call.forge.manifests.pop(code, None)
    if made is None:
        refuse(404, "Not Found")
    return 201, made


def _app(call: Call) -> tuple[int, Any]:
    call.as_app()
    slug = call.forge.app_login.removesuffix("[bot]")
    return 200, {"id": int(call.forge.app_id), "slug": slug, "name": slug}


def _installations(call: Call) -> tuple[int, Any]:
    call.as_app()
    account = {"login": "acme", "type": "Organization"}
    found = [
        {
            "id": number,
            "account": account,
            "permissions": call.forge.permissions,
            "suspended_at": None,
        }
        for number in (*call.forge.lost_installations, call.forge.installation)
    ]
    return 200, page(call, found)


def _installed(call: Call) -> tuple[int, Any]:
    token = call.forge.tokens.get(call.authorization.partition(" ")[2])
    if token is None:
        refuse(401, "Bad credentials")
    found = [
        repository_json(call.forge, call.forge.repositories[one])
        for one in sorted(token.repositories)
    ]
    return 200, {"total_count": len(found), "repositories": page(call, found)}


def _deliveries(call: Call) -> tuple[int, Any]:
    call.as_app()
    with call.forge.lock:
        sent = list(reversed(call.forge.sent))
    return 200, [
        {
            "id": one.id,
            "guid": one.guid,
            "event": one.event,
            "redelivery": one.redelivery,
            "status": "OK" if 200 <= one.status < 300 else "failed",
            "status_code": one.status,
        }
        for one in sent[: int(call.query.get("per_page", 30))]
    ]


def _redeliver(call: Call, delivery: str) -> tuple[int, Any]:
    call.as_app()
    if not call.forge.redeliver(int(delivery)):
        refuse(404, "Not Found")
    return 202, {}


def _repository(call: Call, name: str) -> tuple[int, Any]:
    return 200, repository_json(call.forge, call.repository(name, "metadata"))


def _pulls(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    wanted = call.query.get("state", "open")
    head = call.query.get("head", "")
    pulls = list(repository.pulls.values())
    if call.query.get("direction") == "desc":
        pulls.reverse()
    found = [
        pull_json(call.forge, repository, one)
        for one in pulls
        if wanted == "all" or one.is_open == (wanted == "open")
        if not head or head == f"{one.head_repository.partition('/')[0]}:{one.head_ref}"
    ]
    return 200, page(call, found)


def _one_pull(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests")
    pull = pull_of(repository, number)
    if "diff" not in call.accept:
        return 200, pull_json(call.forge, repository, pull)
    patch = call.forge.patch(repository, pull)
    files = patch.count("\ndiff --git ") + patch.startswith("diff --git ")
    if files > MOST_DIFF_FILES or patch.count("\n") > MOST_DIFF_LINES:
        errors = {"resource": "PullRequest", "field": "diff", "code": "too_large"}
        refuse(406, "Sorry, the diff exceeded the maximum number of files (300)", errors)
    return 200, patch


def _open_pull(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    wanted = call.json
    try:
        call.forge.sha(name, wanted["head"])
    except RuntimeError:
        refuse(422, "Validation Failed", {"field": "head", "code": "invalid"})
    for one in repository.pulls.values():
        if one.is_open and (one.head_ref, one.base_ref) == (wanted["head"], wanted["base"]):
            refuse(422, "Validation Failed", {"message": "A pull request already exists"})
    pull = call.forge.open_pull(
        name,
        wanted["head"],
        title=wanted["title"],
        author=call.forge.app_login,
        body=wanted.get("body", ""),
        base=wanted["base"],
    )
    return 201, pull_json(call.forge, repository, pull)


def _change_pull(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", level="write")
    pull, wanted = pull_of(repository, number), call.json
    pull.title, pull.body = wanted.get("title", pull.title), wanted.get("body", pull.body)
    return 200, pull_json(call.forge, repository, pull)


def _ref(call: Call, name: str, branch: str) -> tuple[int, Any]:
    call.repository(name, "contents")
    try:
        sha = call.forge.sha(name, unquote(branch))
    except RuntimeError:
        refuse(404, "Not Found")
    return 200, {"ref": f"refs/heads/{branch}", "object": {"type": "commit", "sha": sha}}


def _commit(call: Call, name: str, sha: str) -> tuple[int, Any]:
    repository = call.repository(name, "contents")
    said = run_git(repository.folder, "show", "-s", "--format=%T%n%cn%n%ce%n%B", sha)
    tree, by, mail, message = said.split("\n", 3)
    committer = {"name": by, "email": mail}
    return 200, {"sha": sha, "tree": {"sha": tree}, "committer": committer, "message": message}


def _issue_json(call: Call, name: str, issue: DemoIssue) -> Json:
    return {
        "number": issue.number,
        "title": issue.title,
        "body": issue.body,
        "state": "open" if issue.is_open else "closed",
        "user": user_json(issue.author),
        "html_url": f"{call.forge.url}/{name}/issues/{issue.number}",
    }


def _issues(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "issues")
    found = [
        _issue_json(call, name, one)
        for one in reversed(repository.plain_issues.values())
        if one.is_open and call.query.get("creator", one.author) == one.author
    ]
    return 200, page(call, found)


def _open_issue(call: Call, name: str) -> tuple[int, Any]:
    call.repository(name, "issues", level="write")
    wanted = call.json
    made = call.forge.open_issue(name, wanted["title"], call.forge.app_login)
    made.body = wanted.get("body", "")
    return 201, _issue_json(call, name, made)


def _change_issue(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "issues", level="write")
    issue = repository.plain_issues.get(int(number))
    if issue is None:
        refuse(404, "Not Found")
    issue.title = call.json.get("title", issue.title)
    issue.body = call.json.get("body", issue.body)
    return 200, _issue_json(call, name, issue)


def _events(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "pull_requests", "issues")
    found = [
        {name: value for name, value in one.items() if name != "by"}
        | {"actor": user_json(one["by"])}
        for one in pull_of(repository, number).events
    ]
    return 200, page(call, found)


def _permission(call: Call, name: str, login: str) -> tuple[int, Any]:
    repository = call.repository(name, "metadata")
    held = repository.collaborators.get(unquote(login))
    if held is None:
        refuse(404, f"{login} is not a user")
    return 200, {"permission": held, "user": {"login": login}}


def _checks(call: Call, name: str, ref: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks")
    found = [
        one
        for one in repository.checks
        if one["head_sha"] == ref and call.query.get("check_name") in (None, one["name"])
    ]
    return 200, {"total_count": len(found), "check_runs": page(call, found)}


def _add_check(call: Call, name: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks", level="write")
    wanted = call.json
    if not re.fullmatch("[0-9a-f]{40}", wanted.get("head_sha", "")):
        refuse(422, "No commit found for SHA")
    one = {
        **wanted,
        "id": next(call.forge.ids),
        "html_url": f"{call.forge.url}/{name}/checks",
        "app": {"slug": call.forge.app_login.removesuffix("[bot]")},
    }
    repository.checks.append(one)
    return 201, one


def _change_check(call: Call, name: str, number: str) -> tuple[int, Any]:
    repository = call.repository(name, "checks", level="write")
    for one in repository.checks:
        if one["id"] == int(number):
            one |= call.json
            return 200, one
    raise missing()


_NAME = r"([^/]+/[^/]+)"
ROUTES: list[tuple[str, str, Callable[..., tuple[int, Any]]]] = [
    ("POST", r"/app/installations/(\d+)/access_tokens", _tokens),
    ("POST", r"/app-manifests/([^/]+)/conversions", _convert),
    ("GET", r"/app", _app),
    ("GET", r"/app/installations", _installations),
    ("GET", r"/app/hook/deliveries", _deliveries),
    ("POST", r"/app/hook/deliveries/(\d+)/attempts", _redeliver),
    ("GET", r"/installation/repositories", _installed),
    ("GET", rf"/repos/{_NAME}", _repository),
    ("GET", rf"/repos/{_NAME}/pulls", _pulls),
    ("POST", rf"/repos/{_NAME}/pulls", _open_pull),
    ("GET", rf"/repos/{_NAME}/pulls/(\d+)", _one_pull),
    ("PATCH", rf"/repos/{_NAME}/pulls/(\d+)", _change_pull),
    ("GET", rf"/repos/{_NAME}/git/ref/heads/(.+)", _ref),
    ("GET", rf"/repos/{_NAME}/git/commits/([0-9a-f]{{40}})", _commit),
    ("GET", rf"/repos/{_NAME}/issues", _issues),
    ("POST", rf"/repos/{_NAME}/issues", _open_issue),
    ("PATCH", rf"/repos/{_NAME}/issues/(\d+)", _change_issue),
    ("GET", rf"/repos/{_NAME}/issues/(\d+)/events", _events),
    ("GET", rf"/repos/{_NAME}/collaborators/([^/]+)/permission", _permission),
    ("GET", rf"/repos/{_NAME}/commits/([^/]+)/check-runs", _checks),
    ("POST", rf"/repos/{_NAME}/check-runs", _add_check),
    ("PATCH", rf"/repos/{_NAME}/check-runs/(\d+)", _change_check),
    *conversation_routes.ROUTES,
]
