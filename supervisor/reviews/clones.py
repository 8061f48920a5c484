"""Clones of repositories, and the checkouts that runs look at.

A bare clone for each repository, with as much history as a merge base needs. A checkout is a
worktree of it at one commit, used by one run at a time; one that nobody uses is taken to the next
run's commit, so that only what differs is written. Nothing of a repository's runs here: no hook,
filter, submodule or driver, and the token is in one process's environment, never in an argument, a
URL or a configuration.
"""

import asyncio
import base64
import contextlib
import hashlib
import shutil
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import NamedTuple

import structlog

from supervisor.base.process import Completed, run
from supervisor.core.reviews.deliveries import is_branch, is_sha
from supervisor.core.reviews.diffs import ChangedFile, changed_files
from supervisor.errors import GatehouseError

log = structlog.get_logger("reviews")

DEPTH, DEEPEN_BY, MOST_DEPTH = 50, 500, 5_000
FETCH_S, GIT_S = 600.0, 120.0
MOST_DIFF_BYTES = 64 * 1024 * 1024
MOST_TEXT_BYTES = 4 * 1024 * 1024
# What git says of a branch that isn't there.
NO_REF = "couldn't find remote ref"
# Worktrees that no run uses: so many are kept for the next.
MOST_IDLE = 4
_SAFE = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.autocrlf=false",
    "core.longpaths=true",
    "fetch.fsckObjects=true",
    "protocol.allow=never",
    "protocol.http.allow=always",
    "protocol.https.allow=always",
    "submodule.recurse=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "http.followRedirects=false",
)
_DIFF = ("diff", "--no-color", "--no-ext-diff", "--no-textconv", "--find-renames", "-U3")


class CloneError(GatehouseError):
    """The code can't be had. `may_retry`: it may be another time."""

    def __init__(self, message: str, *, may_retry: bool = True) -> None:
        super().__init__(message, "it is tried again" if may_retry else "")
        self.may_retry = may_retry


class WantedCode(NamedTuple):
    """The code of a pull request: its repository's URL, base and head. `token` may read it."""

    name: str
    url: str
    token: str
    number: int
    base_ref: str
    base_sha: str
    head_sha: str


class WantedBranch(NamedTuple):
    """A branch of a repository. `token` may read it."""

    name: str
    url: str
    token: str
    branch: str


class BranchFiles(NamedTuple):
    """Files of a branch at its commit, by their paths."""

    sha: str
    files: dict[str, bytes]


class Checkout(NamedTuple):
    """The head's files in `folder`, and what changed since `base`, where it parted from its
    branch."""

    folder: Path
    base: str
    files: list[ChangedFile]
    is_warm: bool


class Clones:
    """One per supervisor. `root` is a cache: whatever is in it can be had again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._turns: dict[str, asyncio.Lock] = {}
        self._used: set[Path] = set()

    @contextlib.asynccontextmanager
    async def checkout(self, wanted: WantedCode) -> AsyncIterator[Checkout]:
        """Fetch what is missing and yield the head's files, until the block ends. `CloneError`
        where that can't be."""
        _check(wanted)
        clone = self._folder(wanted.name)
        async with self._turns.setdefault(wanted.name, asyncio.Lock()):
            is_warm = await self._fetch(clone, wanted)
            base = await self._merge_base(clone, wanted)
            files = await self._files(clone, base, wanted.head_sha)
            folder = await self._worktree(clone, wanted.head_sha)
            self._used.add(folder)
        try:
            yield Checkout(folder, base, files, is_warm)
        finally:
            self._used.discard(folder)

    async def since(self, checkout: Checkout, last: str) -> list[ChangedFile] | None:
        """Return what changed in the files of the change since an earlier head; None where that
        commit isn't there any more."""
        known = await self._try(checkout.folder, "cat-file", "-e", f"{last}^{{commit}}")
        if not is_sha(last) or not known.ok:
            return None
        found = await self._files(checkout.folder, last, "HEAD")
        names = {name for one in checkout.files for name in (one.path, one.old_path)}
        return [one for one in found if one.path in names or one.old_path in names]

    async def text_at(self, checkout: Checkout, revision: str, path: str) -> str | None:
        """Return a file as text at a commit; None where it has none, or more than anybody reads."""
        data = await self._data(checkout.folder, revision, path)
        if data is None or len(data) > MOST_TEXT_BYTES:
            return None
        return data.decode("utf-8", "replace")

    async def data_at(self, checkout: Checkout, revision: str, path: str) -> bytes | None:
        """Return a file's bytes at a commit; None where there is none, or it is no file."""
        return await self._data(checkout.folder, revision, path)

    async def branch_files(self, branch: WantedBranch, paths: Sequence[str]) -> BranchFiles | None:
        """Return these files as they are on a branch now, without a checkout; None where there is
        no such branch. `CloneError` where it can't be fetched."""
        _check_url(branch.url)
        if not is_branch(branch.branch):
            raise CloneError("the forge names no branch that git could take", may_retry=False)
        # Apart from the clone that checkouts are made of, whose history this would shorten.
        name = f"{branch.name} configuration"
        clone = self._folder(name)
        async with self._turns.setdefault(name, asyncio.Lock()):
            if not _is_clone(clone):
                await self._git(clone, "init", "--quiet", "--bare", ".")
            wanted = WantedCode(branch.name, branch.url, branch.token, 0, branch.branch, "", "")
            try:
                ref = f"+refs/heads/{branch.branch}:refs/gatehouse/branch"
                await self._remote(clone, wanted, "--depth=1", ref)
            except CloneError as error:
                if NO_REF in str(error):
                    return None
                raise
            head = await self._git(clone, "rev-parse", "refs/gatehouse/branch^{commit}")
            sha = head.stdout.decode().strip()
            found = {path: await self._data(clone, sha, path) for path in paths}
        return BranchFiles(sha, {path: data for path, data in found.items() if data is not None})

    async def _data(self, folder: Path, revision: str, path: str) -> bytes | None:
        found = await self._try(folder, "cat-file", "blob", f"{revision}:{path}")
        return found.stdout if found.ok else None

    def _folder(self, name: str) -> Path:
        return self._root / hashlib.sha256(name.casefold().encode()).hexdigest()[:24]

    async def names_at(self, checkout: Checkout, revision: str, folder: str) -> list[str]:
        """Return the paths of the files below a folder at a commit."""
        words = ("ls-tree", "-r", "-z", "--name-only", revision, "--", f"{folder}/")
        found = await self._try(checkout.folder, *words)
        return [one for one in found.stdout.decode("utf-8", "replace").split("\0") if one]

    async def _fetch(self, clone: Path, wanted: WantedCode) -> bool:
        """Bring head and base into the clone. Return whether there was one before."""
        is_warm = _is_clone(clone)
        if not is_warm:
            await self._git(clone, "init", "--quiet", "--bare", ".")
        has_all = [
            (await self._try(clone, "cat-file", "-e", f"{one}^{{commit}}")).ok
            for one in (wanted.head_sha, wanted.base_sha)
        ]
        if not all(has_all):
            refs = (
                f"+refs/pull/{wanted.number}/head:refs/gatehouse/{wanted.number}/head",
                f"+refs/heads/{wanted.base_ref}:refs/gatehouse/{wanted.number}/base",
            )
            await self._remote(clone, wanted, f"--depth={DEPTH}", *refs)
        for one in (wanted.head_sha, wanted.base_sha):
            if not (await self._try(clone, "cat-file", "-e", f"{one}^{{commit}}")).ok:
                # A push in between took the branch elsewhere; the commit may still be there.
                await self._remote(clone, wanted, f"--depth={DEPTH}", one)
        return is_warm

    async def _merge_base(self, clone: Path, wanted: WantedCode) -> str:
        for depth in range(0, MOST_DEPTH + 1, DEEPEN_BY):
            found = await self._try(clone, "merge-base", wanted.base_sha, wanted.head_sha)
            if found.ok:
                return found.stdout.decode().strip()
            if not (clone / "shallow").is_file() or depth == MOST_DEPTH:
                break
            both = (wanted.base_sha, wanted.head_sha)
            await self._remote(clone, wanted, f"--deepen={DEEPEN_BY}", *both)
        raise CloneError(
            f"no commit is common to {wanted.base_ref} and the pull request", may_retry=False
        )

    async def _files(self, clone: Path, base: str, head: str) -> list[ChangedFile]:
        raw = await self._git(clone, *_DIFF, "--raw", "--no-abbrev", "-z", base, head)
        patch = await self._git(clone, *_DIFF, base, head)
        if patch.truncated or raw.truncated:
            raise CloneError(
                f"the change has more than {MOST_DIFF_BYTES >> 20} MB", may_retry=False
            )
        return changed_files(raw.stdout, patch.stdout)

    async def _worktree(self, clone: Path, head: str) -> Path:
        trees = clone / "trees"
        idle = [one for one in _folders(trees) if one not in self._used]
        for one in idle[MOST_IDLE:]:
            await self._try(clone, "worktree", "remove", "--force", str(one))
            shutil.rmtree(one, ignore_errors=True)
        for folder in idle[:MOST_IDLE]:
            moved = await self._try(folder, "checkout", "--quiet", "--force", "--detach", head)
            if moved.ok and (await self._try(folder, "clean", "-ffdxq")).ok:
                return folder
            await self._try(clone, "worktree", "remove", "--force", str(folder))
            shutil.rmtree(folder, ignore_errors=True)
        await self._try(clone, "worktree", "prune")
        taken = {one.name for one in _folders(trees)}
        folder = trees / next(str(n) for n in range(10_000) if str(n) not in taken)
        await self._git(clone, "worktree", "add", "--quiet", "--detach", str(folder), head)
        return folder

    async def _remote(self, clone: Path, wanted: WantedCode, *words: str) -> None:
        """Run `git fetch` with the token."""
        basic = base64.b64encode(f"x-access-token:{wanted.token}".encode()).decode()
        env = {
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "http.extraHeader",
            "GIT_CONFIG_VALUE_0": f"Authorization: Basic {basic}",
        }
        depth, *refs = words
        fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", depth)
        done = await self._try(clone, *fetch, wanted.url, *refs, env=env, timeout_s=FETCH_S)
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip().replace(basic, "")
            raise CloneError(f"the code can't be fetched: {said[-300:]}")

    async def _git(self, folder: Path, *words: str) -> Completed:
        done = await self._try(folder, *words)
        if not done.ok:
            said = done.stderr.decode(errors="replace").strip()
            raise CloneError(f"git {words[0]} failed: {said[-300:]}")
        return done

    async def _try(
        self,
        folder: Path,
        *words: str,
        env: dict[str, str] | None = None,
        timeout_s: float = GIT_S,
    ) -> Completed:
        settings = [word for one in _SAFE for word in ("-c", one)]
        return await run(
            ["git", *settings, *words],
            env=_ENVIRONMENT | (env or {}),
            cwd=folder,
            timeout_s=timeout_s,
            output_limit_bytes=MOST_DIFF_BYTES,
        )


def _is_clone(clone: Path) -> bool:
    """Return whether there is a clone; where there is none, make its folder."""
    if (clone / "HEAD").is_file():
        return True
    shutil.rmtree(clone, ignore_errors=True)
    clone.mkdir(parents=True, mode=0o700)
    return False


def _folders(trees: Path) -> list[Path]:
    trees.mkdir(exist_ok=True)
    return sorted(trees.iterdir())


_ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LC_ALL": "C.UTF-8",
    "HOME": "/nonexistent",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_LFS_SKIP_SMUDGE": "1",
}


def _check(wanted: WantedCode) -> None:
    """INVARIANT: nothing that a forge or a webhook says reaches git unless it is a commit id, a
    branch's name or a URL of HTTP."""
    if not (is_sha(wanted.head_sha) and is_sha(wanted.base_sha) and is_branch(wanted.base_ref)):
        raise CloneError("the forge names no commit or branch that git could take", may_retry=False)
    _check_url(wanted.url)


def _check_url(url: str) -> None:
    if not url.startswith(("https://", "http://")) or "@" in url.split("/")[2]:
        raise CloneError("the forge names no URL to clone from", may_retry=False)
