"""An act: something done on a forge, such as posting a review, setting a check or opening a pull
request.

Our own templates compose an act, never an agent; a person may leave out parts of it.
"""

from typing import Literal

import msgspec

Operation = Literal[
    "post",
    "comment",
    "reply",
    "resolve",
    "react",
    "check",
    "dismiss",
    "undo",
    "push",
    "open-pr",
    "update-pr",
    "open-issue",
    "delete-branch",
]
Forge = Literal["github", "bitbucket"]
Severity = Literal["critical", "high", "medium", "low"]
Confidence = Literal["high", "medium", "low"]
ReviewVerdict = Literal["approve", "request_changes", "comment"]
# Gravest first, and surest first.
SEVERITIES: tuple[Severity, ...] = ("critical", "high", "medium", "low")
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")


class InlineComment(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """One remark at a place in the diff. `finding` is its identity; `line` counts from 1 in the new
    file; `start_line` is its first line, 0 if it has only one."""

    finding: str
    path: str
    line: int
    body: str
    severity: Severity
    confidence: Confidence = "medium"
    start_line: int = 0


class Act(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    tag="review",
    tag_field="category",
    forbid_unknown_fields=True,
):
    """Something done on a forge. `repository` is `OWNER/REPO`; `number` is the pull request's, 0 if
    there is none (of `open-issue`, that of the issue that is replaced); `head` is the commit that
    it is about.

    `targets` are the things on the forge that it is about, each by the forge's id as text: the
    comment to reply or react to (`review:ID` for one beside the code), the threads to resolve, the
    review to dismiss; for `undo` both the verdict and, as `review:ID`, the comments. A reaction's
    name is `body`.

    `severity` is the gravest of the findings, `confidence` the least certain; empty if there are
    none. `fork`: the pull request comes from a fork. `links`: the text has addresses outside the
    repository. `title`, `branch` and `base` are a pull request's; `conclusion` is a check's. A
    comment's `title` says what it is about: a newer comment replaces a waiting one with the same
    title. For other uses of `title` see `prompt` and `undone_run`.

    `open-pr` and `update-pr` with a `head` first push this commit of a job to `branch`, if that is
    still at `targets[0]` (empty: there is none); `delete-branch` removes it if it is at `head`.
    `scope` are the globs within which the commit stays; `secrets`: it adds what looks like a
    secret. `by_agent`: an agent in a session, or outside, asked for it, not the service.
    """

    operation: Operation
    forge: Forge
    repository: str
    number: int = 0
    head: str = ""
    verdict: ReviewVerdict | Literal[""] = ""
    body: str = ""
    comments: tuple[InlineComment, ...] = ()
    severity: Severity | Literal[""] = ""
    confidence: Confidence | Literal[""] = ""
    fork: bool = False
    links: bool = False
    title: str = ""
    branch: str = ""
    base: str = ""
    conclusion: str = ""
    targets: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()
    secrets: bool = False
    by_agent: bool = False

    @property
    def is_of_job(self) -> bool:
        """Return whether it pushes a job's commit, and has a pull request say so."""
        return self.operation in ("open-pr", "update-pr") and bool(self.head)

    @property
    def prompt(self) -> str:
        """Return the prompt of `.reviewerc` that makes a review; "" for the service's own
        prompt."""
        return self.title if self.operation == "post" else ""

    @property
    def undone_run(self) -> str:
        """Return the run that this act takes back."""
        return self.title if self.operation == "undo" else ""


# The verb phrase of each operation, for several acts.
OPERATION_WORDS: dict[Operation, str] = {
    "post": "post reviews",
    "comment": "comment on pull requests",
    "reply": "reply to comments",
    "resolve": "resolve threads",
    "react": "react to comments",
    "check": "set checks",
    "dismiss": "dismiss our own reviews",
    "undo": "take back our own reviews",
    "push": "push branches",
    "open-pr": "open pull requests",
    "update-pr": "change pull requests",
    "open-issue": "open issues",
    "delete-branch": "delete branches of jobs",
}
_WORDS = {
    "comment": "comment on",
    "reply": "reply to a comment on",
    "dismiss": "dismiss our review on",
    "undo": "take back our review on",
    "update-pr": "change the title or text of",
}


def spelled(forge: str, repository: str) -> str:
    """Return a repository as people name it: GitHub needs no word of its own."""
    return repository if forge == "github" else f"{forge}:{repository}"


def act_title(act: Act) -> str:
    """Return the act in one line, for a person."""
    name = spelled(act.forge, act.repository)
    target = f"{name}#{act.number}" if act.number else name
    match act.operation:
        case "post":
            verdict = {"approve": "an approval", "request_changes": "a request for changes"}
            what = verdict.get(
                act.verdict, f"the prompt {act.prompt}" if act.prompt else "a review"
            )
            count = len(act.comments)
            with_comments = f" with {count} comment{'' if count == 1 else 's'}" if count else ""
            return f"post {what}{with_comments} on {target}"
        case "resolve":
            count = len(act.targets)
            return f"resolve {'a thread' if count == 1 else f'{count} threads'} on {target}"
        case "react":
            return f"react with {act.body} to a comment on {target}"
        case "check":
            return f"set the check to {act.conclusion} on {target}"
        case "push":
            return f"push the branch {act.branch} to {name}"
        case "open-pr":
            return f"open a pull request in {name}: {act.branch} into {act.base}"
        case "open-issue" if act.number:
            return f"update the issue {target}: {act.title}"
        case "open-issue":
            return f"open an issue in {name}: {act.title}"
        case "delete-branch":
            return f"delete the branch {act.branch} of {name}"
        case "update-pr" if act.head:
            return f"update the pull request {target}: {act.branch} to {act.head[:7]}"
    return f"{_WORDS[act.operation]} {target}"


def act_subject(act: Act) -> str:
    """Return the key by which a newer act replaces a waiting one: a review of the same pull
    request, a reply to the same comment, the pull request of the same job."""
    if act.is_of_job:
        return f"review:{act.forge}:{act.repository.casefold()}:pull:{act.branch}"
    about = act.branch
    if act.operation in ("comment", "post", "open-issue"):
        about = act.title
    more = "".join(f":{one}" for one in (about, *act.targets) if one)
    return f"review:{act.forge}:{act.repository.casefold()}#{act.number}:{act.operation}{more}"
