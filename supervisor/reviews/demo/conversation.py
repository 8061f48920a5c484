"""Conversations on the demo forge: comments, answers and reviews, and their places after a push.

Part of `forge`. The places where GitHub accepts a remark (`places`) are computed differently from
the code that posts, so that each can test the other: this walks the lines of a diff and counts,
while Gatehouse trusts the heads of hunks.
"""

import re

from supervisor.reviews.demo.state import (
    DemoIssue,
    DemoPull,
    DemoRepository,
    DemoState,
    Happened,
    Json,
    now,
    run_git,
)

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


class Conversation(DemoState):
    """The part of `DemoForge` for conversations."""

    def places(self, repository: DemoRepository, pull: DemoPull) -> AnchorPlaces:
        raise NotImplementedError

    def announce(self, told: Happened) -> None:
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
            one = self._said(author, body)
            about.issue_comments.append(one)
        self.announce(Happened("commented", repository, about, author, one))
        return one

    def edit_comment(self, full_name: str, comment_id: int, body: str) -> None:
        """Replace the text of a comment, and tell the App."""
        repository = self.repositories[full_name]
        numbers = (*repository.pulls, *repository.plain_issues)
        for about in [_numbered(repository, number) for number in numbers]:
            for one in about.issue_comments:
                if one["id"] == comment_id:
                    more = {"changes": {"body": {"from": one["body"]}}}
                    one["body"] = body
                    told = Happened("comment_edited", repository, about, one["by"], one, more)
                    self.announce(told)

    def reply(self, full_name: str, number: int, *, to: int, author: str, body: str) -> Json:
        """Answer in the thread of a comment, and tell the App. As on GitHub, an answer beside the
        code has a review of its own, without a text; on Bitbucket, other comments have answers,
        too."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        with self.lock:
            kept = next(
                each
                for each in (pull.comments, pull.issue_comments)
                if any(one["id"] == to for one in each)
            )
            target = next(one for one in kept if one["id"] == to)
            top_id = target.get("in_reply_to") or to
            top = next(one for one in kept if one["id"] == top_id)
            one = top | self._said(author, body) | {"in_reply_to": top_id}
            if "path" in top and self.tongue == "github":
                review = self.add_review(repository, pull, author, "", "COMMENTED", pull.head_sha)
                one["review"] = review["id"]
            kept.append(one)
        self.announce(Happened("commented", repository, pull, author, one))
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
        review = self._said(author, body) | {"state": state, "commit": commit}
        pull.reviews.append(review)
        return review

    def add_beside(
        self,
        repository: DemoRepository,
        pull: DemoPull,
        author: str,
        wanted: Json,
        review: Json | None = None,
    ) -> Json:
        """Add a comment beside the code, on GitHub as part of a review, and tell the App."""
        start, commit = wanted.get("start_line"), review["commit"] if review else pull.head_sha
        one = self._said(author, wanted["body"]) | {
            "review": review and review["id"],
            "path": wanted["path"],
            "commit": commit,
            "original_commit": commit,
            "line": wanted["line"],
            "original_line": wanted["line"],
            "start_line": start,
            "original_start_line": start,
            "side": wanted.get("side", "RIGHT"),
            "start_side": wanted.get("start_side"),
            "in_reply_to": None,
        }
        pull.comments.append(one)
        self.announce(Happened("commented", repository, pull, author, one))
        return one

    def move_comments(self, repository: DemoRepository, pull: DemoPull) -> None:
        """Move comments to their places at a new head. A comment whose lines changed, or left the
        diff, is outdated: it has no place, and keeps its original lines."""
        shown = self.places(repository, pull) if pull.comments else {}
        for one in pull.comments:
            made_at, path = one["original_commit"], one["path"]
            words = ("diff", "-U0", made_at, pull.head_sha, "--", path)
            diff = run_git(repository.folder, *words, env=self.objects_of(pull), raw=True)
            line = moved(diff, one["original_line"])
            start = one["original_start_line"] and moved(diff, one["original_start_line"])
            is_here = any({line, start or line} <= hunk for hunk in shown.get(path, ()))
            is_whole = bool(start) == bool(one["original_start_line"])
            one["line"] = line if is_here and is_whole else None
            one["start_line"] = start if is_here and is_whole else None
            if one["line"] is not None:
                one["commit"] = pull.head_sha

    # -- inside -----------------------------------------------------------------------------------

    def objects_of(self, pull: DemoPull) -> dict[str, str]:
        """Return what lets git see the commits of a fork from its target."""
        folder = self.repositories[pull.head_repository].folder
        return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": str(folder / "objects")}

    def _said(self, author: str, body: str) -> Json:
        return {"id": next(self.ids), "by": author, "body": body, "at": now()}


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
