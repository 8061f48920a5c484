"""The demo forge's state, and what people do there: push, open, close, comment, grant.

It speaks GitHub's and Bitbucket Cloud's language over the same state. Git repositories are real, in
a folder.
"""

import contextlib
import json
import queue
import secrets
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from supervisor.reviews.demo import bitbucket_json, github_json
from supervisor.reviews.demo.conversation import AnchorPlaces, Conversation, places
from supervisor.reviews.demo.state import (
    DemoPull,
    DemoRepository,
    Happened,
    Json,
    Outgoing,
    Sent,
    Token,
    Tongue,
    now,
    run_git,
    signature,
)

__all__ = ["DemoForge", "DemoPull", "DemoRepository", "Json"]

TOKEN_S = 3600.0
# As at both: a webhook that isn't answered within this time counts as undelivered.
ANSWER_S = 10.0
# support.atlassian.com/bitbucket-cloud/docs/troubleshoot-webhooks
BITBUCKET_MOST_BYTES, BITBUCKET_RESENDS = 256 * 1024, 2
PERMISSIONS = {
    "checks": "write",
    "contents": "read",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
}


class DemoForge(Conversation):
    """One forge. `hook`: where GitHub's webhooks go, and their secret; Bitbucket's go to a
    repository's hooks. `loses_webhooks`: they vanish; `is_down`: every response is 503."""

    def __init__(
        self, folder: Path, app_login: str = "gatehouse[bot]", tongue: Tongue = "github"
    ) -> None:
        super().__init__(folder, app_login, tongue)
        self.app_id = "4242"
        self.app_key: bytes = b""
        # Installations that it lists, but for which it mints no token.
        self.lost_installations: list[int] = []
        # The App's permissions where it is installed; a token can't have more.
        self.permissions = dict(PERMISSIONS)
        self.hook: tuple[str, bytes] | None = None
        self.loses_webhooks = False
        self.is_down = False
        # Method and part of a path, answered with this status instead of the usual response.
        self.refuses: dict[tuple[str, str], int] = {}
        # The same, but called after the request is done and before it is answered:
        # `ConnectionError` loses the answer.
        self.after: dict[tuple[str, str], Callable[[], None]] = {}
        # Confirmed Apps, by the code that returns each once.
        self.manifests: dict[str, Json] = {}
        # The calls that Bitbucket's API still answers in this hour; None: any number.
        self.calls_left: int | None = None
        self.sent: list[Sent] = []
        self.calls: list[tuple[str, str]] = []
        self.review_ids: list[str] = []
        self._outbox: queue.Queue[Outgoing | None] = queue.Queue()
        self._sender = threading.Thread(target=self._send_all, daemon=True)
        self._sender.start()

    def stop(self) -> None:
        """Stop sending webhooks."""
        self._outbox.put(None)
        self._sender.join(ANSWER_S)

    # -- what people do ---------------------------------------------------------------------------

    def add_repository(
        self, full_name: str, files: Mapping[str, str | bytes], *, parent: str = ""
    ) -> DemoRepository:
        """Make a repository with one commit; with `parent`, a fork of another."""
        folder = self.folder / f"{full_name}.git"
        folder.parent.mkdir(parents=True, exist_ok=True)
        with self.lock:
            one = DemoRepository(next(self.ids), full_name, folder, is_public=bool(parent))
            self.repositories[full_name] = one
        if parent:
            source = self.repositories[parent].folder
            run_git(self.folder, "clone", "-q", "--bare", str(source), str(folder))
        else:
            run_git(self.folder, "init", "-q", "--bare", "-b", "main", str(folder))
            self.commit(full_name, "main", files, "First commit", base="")
        for name, value in (
            ("uploadpack.allowAnySHA1InWant", "true"),
            ("http.receivepack", "true"),
        ):
            run_git(folder, "config", name, value)
        return one

    def commit(
        self,
        full_name: str,
        branch: str,
        files: Mapping[str, str | bytes | None],
        message: str,
        *,
        base: str | None = None,
    ) -> str:
        """Put a commit on a branch and return its id. `base`: the branch from which to create or
        restart it; "" for a first commit. None removes a file."""
        folder = self.repositories[full_name].folder
        start = base if base is not None else branch
        index = {"GIT_INDEX_FILE": str(folder / f"index-{secrets.token_hex(4)}")}
        parents: list[str] = []
        if start:
            parents = ["-p", run_git(folder, "rev-parse", f"refs/heads/{start}")]
            run_git(folder, "read-tree", f"refs/heads/{start}", env=index)
        for path, content in files.items():
            if content is None:
                run_git(folder, "rm", "-q", "--cached", "--", path, env=index)
                continue
            data = content.encode() if isinstance(content, str) else content
            blob = run_git(folder, "hash-object", "-w", "--stdin", data=data)
            entry = f"100644,{blob},{path}"
            run_git(folder, "update-index", "--add", "--cacheinfo", entry, env=index)
        tree = run_git(folder, "write-tree", env=index)
        made = run_git(folder, "commit-tree", tree, *parents, "-m", message)
        run_git(folder, "update-ref", f"refs/heads/{branch}", made)
        Path(index["GIT_INDEX_FILE"]).unlink(missing_ok=True)
        return made

    def import_files(self, full_name: str, branch: str, files: Mapping[str, str]) -> None:
        """Put a commit with many files on a branch, at once (git-fast-import(1))."""
        folder = self.repositories[full_name].folder
        parts = [b"commit refs/heads/%s\ncommitter A <a@b.c> 0 +0000\ndata 0\n" % branch.encode()]
        parts.append(b"from refs/heads/%s^0\n" % branch.encode())
        for path, text in files.items():
            data = text.encode()
            parts.append(b"M 100644 inline %s\ndata %d\n%s\n" % (path.encode(), len(data), data))
        run_git(folder, "fast-import", "--quiet", data=b"".join(parts))

    def open_pull(
        self,
        full_name: str,
        branch: str,
        *,
        title: str,
        author: str = "ada",
        body: str = "",
        head_repository: str = "",
        base: str = "main",
        is_draft: bool = False,
    ) -> DemoPull:
        """Open a pull request of a branch, and tell the App."""
        repository = self.repositories[full_name]
        source = self.repositories[head_repository or full_name]
        with self.lock:
            repository.issues += 1
            pull = DemoPull(
                number=repository.issues,
                title=title,
                body=body,
                author=author,
                head_repository=source.full_name,
                head_ref=branch,
                head_sha=run_git(source.folder, "rev-parse", f"refs/heads/{branch}"),
                base_ref=base,
                is_draft=is_draft,
            )
            repository.pulls[pull.number] = pull
        self._keep_head(repository, pull)
        self.tell(repository, pull, "opened", by=author)
        return pull

    def push(
        self, full_name: str, number: int, files: Mapping[str, str | bytes | None], message: str
    ) -> str:
        """Put a commit on a pull request's branch, and tell the App."""
        pull = self.repositories[full_name].pulls[number]
        self.commit(pull.head_repository, pull.head_ref, files, message)
        return self.pushed(full_name, number)

    def pushed(self, full_name: str, number: int) -> str:
        """Record the new head of a pull request's branch, and tell the App; return the head."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        source, before = self.repositories[pull.head_repository], pull.head_sha
        with self.lock:
            pull.head_sha = run_git(source.folder, "rev-parse", f"refs/heads/{pull.head_ref}")
            pull.updated_at = datetime.now(UTC).isoformat(timespec="microseconds")
        self._keep_head(repository, pull)
        with self.lock:
            self.move_comments(repository, pull)
        self.tell(repository, pull, "pushed", before=before, after=pull.head_sha)
        return pull.head_sha

    def heads_moved(self, full_name: str) -> None:
        """After a push: record the new heads of open pull requests, and tell the App."""
        for number, pull in list(self.repositories[full_name].pulls.items()):
            if not pull.is_open or pull.head_repository != full_name:
                continue
            with contextlib.suppress(RuntimeError):  # the branch is gone
                if self.sha(full_name, pull.head_ref) != pull.head_sha:
                    self.pushed(full_name, number)

    def close(self, full_name: str, number: int) -> None:
        """Close a pull request, and tell the App."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        pull.is_open = False
        pull.closed_at = now()
        self.tell(repository, pull, "closed")

    def merge(self, full_name: str, number: int) -> None:
        """Merge a pull request, and tell the App."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        ref = f"refs/heads/{pull.base_ref}"
        tree = run_git(repository.folder, "merge-tree", "--write-tree", ref, pull.head_sha)
        parents = ("-p", self.sha(full_name, pull.base_ref), "-p", pull.head_sha)
        made = run_git(repository.folder, "commit-tree", tree, *parents, "-m", "Merge")
        run_git(repository.folder, "update-ref", ref, made)
        pull.is_merged = True
        self.close(full_name, number)

    def label(self, full_name: str, number: int, name: str, by: str) -> None:
        """Set a label, and tell the App."""
        repository = self.repositories[full_name]
        pull = repository.pulls[number]
        pull.labels.append(name)
        pull.events.append({"event": "labeled", "by": by, "label": {"name": name}})
        self.tell(repository, pull, "labelled", by=by, label={"name": name})

    # -- what git says ----------------------------------------------------------------------------

    def patch(self, repository: DemoRepository, pull: DemoPull) -> str:
        """Return the diff of a pull request since its merge base."""
        return self.diff(repository, pull, "--no-color")

    def places(self, repository: DemoRepository, pull: DemoPull) -> AnchorPlaces:
        """Return the places where a remark may stand."""
        names = self.diff(repository, pull, "--name-only", "-z")
        return places(self.patch(repository, pull), names.split("\0")[:-1])

    def diff(self, repository: DemoRepository, pull: DemoPull, *options: str) -> str:
        """Return what `git diff` says since the merge base."""
        ends, seen = (f"refs/heads/{pull.base_ref}", pull.head_sha), self.objects_of(pull)
        base = run_git(repository.folder, "merge-base", *ends, env=seen)
        words = ("diff", *options, base, pull.head_sha)
        return run_git(repository.folder, *words, env=seen, raw=True)

    def _keep_head(self, repository: DemoRepository, pull: DemoPull) -> None:
        """Keep a pull request's head in its target repository, as GitHub does."""
        if self.tongue != "github":
            return
        source = self.repositories[pull.head_repository].folder
        ref = f"+{pull.head_sha}:refs/pull/{pull.number}/head"
        run_git(repository.folder, "fetch", "-q", str(source), ref)

    # -- webhooks ---------------------------------------------------------------------------------

    def tell(
        self, repository: DemoRepository, pull: DemoPull, kind: str, *, by: str = "", **more: Any
    ) -> None:
        """Send an event about a pull request."""
        self.announce(Happened(kind, repository, pull, by or pull.author, None, more))

    def announce(self, told: Happened) -> None:
        """Tell the App, and the hooks of the repository."""
        if self.tongue == "github":
            self.send(*github_json.webhook(self, told))
            return
        for event, body in bitbucket_json.webhooks(self, told):
            payload, guid = json.dumps(body).encode(), str(uuid.uuid4())
            for hook in told.repository.hooks if len(payload) <= BITBUCKET_MOST_BYTES else ():
                if hook.is_active and event in hook.events:
                    headers = bitbucket_json.webhook_headers(hook, event, guid, payload)
                    one = Outgoing(hook.url, headers, event, guid, payload)
                    one.resends = BITBUCKET_RESENDS
                    self._outbox.put(one)

    def send(self, event: str, body: Json, guid: str = "", *, redelivery: bool = False) -> str:
        """Send a webhook of GitHub's; return its id."""
        guid, payload = guid or str(uuid.uuid4()), json.dumps(body).encode()
        self._put(event, guid, payload, redelivery=redelivery)
        return guid

    def redeliver(self, delivery_id: int) -> bool:
        """Send a webhook again, with the id that it had."""
        with self.lock:
            known = next((one for one in self.sent if one.id == delivery_id), None)
        if known is not None and self.tongue == "github":
            self._put(known.event, known.guid, known.payload, redelivery=True)
        elif known is not None:
            self._outbox.put(replace(known.job, is_redelivery=True))
        return known is not None

    def _put(self, event: str, guid: str, payload: bytes, *, redelivery: bool) -> None:
        url, secret = self.hook or ("", b"")
        headers = {
            "User-Agent": "GitHub-Hookshot/demo",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": guid,
            "X-Hub-Signature-256": signature(secret, payload),
        }
        self._outbox.put(Outgoing(url, headers, event, guid, payload, redelivery))

    def until_sent(self) -> None:
        """Return once all pending webhooks were sent."""
        self._outbox.join()

    def _send_all(self) -> None:
        while (job := self._outbox.get()) is not None:
            try:
                self._deliver(job)
            finally:
                self._outbox.task_done()
        self._outbox.task_done()

    def _deliver(self, job: Outgoing) -> None:
        for attempt in range(1 + job.resends):
            if not job.url:
                return
            headers = job.headers | ({"X-Attempt-Number": f"{attempt + 1}"} if job.resends else {})
            is_lost = self.loses_webhooks and not job.is_redelivery
            status = 0 if is_lost else _post(job.url, headers, job.payload)
            with self.lock:
                facts = (next(self.ids), job.guid, job.event, job.payload, status)
                self.sent.append(Sent(*facts, job.is_redelivery, job))
            if status < 500:
                return

    def mint(self, installation: int, names: list[str], permissions: Json) -> Token | None:
        """Return a new token for these repositories; None if the App has fewer rights."""
        levels = ("read", "write")
        for name, level in permissions.items():
            held = self.permissions.get(name)
            if held not in levels or levels.index(level) > levels.index(held):
                return None
        value = f"ghs_{secrets.token_urlsafe(40)}"
        found = frozenset(
            one for one in self.repositories if not names or one.partition("/")[2] in names
        )
        token = Token(value, found, permissions, time.time() + TOKEN_S)
        with self.lock:
            self.tokens[value] = token
        return token

    def bitbucket_token(
        self, *names: str, scopes: tuple[str, ...], email: str = "", lasts_s: float = 86_400.0
    ) -> str:
        """Return a new token of Bitbucket's: with `email` a person's API token."""
        value = f"{'ATATT3x' if email else 'ATCTT3x'}{secrets.token_urlsafe(40)}"
        token = Token(
            value,
            frozenset(names or self.repositories),
            dict.fromkeys(scopes, True),
            time.time() + lasts_s,
            kind="api" if email else "access",
            login=email.partition("@")[0] or self.app_login,
            email=email,
        )
        with self.lock:
            self.tokens[value] = token
        return value


def _post(url: str, headers: dict[str, str], payload: bytes) -> int:
    headers = headers | {"Content-Type": "application/json"}
    request = urllib.request.Request(url, payload, headers, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
