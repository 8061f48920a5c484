"""The demo forge's data as Bitbucket Cloud's JSON, and Bitbucket's webhooks.

Fields are those of developer.atlassian.com/cloud/bitbucket/rest and
support.atlassian.com/bitbucket-cloud/docs/event-payloads. Commits of pull requests are short, and
HTML in a text is escaped.
"""

from urllib.parse import quote
from uuid import NAMESPACE_URL, uuid5

from markdown_it import MarkdownIt

from supervisor.reviews.demo.state import (
    DemoHook,
    DemoIssue,
    DemoPull,
    DemoRepository,
    DemoState,
    Happened,
    Json,
    run_git,
    signature,
)

API = "/2.0"
SHORT = 12
_EVENTS = {
    "opened": "created",
    "pushed": "updated",
    "edited": "updated",
    "commented": "comment_created",
    "comment_edited": "comment_updated",
}
_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def webhooks(state: DemoState, told: Happened) -> list[tuple[str, Json]]:
    """Return the events that tell of something, and their bodies."""
    about = told.about
    if isinstance(about, DemoIssue):
        return []
    event = _EVENTS.get(told.kind, "")
    if told.kind == "closed":
        event = "fulfilled" if about.is_merged else "rejected"
    around = {"actor": account(state, told.by), "repository": short(state, told.repository)}
    body = around | {"pullrequest": pull(state, told.repository, about)}
    if told.comment is not None:
        body["comment"] = comment(state, told.repository, about, told.comment)
    found = [(f"pullrequest:{event}", body)] if event else []
    if told.kind == "pushed" and about.head_repository == told.repository.full_name:
        target = commit(told.repository, about.head_sha)
        new = {"type": "branch", "name": about.head_ref, "target": target}
        found.append(("repo:push", around | {"push": {"changes": [{"new": new}]}}))
    return found


def webhook_headers(hook: DemoHook, event: str, guid: str, payload: bytes) -> dict[str, str]:
    """Return the headers of a delivery; without a secret it isn't signed."""
    headers = {
        "User-Agent": "Bitbucket-Webhooks/2.0",
        "X-Event-Key": event,
        "X-Hook-UUID": hook.uuid.strip("{}"),
        "X-Request-UUID": guid,
    }
    signed = {"X-Hub-Signature": signature(hook.secret.encode(), payload)} if hook.secret else {}
    return headers | signed


def uuid_of(name: str) -> str:
    """Return the UUID of an account or a repository, in braces."""
    return f"{{{uuid5(NAMESPACE_URL, f'demo:{name}')}}}"


def account(state: DemoState, login: str) -> Json:
    """Return a user; an access token is one of its own, without a nickname."""
    found = {"display_name": login.title(), "uuid": uuid_of(login), "type": "user"}
    found |= {"account_id": f"557058:{uuid5(NAMESPACE_URL, login)}", "nickname": login}
    if login == state.app_login:
        found |= {"type": "app_user", "kind": "repository_access_token", "display_name": login}
        del found["nickname"]
    html = f"{state.url}/{quote(found['uuid'])}/"
    return found | {"links": _links(state, f"/users/{quote(found['uuid'])}", html)}


def permission(state: DemoState, one: DemoRepository, login: str) -> Json:
    """Return what somebody may do in a repository."""
    return {
        "type": "repository_permission",
        "permission": one.collaborators[login],
        "user": account(state, login),
        "repository": short(state, one),
    }


def repository(state: DemoState, one: DemoRepository) -> Json:
    """Return a repository as its own address tells it; others tell less."""
    found = short(state, one)
    found["links"]["clone"] = [{"name": "https", "href": f"{state.url}/{one.full_name}.git"}]
    return found | {
        "slug": found["name"],
        "scm": "git",
        "is_private": not one.is_public,
        "mainbranch": {"type": "branch", "name": one.default_branch},
    }


def short(state: DemoState, one: DemoRepository) -> Json:
    """Return a repository as pull requests and webhooks tell it."""
    return {
        "type": "repository",
        "uuid": uuid_of(one.full_name),
        "full_name": one.full_name,
        "name": one.full_name.partition("/")[2],
        "links": _links(state, _at(one), f"{state.url}/{one.full_name}"),
    }


def pull(state: DemoState, one: DemoRepository, found: DemoPull) -> Json:
    """Return a pull request."""
    source = state.repositories[found.head_repository]
    base = state.sha(one.full_name, found.base_ref)
    closed = "MERGED" if found.is_merged else "DECLINED"
    at = f"{_at(one)}/pullrequests/{found.number}"
    said = [*found.comments, *found.issue_comments]
    links = _links(state, at, page_of(state, one, found))
    for name in ("comments", "diff", "diffstat", "approve", "request-changes", "statuses"):
        links[name] = {"href": f"{state.url}{API}{at}/{name}"}
    return {
        "type": "pullrequest",
        "id": found.number,
        "title": found.title,
        "description": found.body,
        "summary": content(found.body),
        "state": "OPEN" if found.is_open else closed,
        "draft": found.is_draft,
        "author": account(state, found.author),
        "source": _end(state, None if source.is_gone else source, found.head_ref, found.head_sha),
        "destination": _end(state, one, found.base_ref, base),
        "close_source_branch": False,
        "reviewers": found.reviewers,
        "participants": [participant(state, found, by) for by in found.verdicts],
        "comment_count": sum(not each.get("is_deleted") for each in said),
        "task_count": len(found.tasks),
        "created_on": moment(found.opened_at),
        "updated_on": moment(found.closed_at or found.updated_at or found.opened_at),
        "links": links,
    }


def _end(state: DemoState, of: DemoRepository | None, branch: str, sha: str) -> Json:
    return {
        "branch": {"name": branch},
        "commit": {"type": "commit", "hash": sha[:SHORT]},
        "repository": of and short(state, of),
    }


def participant(state: DemoState, found: DemoPull, by: str) -> Json:
    """Return what somebody says of a pull request as a whole."""
    return {
        "type": "participant",
        "user": account(state, by),
        "role": "PARTICIPANT",
        "state": found.verdicts.get(by),
        "approved": found.verdicts.get(by) == "approved",
    }


def comment(state: DemoState, one: DemoRepository, of: DemoPull, said: Json) -> Json:
    """Return a comment, beside the code or not; of a deleted one the text is gone."""
    page = page_of(state, one, of)
    links = _links(
        state,
        f"{_at(one)}/pullrequests/{of.number}/comments/{said['id']}",
        f"{page}/_/diff#comment-{said['id']}",
    )
    found: Json = {
        "type": "pullrequest_comment",
        "id": said["id"],
        "user": account(state, said["by"]),
        "content": content("" if said.get("is_deleted") else said["body"]),
        "created_on": moment(said["at"]),
        "updated_on": moment(said["at"]),
        "deleted": bool(said.get("is_deleted")),
        "pending": False,
        "pullrequest": {"type": "pullrequest", "id": of.number, "title": of.title},
        "links": links,
    }
    if said.get("in_reply_to"):
        found["parent"] = {"id": said["in_reply_to"]}
    if "path" not in said:
        return found
    ends = f"{said['commit'][:SHORT]}..{state.sha(one.full_name, of.base_ref)[:SHORT]}"
    code = f"{state.url}{API}{_at(one)}/diff/{one.full_name}:{ends}?path={quote(said['path'])}"
    links["code"] = {"href": code}
    is_outdated = said["line"] is None
    start = said["original_start_line"] if is_outdated else said["start_line"]
    found["inline"] = {
        "path": said["path"],
        "from": None,
        "to": said["original_line"] if is_outdated else said["line"],
        "start_from": None,
        "start_to": start,
        "outdated": is_outdated,
    }
    by = of.resolved.get(said["id"])
    found["resolution"] = resolution(state, by, said) if by else None
    return found


def resolution(state: DemoState, by: str, said: Json) -> Json:
    user, at = account(state, by), moment(said["at"])
    return {"type": "comment_resolution", "user": user, "created_on": at}


def status(state: DemoState, one: DemoRepository, check: Json) -> Json:
    """Return a build status of a commit."""
    at = f"{_at(one)}/commit/{check['head_sha']}"
    return {
        "type": "build",
        "key": check["external_id"],
        "state": check["conclusion"],
        "name": check["name"],
        "description": check["output"]["summary"],
        "url": check["url"],
        "refname": check["refname"],
        "commit": {"type": "commit", "hash": check["head_sha"]},
        "repository": short(state, one),
        "links": _links(state, f"{at}/statuses/build/{quote(check['external_id'], safe='')}", ""),
    }


def commit(one: DemoRepository, sha: str) -> Json:
    """Return a commit."""
    said = run_git(one.folder, "show", "-s", "--format=%an <%ae>%n%P%n%B", sha, raw=True)
    raw, parents, message = said.split("\n", 2)
    return {
        "type": "commit",
        "hash": sha,
        "message": message.strip(),
        "author": {"type": "author", "raw": raw},
        "parents": [{"type": "commit", "hash": each} for each in parents.split()],
    }


def hook(state: DemoState, one: DemoRepository, found: DemoHook) -> Json:
    """Return a subscription of webhooks; its secret is never told."""
    return {
        "type": "webhook_subscription",
        "uuid": found.uuid,
        "url": found.url,
        "description": found.description,
        "events": found.events,
        "active": found.is_active,
        "secret_set": bool(found.secret),
        "subject_type": "repository",
        "links": _links(state, f"{_at(one)}/hooks/{quote(found.uuid)}", ""),
    }


def content(raw: str) -> Json:
    """Return a text, and as it is shown."""
    html = _MARKDOWN.render(raw).strip()
    return {"type": "rendered", "raw": raw, "markup": "markdown", "html": html}


def page_of(state: DemoState, one: DemoRepository, found: DemoPull) -> str:
    """Return the page of a pull request."""
    return f"{state.url}/{one.full_name}/pull-requests/{found.number}"


def moment(at: str) -> str:
    return at.replace("Z", ".000000+00:00")


def _at(one: DemoRepository) -> str:
    return f"/repositories/{one.full_name}"


def _links(state: DemoState, path: str, html: str) -> Json:
    page = {"html": {"href": html}} if html else {}
    return {"self": {"href": f"{state.url}{API}{path}"}} | page
