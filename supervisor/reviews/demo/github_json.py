"""The demo forge's data as GitHub's JSON, and GitHub's webhooks.

Fields are those of docs.github.com/rest and docs.github.com/webhooks.
"""

from supervisor.reviews.demo.state import (
    DemoIssue,
    DemoPull,
    DemoRepository,
    DemoState,
    Happened,
    Json,
)

_ACTIONS = {"pushed": "synchronize", "labelled": "labeled", "comment_edited": "edited"}


def webhook(state: DemoState, told: Happened) -> tuple[str, Json]:
    """Return the event that tells of something, and its body."""
    repository, about = told.repository, told.about
    action = "created" if told.kind == "commented" else _ACTIONS.get(told.kind, told.kind)
    body: Json = {
        "action": action,
        "repository": repository_json(state, repository),
        "sender": user_json(told.by),
        "installation": {"id": state.installation},
        **told.more,
    }
    if told.comment is None:
        assert isinstance(about, DemoPull)
        pull = pull_json(state, repository, about)
        return "pull_request", {**body, "number": about.number, "pull_request": pull}
    comment = comment_json(state, repository, about, told.comment)
    if "path" in told.comment:
        assert isinstance(about, DemoPull)
        pull = pull_json(state, repository, about)
        return "pull_request_review_comment", {**body, "comment": comment, "pull_request": pull}
    return "issue_comment", {**body, "comment": comment, "issue": _issue(state, repository, about)}


def _issue(state: DemoState, repository: DemoRepository, about: DemoPull | DemoIssue) -> Json:
    page = page_of(state, repository, about)
    found: Json = {
        "number": about.number,
        "title": about.title,
        "user": user_json(about.author),
        "state": "open" if about.is_open else "closed",
        "html_url": page,
    }
    return found | ({"pull_request": {"html_url": page}} if isinstance(about, DemoPull) else {})


def page_of(state: DemoState, repository: DemoRepository, about: DemoPull | DemoIssue) -> str:
    """Return the page of a pull request or an issue."""
    kind = "pull" if isinstance(about, DemoPull) else "issues"
    return f"{state.url}/{repository.full_name}/{kind}/{about.number}"


def user_json(login: str) -> Json:
    """Return a user."""
    return {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}


def repository_json(state: DemoState, one: DemoRepository) -> Json:
    owner, _, name = one.full_name.partition("/")
    return {
        "id": one.id,
        "name": name,
        "full_name": one.full_name,
        "owner": {"login": owner, "type": "Organization"},
        "private": False,
        "default_branch": one.default_branch,
        "clone_url": f"{state.url}/{one.full_name}.git",
        "html_url": f"{state.url}/{one.full_name}",
    }


def pull_json(state: DemoState, repository: DemoRepository, pull: DemoPull) -> Json:
    return {
        "id": repository.id * 1000 + pull.number,
        "number": pull.number,
        "state": "open" if pull.is_open else "closed",
        "title": pull.title,
        "merged_at": pull.closed_at if pull.is_merged else None,
        "closed_at": pull.closed_at,
        "body": pull.body,
        "draft": pull.is_draft,
        "user": user_json(pull.author),
        "labels": [{"name": name} for name in pull.labels],
        "html_url": page_of(state, repository, pull),
        "head": {
            "ref": pull.head_ref,
            "sha": pull.head_sha,
            "repo": repository_json(state, state.repositories[pull.head_repository]),
        },
        "base": {
            "ref": pull.base_ref,
            "sha": state.sha(repository.full_name, pull.base_ref),
            "repo": repository_json(state, repository),
        },
    }


def review_json(state: DemoState, repository: DemoRepository, pull: DemoPull, one: Json) -> Json:
    return {
        "id": one["id"],
        "user": user_json(one["by"]),
        "body": one["body"],
        "state": one["state"],
        "commit_id": one["commit"],
        "submitted_at": one["at"],
        "html_url": f"{page_of(state, repository, pull)}#pullrequestreview-{one['id']}",
    }


def comment_json(
    state: DemoState, repository: DemoRepository, about: DemoPull | DemoIssue, one: Json
) -> Json:
    """Return a comment, beside the code or not."""
    page, api = page_of(state, repository, about), f"{state.url}/api/repos/{repository.full_name}"
    found: Json = {
        "id": one["id"],
        "user": user_json(one["by"]),
        "body": one["body"],
        "author_association": "CONTRIBUTOR",
        "created_at": one["at"],
        "updated_at": one["at"],
    }
    if "path" not in one:
        return found | {
            "html_url": f"{page}#issuecomment-{one['id']}",
            "issue_url": f"{api}/issues/{about.number}",
        }
    places = (
        *("path", "line", "start_line", "original_line", "original_start_line", "side"),
        "start_side",
    )
    found |= {name: one[name] for name in places}
    if one["in_reply_to"]:
        found["in_reply_to_id"] = one["in_reply_to"]
    return found | {
        "pull_request_review_id": one["review"],
        "commit_id": one["commit"],
        "original_commit_id": one["original_commit"],
        "html_url": f"{page}#discussion_r{one['id']}",
        "pull_request_url": f"{api}/pulls/{about.number}",
    }
