"""The demo forge's state, and what people do there: push, open, close, comment, grant.

One lock protects all of it, because requests come on many threads. Git repositories are real, in a
folder. It follows GitHub's documentation: docs.github.com/webhooks, docs.github.com/rest.
"""

import contextlib
import hashlib
import hmac
import itertools
import json
import queue
import secrets
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from supervisor.reviews.demo.conversation import AnchorPlaces, Conversation, places, user_json
from supervisor.reviews.demo.state import (
    DemoPull,
    DemoRepository,
    Json,
    Sent,
    Token,
    run_git,
)

__all__ = ["DemoForge", "DemoPull", "DemoRepository", "Json"]

TOKEN_S = 3600.0
# As at GitHub: a webhook that isn't answered within this time counts as undelivered.
ANSWER_S = 10.0
PERMISSIONS = {
    "checks": "write",
    "contents": "read",
    "issues": "write",
    "metadata": "read",
    "pull_requests": "write",
}


class DemoForge(Conversation):
    """One forge. `url` is known once it is served. `hook`: where webhooks go, and their secret.
    `loses_webhooks`: they vanish; `is_down`: every response is 503."""

    def __init__(self, folder: Path, app_login: str = "gatehouse[bot]") -> None:
        self.folder = folder
        self.app_login = app_login
        self.app_id = "4242"
        self.app_key: bytes = b""
        self.installation = 77
        # Installations that it lists, but for which it mints no token.
        self.lost_installations: list[int] = []
        # The App's permissions where it is installed; a token can't have more.
        self.permissions = dict(PERMISSIONS)
        self.url = ""
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
        self.lock = threading.RLock()
        self.repositories: dict[str, DemoRepository] = {}
        self.tokens: dict[str, Token] = {}
        self.sent: list[Sent] = []
        self.calls: list[tuple[str, str]] = []
        # By the comment's id.
        self.reactions: dict[int, list[Json]] = {}
        self.ids = itertools.count(1000)
        self._outbox: queue.Queue[tuple[str, str, bytes, bool] | None] = queue.Queue()
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
            one = DemoRepository(next(self.ids), full_name, folder)
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
        self.tell(repository, pull, "opened")
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
        self._keep_head(repository, pull)
        with self.lock:
            self.move_comments(repository, pull)
        self.tell(repository, pull, "synchronize", before=before, after=pull.head_sha)
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
        pull.closed_at = _now()
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
        pull.events.append({"event": "labeled", "actor": user_json(by), "label": {"name": name}})
        self.tell(repository, pull, "labeled", sender=by, label={"name": name})

    # -- what git says ----------------------------------------------------------------------------

    def patch(self, repository: DemoRepository, pull: DemoPull) -> str:
        """Return the diff of a pull request since its merge base."""
        base = self.merge_base(repository, pull)
        return run_git(repository.folder, "diff", "--no-color", base, pull.head_sha, raw=True)

    def places(self, repository: DemoRepository, pull: DemoPull) -> AnchorPlaces:
        """Return the places where a remark may stand."""
        base = self.merge_base(repository, pull)
        names = run_git(
            repository.folder, "diff", "--name-only", "-z", base, pull.head_sha, raw=True
        )
        return places(self.patch(repository, pull), names.split("\0")[:-1])

    def merge_base(self, repository: DemoRepository, pull: DemoPull) -> str:
        base = f"refs/heads/{pull.base_ref}"
        return run_git(repository.folder, "merge-base", base, pull.head_sha)

    def sha(self, full_name: str, ref: str) -> str:
        return run_git(self.repositories[full_name].folder, "rev-parse", f"refs/heads/{ref}")

    def _keep_head(self, repository: DemoRepository, pull: DemoPull) -> None:
        """Keep a pull request's head in its target repository, even if it comes from a fork."""
        source = self.repositories[pull.head_repository].folder
        ref = f"+{pull.head_sha}:refs/pull/{pull.number}/head"
        run_git(repository.folder, "fetch", "-q", str(source), ref)

    # -- webhooks ---------------------------------------------------------------------------------

    def tell(self, repository: DemoRepository, pull: DemoPull, action: str, **more: Any) -> None:
        """Send an event about a pull request."""
        sender = user_json(more.pop("sender", pull.author))
        body = {
            "action": action,
            "number": pull.number,
            "pull_request": self.pull_json(repository, pull),
            "repository": self.repository_json(repository),
            "sender": sender,
            "installation": {"id": self.installation},
            **more,
        }
        self.send("pull_request", body)

    def send(self, event: str, body: Json, guid: str = "", *, redelivery: bool = False) -> str:
        """Send a webhook; return its id."""
        guid = guid or str(uuid.uuid4())
        payload = json.dumps(body).encode()
        self._outbox.put((event, guid, payload, redelivery))
        return guid

    def redeliver(self, delivery_id: int) -> bool:
        """Send a webhook again, with the id that it had."""
        with self.lock:
            known = next((one for one in self.sent if one.id == delivery_id), None)
        if known is not None:
            self._outbox.put((known.event, known.guid, known.payload, True))
        return known is not None

    def until_sent(self) -> None:
        """Return once all pending webhooks were sent."""
        self._outbox.join()

    def _send_all(self) -> None:
        while (job := self._outbox.get()) is not None:
            try:
                self._deliver(*job)
            finally:
                self._outbox.task_done()
        self._outbox.task_done()

    def _deliver(self, event: str, guid: str, payload: bytes, redelivery: bool) -> None:
        hook = self.hook
        if hook is None or (self.loses_webhooks and not redelivery):
            status = 0 if hook is not None else -1
        else:
            status = _post(hook[0], hook[1], event, guid, payload)
        if status >= 0:
            with self.lock:
                self.sent.append(Sent(next(self.ids), guid, event, payload, status, redelivery))

    # -- as JSON ----------------------------------------------------------------------------------

    def repository_json(self, one: DemoRepository) -> Json:
        owner = one.full_name.partition("/")[0]
        return {
            "id": one.id,
            "name": one.full_name.partition("/")[2],
            "full_name": one.full_name,
            "owner": {"login": owner, "type": "Organization"},
            "private": False,
            "default_branch": one.default_branch,
            "clone_url": f"{self.url}/{one.full_name}.git",
            "html_url": f"{self.url}/{one.full_name}",
        }

    def pull_json(self, repository: DemoRepository, pull: DemoPull) -> Json:
        head = self.repositories[pull.head_repository]
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
            "html_url": f"{self.url}/{repository.full_name}/pull/{pull.number}",
            "head": {
                "ref": pull.head_ref,
                "sha": pull.head_sha,
                "repo": self.repository_json(head),
            },
            "base": {
                "ref": pull.base_ref,
                "sha": self.sha(repository.full_name, pull.base_ref),
                "repo": self.repository_json(repository),
            },
        }

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
        token = Token(value, installation, found, permissions, time.time() + TOKEN_S)
        with self.lock:
            self.tokens[value] = token
        return token


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def _post(url: str, secret: bytes, event: str, guid: str, payload: bytes) -> int:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "GitHub-Hookshot/demo",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": guid,
        "X-Hub-Signature-256": "sha256=" + hmac.new(secret, payload, hashlib.sha256).hexdigest(),
    }
    request = urllib.request.Request(url, payload, headers, method="POST")  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0
