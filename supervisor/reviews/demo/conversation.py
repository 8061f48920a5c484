"""Conversations on the demo forge: comments, answers and reviews, and their places after a push.

Part of `forge`. Fields are those of docs.github.com/rest: pulls/comments, issues/comments. The
places where GitHub accepts a remark (`places`) are computed differently from the code that posts,
so that each can test the other: this walks the lines of a diff and counts, while Gatehouse trusts
the heads of hunks.
"""

import itertools
import re
import threading
import time

from supervisor.reviews.demo.state import DemoIssue, DemoPull, DemoRepository, Json, run_git

_CHANGED = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@", re.MULTILINE)
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")

type AnchorPlaces = dict[str, list[set[int]]]


def places(patch: str, names: list[str]) -> AnchorPlaces:
    """Return for each path the lines of the new file that a remark may stand beside, a set for each
    hunk. `names` are the paths in the order of the patch."""
    found: AnchorPlaces = {}
    at, line, shown = -1, 0, set[int]()
    for text in patch.split("\n"):
        if text.startswith("diff --git "):
            at += 1
            found[names[at]] = []
        elif hunk := _HUNK.match(text):
            line, shown = int(hunk[2]), set()
            found[names[at]].append(shown)
        elif found and found[names[at]] and text[:1] in ("+", " "):
            shown.add(line)
            line += 1
    return found


class Conversation:
    """The part of `DemoForge` for conversations."""

    url: str
    app_login: str
    installation: int
    lock: threading.RLock
    ids: "itertools.count[int]"
    repositories: dict[str, DemoRepository]
    reactions: dict[int, list[Json]]

    def places(self, repository: DemoRepository, pull: DemoPull) -> AnchorPlaces:
        raise NotImplementedError

    def send(self, event: str, body: Json) -> str:
        raise NotImplementedError

    def pull_json(self, repository: DemoRepository, pull: DemoPull) -> Json:
        raise NotImplementedError

    def repository_json(self, one: DemoRepository) -> Json:
        raise NotImplementedError

    # -- what people do ---------------------------------------------------------------------------

    def open_issue(self, full_name: str, title: str, author: str = "ada") -> DemoIssue:
        """Open an issue that isn't a pull request."""
        repository = self.repositories[full_name]
        with self.lock:
            repository.issues += 1
            issue = DemoIssue(repository.issues, title, author)
            repository.plain_issues[issue.number] = issue
        return issue

    def comment(self, full_name: str, number: int, *, author: str, body: str) -> Json:
        """Comment on a pull request or an issue, and tell the App."""
        repository = self.repositories[full_name]
        about = _numbered(repository, number)
        with self.lock:
            kind = "pull" if isinstance(about, DemoPull) else "issues"
            one = self._said(author, body)
            page = f"{self.url}/{full_name}/{kind}/{number}"
            one["html_url"] = f"{page}#issuecomment-{one['id']}"
            one["issue_url"] = f"{self.url}/api/repos/{full_name}/issues/{number}"
            about.issue_comments.append(one)
        self._tell_comment(repository, about, one)
        return one

    def edit_comment(self, full_name: str, comment_id: int, body: str) -> None:
        """Replace the text of a comment, and tell the App."""
        repository = self.repositories[full_name]
        numbers = (*repository.pulls, *repository.plain_issues)
        for about in [_numbered(repository, number) for number in numbers]:
            for one in about.issue_comments:
                if one["id"] == comment_id:
                    before, one["body"] = one["body"], body
                    changes = {"changes": {"body": {"from": before}}}
                    self._tell_comment(repository, about, one, "edited", **changes)

    def reply(self, full_name: str, number: int, *, to: int, author: str, body: str) -> Json:
        """Answer in the thread of a comment beside the code, and tell the App. As on GitHub, the
        answer has a review of its own, without a text."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        with self.lock:
            target = next(one for one in pull.comments if one["id"] == to)
            top_id = target.get("in_reply_to_id") or to
            top = next(one for one in pull.comments if one["id"] == top_id)
            review = self.add_review(repository, pull, author, "", "COMMENTED", pull.head_sha)
            one = top | self._said(author, body) | {"pull_request_review_id": review["id"]}
            one["in_reply_to_id"] = top_id
            one["html_url"] = f"{self.url}/{full_name}/pull/{number}#discussion_r{one['id']}"
            pull.comments.append(one)
        self._tell_beside(repository, pull, one)
        return one

    # -- what the API does ------------------------------------------------------------------------

    def add_review(
        self,
        repository: DemoRepository,
        pull: DemoPull,
        author: str,
        body: str,
        state: str,
        commit: str,
    ) -> Json:
        """Add a review, without comments."""
        review_id = next(self.ids)
        page = f"{self.url}/{repository.full_name}/pull/{pull.number}"
        review = {
            "id": review_id,
            "user": user_json(author),
            "body": body,
            "state": state,
            "commit_id": commit,
            "submitted_at": _now(),
            "html_url": f"{page}#pullrequestreview-{review_id}",
        }
        pull.reviews.append(review)
        return review

    def add_beside(
        self, repository: DemoRepository, pull: DemoPull, review: Json, wanted: Json
    ) -> None:
        """Add a comment beside the code to a review, and tell the App."""
        one = self._said(review["user"]["login"], wanted["body"])
        page = f"{repository.full_name}/pull/{pull.number}"
        start = wanted.get("start_line")
        one |= {
            "pull_request_review_id": review["id"],
            "path": wanted["path"],
            "commit_id": review["commit_id"],
            "original_commit_id": review["commit_id"],
            "line": wanted["line"],
            "original_line": wanted["line"],
            "start_line": start,
            "original_start_line": start,
            "side": wanted.get("side", "RIGHT"),
            "start_side": wanted.get("start_side"),
            "html_url": f"{self.url}/{page}#discussion_r{one['id']}",
            "pull_request_url": f"{self.url}/api/repos/{page.replace('/pull/', '/pulls/')}",
        }
        pull.comments.append(one)
        self._tell_beside(repository, pull, one)

    def move_comments(self, repository: DemoRepository, pull: DemoPull) -> None:
        """Move comments to their places at a new head. A comment whose lines changed, or left the
        diff, is outdated: it has no place, and keeps its original lines."""
        shown = self.places(repository, pull) if pull.comments else {}
        for one in pull.comments:
            made_at, path = one["original_commit_id"], one["path"]
            diff = run_git(
                repository.folder, "diff", "-U0", made_at, pull.head_sha, "--", path, raw=True
            )
            line = moved(diff, one["original_line"])
            start = one["original_start_line"] and moved(diff, one["original_start_line"])
            is_here = any({line, start or line} <= hunk for hunk in shown.get(path, ()))
            is_whole = bool(start) == bool(one["original_start_line"])
            one["line"] = line if is_here and is_whole else None
            one["start_line"] = start if is_here and is_whole else None
            if one["line"] is not None:
                one["commit_id"] = pull.head_sha

    # -- inside -----------------------------------------------------------------------------------

    def _said(self, author: str, body: str) -> Json:
        return {
            "id": next(self.ids),
            "user": user_json(author),
            "body": body,
            "author_association": "CONTRIBUTOR",
            "created_at": _now(),
            "updated_at": _now(),
        }

    def _tell_comment(
        self,
        repository: DemoRepository,
        about: DemoPull | DemoIssue,
        one: Json,
        action: str = "created",
        **more: Json,
    ) -> None:
        kind = "pull" if isinstance(about, DemoPull) else "issues"
        page = f"{self.url}/{repository.full_name}/{kind}/{about.number}"
        is_open = not isinstance(about, DemoPull) or about.is_open
        issue: Json = {
            "number": about.number,
            "title": about.title,
            "user": user_json(about.author),
            "state": "open" if is_open else "closed",
            "html_url": page,
        }
        if isinstance(about, DemoPull):
            issue["pull_request"] = {"html_url": page}
        body = {"action": action, "issue": issue, "comment": one, **more}
        self.send("issue_comment", body | self._around(repository, one))

    def _tell_beside(self, repository: DemoRepository, pull: DemoPull, one: Json) -> None:
        pull_request = self.pull_json(repository, pull)
        body = {"action": "created", "comment": one, "pull_request": pull_request}
        self.send("pull_request_review_comment", body | self._around(repository, one))

    def _around(self, repository: DemoRepository, one: Json) -> Json:
        return {
            "repository": self.repository_json(repository),
            "sender": one["user"],
            "installation": {"id": self.installation},
        }


def _numbered(repository: DemoRepository, number: int) -> DemoPull | DemoIssue:
    pull = repository.pulls.get(number)
    return repository.plain_issues[number] if pull is None else pull


def moved(diff: str, line: int) -> int:
    """Return where a line is after a change without context; 0 if the line itself was changed."""
    offset = 0
    for found in _CHANGED.finditer(diff):
        start, gone, come = (int(one or "1") for one in found.groups())
        if gone and start <= line < start + gone:
            return 0
        if line > start:
            offset += come - gone
    return line + offset


def user_json(login: str) -> Json:
    """Return a user as GitHub shows them."""
    return {"login": login, "type": "Bot" if login.endswith("[bot]") else "User"}


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
