"""The demo forge's data: repositories, pull requests, issues, tokens, webhooks; and its git.

Neutral: `github_json` and `bitbucket_json` make each forge's JSON of it. Comments, reviews and
checks are dicts of facts: `id by body at`, and for a comment beside the code `path line start_line
commit`, the same with `original_` in front, and `in_reply_to`.
"""

import hashlib
import hmac
import itertools
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

type Json = dict[str, Any]
type Tongue = Literal["github", "bitbucket"]

_GIT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_AUTHOR_NAME": "Ada",
    "GIT_AUTHOR_EMAIL": "ada@example.org",
    "GIT_COMMITTER_NAME": "Ada",
    "GIT_COMMITTER_EMAIL": "ada@example.org",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
}


@dataclass
class DemoRepository:
    """One repository. `collaborators` maps logins to their permissions."""

    id: int
    full_name: str
    folder: Path
    default_branch: str = "main"
    collaborators: dict[str, str] = field(default_factory=dict)
    pulls: dict[int, "DemoPull"] = field(default_factory=dict)
    checks: list[Json] = field(default_factory=list)
    issues: int = 0
    plain_issues: dict[int, "DemoIssue"] = field(default_factory=dict)
    # What Bitbucket has: subscriptions of webhooks, and repositories that anybody may read.
    hooks: list["DemoHook"] = field(default_factory=list)
    is_public: bool = False
    is_gone: bool = False


@dataclass
class DemoPull:
    """One pull request. The head is in `head_repository`, a fork or the repository itself."""

    number: int
    title: str
    body: str
    author: str
    head_repository: str
    head_ref: str
    head_sha: str
    base_ref: str
    is_draft: bool = False
    is_open: bool = True
    is_merged: bool = False
    opened_at: str = field(default_factory=lambda: now())
    # None while it is open.
    closed_at: str | None = None
    # When its head last changed, in microseconds as Bitbucket tells it.
    updated_at: str = ""
    labels: list[str] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    reviews: list[Json] = field(default_factory=list)
    comments: list[Json] = field(default_factory=list)
    issue_comments: list[Json] = field(default_factory=list)
    # The first comments of threads that are resolved, and who did that.
    resolved: dict[int, str] = field(default_factory=dict)
    # What Bitbucket has: who approved or wants changes, who is asked, and tasks.
    verdicts: dict[str, str] = field(default_factory=dict)
    reviewers: list[Json] = field(default_factory=list)
    tasks: list[Json] = field(default_factory=list)


@dataclass
class DemoIssue:
    """An issue that isn't a pull request."""

    number: int
    title: str
    author: str
    body: str = ""
    is_open: bool = True
    issue_comments: list[Json] = field(default_factory=list)


@dataclass
class Token:
    """A token: for some repositories, or workspaces (`acme/`), and permissions. `kind`: an
    installation's of GitHub's, or an access token or a person's API token of Bitbucket's, whose
    permissions are its scopes."""

    value: str
    repositories: frozenset[str]
    permissions: Json
    expires_at: float
    kind: Literal["installation", "access", "api"] = "installation"
    login: str = ""
    email: str = ""

    def reaches(self, full_name: str) -> bool:
        """Return whether it is for a repository."""
        return not self.repositories.isdisjoint((full_name, f"{full_name.partition('/')[0]}/"))


@dataclass
class DemoHook:
    """A subscription of webhooks at Bitbucket."""

    uuid: str
    url: str
    events: list[str]
    secret: str = ""
    description: str = ""
    is_active: bool = True


@dataclass
class Happened:
    """Something that webhooks tell: `opened pushed edited closed labelled` of a pull request, or
    `commented comment_edited` of one or of an issue. `more`: what else GitHub's event says."""

    kind: str
    repository: DemoRepository
    about: DemoPull | DemoIssue
    by: str
    comment: Json | None = None
    more: Json = field(default_factory=dict)


@dataclass
class Outgoing:
    """A webhook to send: to where, and how often it is sent again after a 5xx."""

    url: str
    headers: dict[str, str]
    event: str
    guid: str
    payload: bytes
    is_redelivery: bool = False
    resends: int = 0


@dataclass
class Sent:
    """A sent webhook, as in GitHub's list of deliveries."""

    id: int
    guid: str
    event: str
    payload: bytes
    status: int
    redelivery: bool
    # What was sent, to where: to send it again.
    job: Outgoing


class DemoState:
    """All of a forge's data. `tongue`: which forge its people use. `url` is known once it is
    served. One lock protects all of it, because requests come on many threads."""

    def __init__(self, folder: Path, app_login: str, tongue: Tongue) -> None:
        self.folder = folder
        self.app_login = app_login
        self.tongue = tongue
        self.url = ""
        self.installation = 77
        self.lock = threading.RLock()
        self.ids = itertools.count(1000)
        self.repositories: dict[str, DemoRepository] = {}
        self.tokens: dict[str, Token] = {}
        # By the comment's id.
        self.reactions: dict[int, list[Json]] = {}

    def sha(self, full_name: str, ref: str) -> str:
        """Return the commit of a branch."""
        return run_git(self.repositories[full_name].folder, "rev-parse", f"refs/heads/{ref}")


def now() -> str:
    """Return the time as GitHub writes it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def signature(secret: bytes, payload: bytes) -> str:
    """Return a webhook's signature, as both forges write it."""
    return "sha256=" + hmac.new(secret, payload, hashlib.sha256).hexdigest()


def run_git(
    folder: Path,
    *words: str,
    data: bytes | None = None,
    env: dict[str, str] | None = None,
    raw: bool = False,
) -> str:
    """Run git; return its output."""
    done = subprocess.run(
        ["git", *words],
        cwd=folder,
        env={**_GIT, **(env or {})},
        input=data,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"git {' '.join(words)}: {done.stderr.decode(errors='replace')}")
    text = done.stdout.decode("utf-8", "surrogateescape")
    return text if raw else text.strip()
