"""The demo forge's data: repositories, pull requests, issues, tokens, webhooks; and its git."""

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

type Json = dict[str, Any]

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
    # As GitHub writes a time; None while it is open.
    closed_at: str | None = None
    labels: list[str] = field(default_factory=list)
    events: list[Json] = field(default_factory=list)
    reviews: list[Json] = field(default_factory=list)
    comments: list[Json] = field(default_factory=list)
    issue_comments: list[Json] = field(default_factory=list)
    # The first comments of threads that are resolved.
    resolved: set[int] = field(default_factory=set)


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
    """A minted token: for one installation, some repositories and permissions."""

    value: str
    installation: int
    repositories: frozenset[str]
    permissions: Json
    expires_at: float


@dataclass
class Sent:
    """A sent webhook, as in GitHub's list of deliveries."""

    id: int
    guid: str
    event: str
    payload: bytes
    status: int
    redelivery: bool


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
