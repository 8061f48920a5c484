"""The demo forge as a token sees it at Bitbucket Cloud: REST API 2.0, on loopback.

It refuses as the real one does: a token works for its repositories and scopes (404, 403), until it
expires (401); a remark outside of the diff, or without text, is refused (400); a thread is resolved
once (409); a fork's commits aren't in its target (404); `PUT` replaces a pull request as a whole;
and calls are counted (429). There are no reactions, no labels and no issues.
"""

import base64
import contextlib
import re
import time
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn
from urllib.parse import quote, unquote, urlencode

from supervisor.reviews.demo import bitbucket_json as as_json
from supervisor.reviews.demo.api_call import Call, Refusal
from supervisor.reviews.demo.forge import DemoForge
from supervisor.reviews.demo.state import DemoHook, DemoPull, DemoRepository, Json, Token, run_git

MOST_BODY_CHARS = 32_768
MOST_KEY_CHARS = 40
STATES = ("SUCCESSFUL", "FAILED", "INPROGRESS", "STOPPED")
_VERDICTS = {"approve": "approved", "request-changes": "changes_requested"}
_LEVELS = ("none", "read", "write", "admin")
_SCOPE = re.compile(r"(read|write|admin|delete):([a-z]+):bitbucket")
_FILTER = re.compile(r'([a-z_.]+)\s*([=>])\s*"([^"]*)"')

type Response = tuple[int, Any]


def _refuse(
    status: int, message: str, headers: dict[str, str] | None = None, **more: Any
) -> NoReturn:
    raise Refusal(status, {"type": "error", "error": {"message": message, **more}}, headers)


def _bad(field: str, why: str) -> NoReturn:
    _refuse(400, "Bad request", fields={field: [why]})


# -- who calls ------------------------------------------------------------------------------------


def scopes_of(token: Token) -> set[str]:
    """Return a token's scopes by their short names, with those that they include."""
    found = set()
    for one in token.permissions:
        if named := _SCOPE.fullmatch(one):
            right, thing = named.groups()
            thing = {"user": "account"}.get(thing, thing)
            one = thing if right == "read" else f"{thing}:{right}"
        found |= {one, one.partition(":")[0]}
    return found | ({"repository"} if "pullrequest" in found else set())


def _token(call: Call, scope: str) -> Token:
    """Return the token of a call, if it has a scope."""
    scheme, _, given = call.authorization.partition(" ")
    name = ""
    if scheme.lower() == "basic":
        with contextlib.suppress(ValueError):
            name, _, given = base64.b64decode(given).decode().partition(":")
    token = call.forge.tokens.get(given)
    is_known = token is not None and (token.kind, name) in (("access", ""), ("api", token.email))
    if token is None or not is_known or token.expires_at <= time.time():
        _refuse(401, "Token is invalid, expired, or not supported for this endpoint.")
    with call.forge.lock:
        if call.forge.calls_left == 0:
            limit = {"X-RateLimit-Resource": "api-0", "X-RateLimit-Limit": "1000"}
            _refuse(429, "Rate limit for this resource has been exceeded", limit)
        if call.forge.calls_left is not None:
            call.forge.calls_left -= 1
    held = scopes_of(token)
    call.headers |= {
        "X-OAuth-Scopes": ", ".join(sorted(held)),
        "X-Accepted-OAuth-Scopes": scope,
        "X-Credential-Type": f"{'repository_access' if token.kind == 'access' else 'api'}_token",
    }
    if scope not in held:
        detail = {"granted": sorted(held), "required": [scope]}
        message = "Your credentials lack one or more required privilege scopes."
        _refuse(403, message, detail=detail)
    return token


class On(NamedTuple):
    """What a request is about."""

    call: Call
    forge: DemoForge
    token: Token
    repository: DemoRepository
    pull: DemoPull

    def pull_json(self) -> Json:
        return as_json.pull(self.forge, self.repository, self.pull)

    def comment_json(self, one: Json) -> Json:
        return as_json.comment(self.forge, self.repository, self.pull, one)

    def commit_json(self, sha: str) -> Json:
        return as_json.commit(self.repository, sha)

    def hook_json(self, hook: DemoHook) -> Json:
        return as_json.hook(self.forge, self.repository, hook)

    def comments(self) -> list[Json]:
        both = [*self.pull.comments, *self.pull.issue_comments]
        return sorted(both, key=lambda one: int(one["id"]))

    def comment(self, comment_id: str | int, *, own: bool = False) -> Json:
        for one in self.comments():
            if one["id"] == int(comment_id):
                if own and one["by"] != self.token.login:
                    _refuse(403, "You can only change your own comments")
                return one
        _refuse(404, "Comment not found")


def _on(scope: str, answer: Callable[..., Response]) -> Callable[..., Response]:
    """Return the route for a repository, or a pull request of one: anybody may read a public
    one."""

    def route(call: Call, name: str, *rest: str) -> Response:
        token, repository = _token(call, scope), call.forge.repositories.get(name)
        is_public = repository is not None and repository.is_public and ":" not in scope
        may = is_public or token.reaches(name)
        if repository is None or repository.is_gone or not may:
            _refuse(404, f"Repository {name} not found")
        number = call.query.get("from_pullrequest_id", "0")
        if "/pullrequests/" in call.path:
            number, rest = rest[0], rest[1:]
        pull = repository.pulls.get(int(number))
        if pull is None and number != "0":
            _refuse(404, "Pull request not found")
        return answer(On(call, call.forge, token, repository, pull), *rest)  # type: ignore[arg-type]

    return route


def _page(call: Call, found: list[Json], most: int = 100) -> Response:
    """Return a page of a list, filtered by `q`, with where the next one is."""
    for key, sign, wanted in _FILTER.findall(call.query.get("q", "")):
        allowed = [wanted] if sign == "=" else _LEVELS[_LEVELS.index(wanted) + 1 :]
        found = [one for one in found if _at(one, key) in allowed]
    size, page = int(call.query.get("pagelen", 10)), int(call.query.get("page", 1))
    if not 1 <= size <= most or page < 1:
        _refuse(400, f"Invalid pagelen, should be between 1 and {most}")
    body: Json = {"pagelen": size, "page": page, "size": len(found)}
    if page * size < len(found):
        query = urlencode({**call.queries, "page": page + 1}, doseq=True)
        body["next"] = f"{call.forge.url}{as_json.API}{call.path}?{query}"
    return 200, body | {"values": found[(page - 1) * size : page * size]}


def _at(one: Any, key: str) -> Any:
    for part in key.split("."):
        one = one.get(part) if isinstance(one, dict) else None
    return one


# -- accounts, repositories -----------------------------------------------------------------------


def _user(call: Call) -> Response:
    if call.authorization.lower().startswith("bearer "):
        _refuse(403, "This API is not accessible by this authentication mechanism")
    return 200, as_json.account(call.forge, _token(call, "account").login)


def _repositories(call: Call, workspace: str) -> Response:
    token, all_ = _token(call, "repository"), call.forge.repositories.values()
    found = [one for one in all_ if token.reaches(one.full_name)]
    known = [one for one in found if one.full_name.startswith(f"{workspace}/")]
    return _page(call, [as_json.repository(call.forge, one) for one in known])


def _permissions(on: On, account: str = "") -> Response:
    """Return what everybody may do, or one account."""
    known = on.repository.collaborators
    if known.get(on.token.login) != "admin" and "repository:admin" not in scopes_of(on.token):
        _refuse(403, "You must be an admin of this repository to view its permissions.")
    found = [as_json.permission(on.forge, on.repository, one) for one in known]
    if not account:
        return _page(on.call, found)
    for one in found:
        if unquote(account) in (one["user"]["uuid"], one["user"]["account_id"]):
            return 200, one
    _refuse(404, f"{unquote(account)} is not a user of this repository")


# -- commits, branches, statuses ------------------------------------------------------------------


def _sha(on: On, name: str) -> str:
    """Return the id of a commit of the repository's own branches."""
    with contextlib.suppress(RuntimeError):
        wanted = f"{unquote(name)}^{{commit}}"
        found = run_git(on.repository.folder, "rev-parse", "--verify", "-q", wanted)
        if run_git(on.repository.folder, "for-each-ref", "--contains", found, "refs/heads"):
            return found
    _refuse(404, "Commit not found", data={"shas": [name]})


def _branch(on: On, branch: str) -> Response:
    try:
        target = on.commit_json(on.forge.sha(on.repository.full_name, unquote(branch)))
    except RuntimeError:
        _refuse(404, f"Branch {unquote(branch)} does not exist")
    return 200, {"type": "branch", "name": unquote(branch), "target": target}


def _statuses(on: On, commit: str) -> Response:
    sha = _status_sha(on, commit)
    found = [one for one in on.repository.checks if one["head_sha"] == sha]
    return _page(on.call, [as_json.status(on.forge, on.repository, one) for one in found])


def _set_status(on: On, commit: str) -> Response:
    """Set a status, in place of one with the same key."""
    wanted, sha = on.call.json, _status_sha(on, commit)
    key, state = str(wanted.get("key") or ""), wanted.get("state")
    if not 0 < len(key) <= MOST_KEY_CHARS:
        _bad("key", f"a key has 1 to {MOST_KEY_CHARS} characters")
    if state not in STATES:
        _bad("state", f"{state} is not one of {', '.join(STATES)}")
    if not str(wanted.get("url")).startswith(("http://", "https://")):
        _bad("url", "Enter a valid URL.")
    title = wanted.get("name") or key
    made: Json = {"id": next(on.forge.ids), "head_sha": sha, "external_id": key, "name": title}
    made |= {"conclusion": state, "url": wanted["url"], "refname": wanted.get("refname")}
    made["output"] = {"title": title, "summary": wanted.get("description") or ""}
    with on.forge.lock:
        known = on.repository.checks
        known[:] = [one for one in known if (one["head_sha"], one["external_id"]) != (sha, key)]
        known.append(made)
    return 201, as_json.status(on.forge, on.repository, made)


def _status_sha(on: On, commit: str) -> str:
    """Return the commit of a status: also one of a fork with a pull request here."""
    heads = [one.head_sha for one in on.repository.pulls.values()]
    found = next((sha for sha in heads if len(commit) >= 7 and sha.startswith(commit)), "")
    return found or _sha(on, commit)


# -- pull requests --------------------------------------------------------------------------------


def _pulls(on: On) -> Response:
    wanted = on.call.queries.get("state", ["OPEN"])
    known = reversed(on.repository.pulls.values())
    found = [on._replace(pull=one).pull_json() for one in known]
    return _page(on.call, [one for one in found if one["state"] in wanted], most=50)


def _open_pull(on: On) -> Response:
    wanted, name = on.call.json, on.repository.full_name
    source, title = _at(wanted, "source.branch.name") or "", wanted.get("title")
    base = _at(wanted, "destination.branch.name") or on.repository.default_branch
    if not title:
        _bad("title", "required key not provided")
    try:
        ends = {on.forge.sha(name, one) for one in (source, base)}
    except RuntimeError:
        _bad("source", f"branch not found: {source}")
    if len(ends) == 1:
        _refuse(400, "There are no changes to be pulled")
    for one in on.repository.pulls.values():
        if one.is_open and (one.head_ref, one.base_ref) == (source, base):
            return 201, on._replace(pull=one).pull_json()
    more = {"author": on.token.login, "body": wanted.get("description") or "", "base": base}
    is_draft = bool(wanted.get("draft"))
    made = on.forge.open_pull(name, source, title=title, is_draft=is_draft, **more)
    return 201, on._replace(pull=made).pull_json()


def _change_pull(on: On) -> Response:
    pull, wanted = on.pull, on.call.json
    if not pull.is_open:
        _refuse(400, "Only open pull requests can be mutated")
    if not wanted.get("title"):
        _bad("title", "required key not provided")
    pull.title, pull.body = wanted["title"], wanted.get("description") or ""
    pull.base_ref = _at(wanted, "destination.branch.name") or on.repository.default_branch
    pull.reviewers, pull.is_draft = wanted.get("reviewers") or [], bool(wanted.get("draft"))
    on.forge.tell(on.repository, pull, "edited", by=on.token.login)
    return 200, on.pull_json()


def _commits(on: On) -> Response:
    source = on.forge.repositories[on.pull.head_repository]
    base = on.forge.sha(on.repository.full_name, on.pull.base_ref)
    seen = {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(on.repository.folder / "objects")}
    words = ("log", "--format=%H", on.pull.head_sha, f"^{base}")
    shas = run_git(source.folder, *words, env=seen).split()
    return _page(on.call, [as_json.commit(source, sha) for sha in shas])


def _to_diff(on: On, kind: str) -> Response:
    name, pull = on.repository.full_name, on.pull
    ends = f"{pull.head_repository}:{pull.head_sha}\r{on.forge.sha(name, pull.base_ref)}"
    query = urlencode({"from_pullrequest_id": pull.number, "topic": "true"})
    path = f"{as_json.API}/repositories/{name}/{kind}/{quote(ends, safe='/:')}"
    raise Refusal(302, "", {"Location": f"{on.forge.url}{path}?{query}"})


def _diffstat(on: On) -> Response:
    found, words = [], ("--numstat", "--no-renames", "-z")
    for line in on.forge.diff(on.repository, on.pull, *words).split("\0")[:-1]:
        added, removed, path = line.split("\t", 2)
        one: Json = {"type": "diffstat", "status": "modified", "old": {"path": path}}
        one |= {"new": {"path": path}, "lines_added": int(added.strip("-") or 0)}
        found.append(one | {"lines_removed": int(removed.strip("-") or 0)})
    return _page(on.call, found, most=500)


def _say_verdict(on: On, kind: str) -> Response:
    if on.pull.is_merged:
        _refuse(400, "This pull request is already closed.")
    on.pull.verdicts[on.token.login] = _VERDICTS[kind]
    return 200, as_json.participant(on.forge, on.pull, on.token.login)


def _unsay_verdict(on: On, kind: str) -> Response:
    if on.pull.verdicts.get(on.token.login) != _VERDICTS[kind]:
        _refuse(404, "You haven't said that of this pull request")
    del on.pull.verdicts[on.token.login]
    return 204, None


# -- comments -------------------------------------------------------------------------------------


def _comments(on: On) -> Response:
    found = [on.comment_json(one) for one in on.comments()]
    return _page(on.call, found[:: -1 if on.call.query.get("sort", "").startswith("-") else 1])


def _words(on: On) -> str:
    raw = _at(on.call.json, "content.raw")
    if not isinstance(raw, str) or not raw.strip():
        _bad("content", "this field is required")
    if len(raw) > MOST_BODY_CHARS:
        _bad("content", f"at most {MOST_BODY_CHARS} characters")
    return raw


def _say(on: On) -> Response:
    wanted, raw, by = on.call.json, _words(on), on.token.login
    name, number = on.repository.full_name, on.pull.number
    parent, inline = _at(wanted, "parent.id"), wanted.get("inline")
    if parent is not None:
        made = on.forge.reply(name, number, to=on.comment(parent)["id"], author=by, body=raw)
    elif inline:
        path, line, start = inline.get("path"), inline.get("to"), inline.get("start_to")
        hunks = on.forge.places(on.repository, on.pull).get(path, [])
        if not any({start or line, line} <= hunk for hunk in hunks):
            _bad("inline", f"{path}:{line} is not part of the diff")
        place = {"path": path, "line": line, "start_line": start, "body": raw}
        made = on.forge.add_beside(on.repository, on.pull, by, place)
    else:
        made = on.forge.comment(name, number, author=by, body=raw)
    return 201, on.comment_json(made)


def _edit_comment(on: On, comment_id: str) -> Response:
    one = on.comment(comment_id, own=True)
    one["body"] = _words(on)
    return 200, on.comment_json(one)


def _delete_comment(on: On, comment_id: str) -> Response:
    """Delete a comment; one with answers stays, without its text."""
    one = on.comment(comment_id, own=True)
    with on.forge.lock:
        if any(each.get("in_reply_to") == one["id"] for each in on.comments()):
            one["is_deleted"] = True
        else:
            (on.pull.comments if "path" in one else on.pull.issue_comments).remove(one)
    return 204, None


def _resolve(on: On, comment_id: str) -> Response:
    one = on.comment(comment_id)
    if one.get("in_reply_to") or "path" not in one:
        _refuse(403, "Only top-level comments on the diff can be resolved")
    if one["id"] in on.pull.resolved:
        _refuse(409, "The comment has already been resolved")
    on.pull.resolved[one["id"]] = on.token.login
    return 200, as_json.resolution(on.forge, on.token.login, one)


def _reopen(on: On, comment_id: str) -> Response:
    if on.pull.resolved.pop(int(comment_id), None) is None:
        _refuse(404, "The comment has not been resolved")
    return 204, None


# -- webhooks -------------------------------------------------------------------------------------


def _hooks(on: On) -> Response:
    return _page(on.call, [on.hook_json(one) for one in on.repository.hooks])


def _put_hook(on: On, uid: str = "") -> Response:
    """Add a subscription, or change one."""
    wanted = on.call.json
    if not uid and not (wanted.get("url") and wanted.get("events")):
        _bad("url", "required key not provided")
    hook = _hook(on, uid) if uid else DemoHook(f"{{{uuid.uuid4()}}}", "", [])
    hook.url, hook.events = wanted.get("url", hook.url), wanted.get("events", hook.events)
    hook.secret = wanted.get("secret", hook.secret) or ""
    hook.description = wanted.get("description", hook.description)
    hook.is_active = wanted.get("active", hook.is_active)
    if not uid:
        on.repository.hooks.append(hook)
    return 200 if uid else 201, on.hook_json(hook)


def _delete_hook(on: On, uid: str) -> Response:
    on.repository.hooks.remove(_hook(on, uid))
    return 204, None


def _hook(on: On, uid: str) -> DemoHook:
    for one in on.repository.hooks:
        if one.uuid.strip("{}") == unquote(uid).strip("{}"):
            return one
    _refuse(404, "Webhook not found")


_PULL = r"/pullrequests/(\d+)"
_COMMENT = rf"{_PULL}/comments/(\d+)"
_VERDICT = rf"{_PULL}/(approve|request-changes)"
_COMMIT = r"/commit/([^/]+)"
# Method, scope, path below the repository's, answer.
_ROUTES: list[tuple[str, str, str, Callable[..., Response]]] = [
    ("GET", "repository", "", lambda on: (200, as_json.repository(on.forge, on.repository))),
    ("GET", "repository", "/permissions-config/users/?([^/]*)", _permissions),
    ("GET", "repository", "/refs/branches/(.+)", _branch),
    ("GET", "repository", _COMMIT, lambda on, sha: (200, on.commit_json(_sha(on, sha)))),
    ("GET", "repository", f"{_COMMIT}/statuses", _statuses),
    ("POST", "repository:write", f"{_COMMIT}/statuses/build/?", _set_status),
    ("GET", "pullrequest", "/pullrequests", _pulls),
    ("POST", "pullrequest:write", "/pullrequests", _open_pull),
    ("GET", "pullrequest", _PULL, lambda on: (200, on.pull_json())),
    ("PUT", "pullrequest:write", _PULL, _change_pull),
    ("GET", "pullrequest", f"{_PULL}/commits", _commits),
    ("GET", "pullrequest", f"{_PULL}/(diff|diffstat)", _to_diff),
    ("GET", "repository", "/diff/.+", lambda on: (200, on.forge.patch(on.repository, on.pull))),
    ("GET", "repository", "/diffstat/.+", _diffstat),
    ("POST", "pullrequest:write", _VERDICT, _say_verdict),
    ("DELETE", "pullrequest:write", _VERDICT, _unsay_verdict),
    ("GET", "pullrequest", f"{_PULL}/tasks", lambda on: _page(on.call, on.pull.tasks)),
    ("GET", "pullrequest", f"{_PULL}/comments", _comments),
    ("POST", "pullrequest", f"{_PULL}/comments", _say),
    ("GET", "pullrequest", _COMMENT, lambda on, one: (200, on.comment_json(on.comment(one)))),
    ("PUT", "pullrequest", _COMMENT, _edit_comment),
    ("DELETE", "pullrequest", _COMMENT, _delete_comment),
    ("POST", "pullrequest", f"{_COMMENT}/resolve", _resolve),
    ("DELETE", "pullrequest", f"{_COMMENT}/resolve", _reopen),
    ("GET", "webhook", "/hooks", _hooks),
    ("POST", "webhook:write", "/hooks", _put_hook),
    ("GET", "webhook", "/hooks/([^/]+)", lambda on, uid: (200, on.hook_json(_hook(on, uid)))),
    ("PUT", "webhook:write", "/hooks/([^/]+)", _put_hook),
    ("DELETE", "webhook:write", "/hooks/([^/]+)", _delete_hook),
]
ROUTES: list[tuple[str, str, Callable[..., Response]]] = [
    ("GET", "/user", _user),
    ("GET", "/repositories/([^/]+)", _repositories),
    (
        "GET",
        "/workspaces/([^/]+/)permissions/repositories/([^/]+)",
        lambda call, workspace, slug: _on("repository", _permissions)(call, workspace + slug),
    ),
    *(
        (verb, f"/repositories/([^/]+/[^/]+){path}", _on(scope, answer))
        for verb, scope, path, answer in _ROUTES
    ),
]
