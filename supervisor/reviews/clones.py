"""Clones of repositories, and the checkouts that runs read.

Each repository has a bare clone with as much history as a merge base needs. A checkout is a
worktree of it at one commit, used by one run at a time; an unused one is moved to the next run's
commit, so that only differing files are written. No code of a repository runs here: git is given
each folder by name, never one with a repository's files (law 12), and no attribute of a tree hides
or changes what a reader is shown. The token is only in one process's environment, never in an
argument, a URL or a configuration. A pull request's disk use is bounded before anything is written
(`tree_size`).
"""

import asyncio
import base64
import contextlib
import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor.base.process import Completed
from supervisor.core.git.scoped_commit import line_counts, tree_changes
from supervisor.core.jobs import Changed
from supervisor.core.secrets.token_shapes import without_tokens
from supervisor.errors import GatehouseError
from supervisor.git.run_git import SAFE_DIFF, GitPlace, run_git, without_attributes
from supervisor.reviews import clone_room
from supervisor.reviews.core.deliveries import is_branch, is_sha
from supervisor.reviews.core.diffs import ChangedFile, FilePatch, changed_files, file_patches
from supervisor.reviews.core.job_posts import commit_line, with_line
from supervisor.reviews.forges.base import HeadSource

DEPTH, DEEPEN_BY, MOST_DEPTH = 50, 500, 5_000
FETCH_S, GIT_S = 600.0, 120.0
MOST_DIFF_BYTES = 64 * 1024 * 1024
# The limit for the changed files' names, kinds and ids, since the names are kept with each run:
# room for some 12,000 files.
MOST_NAMES_BYTES = 2 * 1024 * 1024
MOST_TEXT_BYTES = 4 * 1024 * 1024
# A longer diff is shown in part: the code around each finding.
MOST_SHOWN_BYTES = 4 * 1024 * 1024
MOST_MESSAGE_BYTES = 256 * 1024
# The list of a tree's files, and how long it may take: trees in trees name more than there is.
MOST_LIST_BYTES, LIST_S = 64 * 1024 * 1024, 30.0
# The most that one fetch may bring.
MOST_FETCH_BYTES = 2 * 1024**3
FETCH_LOOK_S = 0.5
# Git's message for a branch that doesn't exist.
NO_REF = "couldn't find remote ref"
# What git says where the token may not push, or a rule of the repository is against it.
_NOT_TAKEN = re.compile(
    r"\[remote rejected\][^\n]*|returned error: 40[134]"
    r"|Authentication failed|could not read Username"
)
_BINARY = re.compile(rb"^(?:Binary files |GIT binary patch)", re.MULTILINE)
# The number of unused worktrees that are kept for later runs.
MOST_IDLE = 4
_FETCH = ("fetch.fsckObjects=true", "fetch.unpackLimit=1", "http.followRedirects=false")
_DIFF = (*SAFE_DIFF, "-U3")
MOST_ENTRIES = 250_000
MOST_BYTES = 4 * 1024**3
# Longer paths can't be opened below our folders (PATH_MAX), and longer names not at all (NAME_MAX).
MOST_PATH_BYTES, MOST_NAME_BYTES = 2_000, 255
_BLOCK_BYTES = 4096


class CloneError(GatehouseError):
    """Raised if the code can't be fetched. `may_retry`: a retry may succeed."""

    def __init__(self, message: str, *, may_retry: bool = True) -> None:
        super().__init__(without_tokens(message), "it is tried again" if may_retry else "")
        self.may_retry = may_retry


class _UnreachableError(CloneError):
    """Raised if the head is in another repository that can't be read."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the pull request's repository can't be read ({why[:200]})")


class WantedCode(NamedTuple):
    """The code of a pull request: its repository's URL, base and head. `token` may read it
    (`USER:TOKEN`); `head` is where its head is, None at the repository's own `refs/pull`."""

    name: str
    url: str
    token: str
    number: int
    base_ref: str
    base_sha: str
    head_sha: str
    head: HeadSource | None = None


class WantedBranch(NamedTuple):
    """A branch of a repository. `token` may read it (`USER:TOKEN`)."""

    name: str
    url: str
    token: str
    branch: str


class BranchFiles(NamedTuple):
    """Files of a branch at its commit, by their paths."""

    sha: str
    files: dict[str, bytes]


class Checkout(NamedTuple):
    """The files of the commit `head` in `folder`, and the changes since `base`, the merge base.
    `has_conflict`: what a job pushed before can't be replayed on the base. `left_out`: why `head`
    is a commit of ours, made of the forge's diff, and what that lacks; "" if it is the real one."""

    folder: Path
    clone: Path
    base: str
    head: str
    files: list[ChangedFile]
    is_warm: bool
    has_conflict: bool = False
    left_out: str = ""


# Reads a pull request's change from its forge, as a patch.
type ReadDiff = Callable[[], Awaitable[bytes]]


class PackedCommit(NamedTuple):
    """A commit, and a pack of what it has and its base hasn't."""

    commit: str
    pack: bytes


class Clones:
    """The clones of one supervisor. `root` is a cache: everything in it can be fetched again."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._turns: dict[str, asyncio.Lock] = {}
        self._used: set[Path] = set()
        self._room = clone_room.CloneRoom(root)

    @contextlib.asynccontextmanager
    async def checkout(
        self, wanted: WantedCode, read_diff: ReadDiff | None = None
    ) -> AsyncIterator[Checkout]:
        """Fetch missing commits and yield the head's files until the block ends. Raise `CloneError`
        if that fails. `read_diff` gives the change if the head is in another repository that can't
        be read."""
        _check(wanted)
        clone = self._folder(wanted.name)
        async with self._room.used(clone):
            async with self._turns.setdefault(wanted.name, asyncio.Lock()):
                left_out = ""
                try:
                    is_warm = await self._fetch(clone, wanted)
                except _UnreachableError as error:
                    if read_diff is None:
                        raise
                    is_warm = True
                    made, lacks = await self._patched(clone, wanted, await read_diff())
                    wanted = wanted._replace(head_sha=made)
                    left_out = f"{error.message}, so only its diff was looked at{lacks}"
                head = wanted.head_sha
                # This check comes first: the diff of a tree that unfolds endlessly is endless, too.
                size_bytes = await self._size_bytes(clone, head)
                base = await self._merge_base(clone, wanted)
                files = await self._files(clone, base, head)
                folder = await self._worktree(clone, head, size_bytes)
                self._used.add(folder)
            try:
                yield Checkout(folder, clone, base, head, files, is_warm, left_out=left_out)
            finally:
                self._used.discard(folder)

    @contextlib.asynccontextmanager
    async def branch_checkout(
        self, branch: WantedBranch, pushed: str = ""
    ) -> AsyncIterator[Checkout]:
        """Fetch a branch and yield the files of its commit until the block ends; `pushed`: with
        this commit, which a job pushed before, replayed on it. Raise `CloneError` if that
        fails."""
        _check_branch(branch)
        clone = self._folder(branch.name)
        async with self._room.used(clone):
            async with self._turns.setdefault(branch.name, asyncio.Lock()):
                is_warm = await self._is_clone(clone)
                if pushed and not await self._has(clone, pushed):
                    await self._remote(clone, branch, "--depth=2", pushed)
                ref = f"+refs/heads/{branch.branch}:refs/gatehouse/branch"
                await self._remote(clone, branch, f"--depth={DEPTH}", ref)
                base = await self._id(clone, "refs/gatehouse/branch^{commit}")
                replayed = await self._replayed(clone, base, pushed) if pushed else base
                head = replayed or base
                folder = await self._worktree(clone, head, await self._size_bytes(clone, head))
                self._used.add(folder)
            try:
                yield Checkout(folder, clone, base, head, [], is_warm, not replayed)
            finally:
                self._used.discard(folder)

    async def squashed(
        self, branch: WantedBranch, checkout: Checkout, commit: str, pack: bytes, job: str
    ) -> PackedCommit:
        """Put a commit of a checkout's head into its clone, and return it as one commit of the
        checkout's base that names the job. `branch` is what was checked out."""
        clone = checkout.clone
        if pack:
            # Who looks at the clone meanwhile would take half a pack for a killed fetch's.
            async with self._turns.setdefault(branch.name, asyncio.Lock()):
                await self._index(clone, pack)
        tree = await self._id(clone, f"{commit}^{{tree}}")
        made = await self._committed(clone, tree, checkout.base, commit, commit_line(job, tree))
        words = ("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet")
        wanted = f"{made}\n^{checkout.base}\n".encode()
        packed = await run_git(
            GitPlace(clone), *words, stdin=wanted, timeout_s=GIT_S, limit_bytes=MOST_DIFF_BYTES
        )
        if not packed.ok:
            raise CloneError(f"the commit can't be packed: {_said(packed)}")
        return PackedCommit(made, packed.stdout)

    async def _replayed(self, clone: Path, base: str, pushed: str) -> str:
        """Return what was pushed before as a commit of another base; "" if there is a
        conflict."""
        old = await self._id(clone, f"{pushed}^")
        if old == base:
            return pushed
        tree = await self._id(clone, f"{base}^{{tree}}")
        # The base as a child of the earlier one: whatever the history, that is where both part.
        beside = await self._committed(clone, tree, old, pushed)
        merged = await self._try(clone, "merge-tree", "--write-tree", beside, pushed)
        if not merged.ok:
            return ""
        found = merged.stdout.decode().strip()
        return base if found == tree else await self._committed(clone, found, base, pushed)

    async def _committed(
        self, clone: Path, tree: str, parent: str, like: str, line: str = ""
    ) -> str:
        """Commit a tree with the message and author of another commit. `line` ends the message."""
        said = await self._git(clone, "log", "-1", "--format=%an%n%ae%n%B", like)
        name, mail, message = said.stdout.split(b"\n", 2)
        message = with_line(message, line) if line else message
        made = await run_git(
            GitPlace(clone),
            *("commit-tree", tree, "-p", parent, "-F", "-"),
            config=(f"user.name={name.decode()}", f"user.email={mail.decode()}"),
            stdin=message,
        )
        if not made.ok:
            raise CloneError(f"git commit-tree failed: {_said(made)}")
        return made.stdout.decode().strip()

    async def _index(self, clone: Path, pack: bytes) -> None:
        words = ("index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects")
        stored = await run_git(GitPlace(clone), *words, stdin=pack, timeout_s=GIT_S)
        if not stored.ok:
            raise CloneError(f"the commit is broken: {_said(stored)}", may_retry=False)

    async def _id(self, clone: Path, name: str) -> str:
        found = await self._git(clone, "rev-parse", "--verify", name)
        return found.stdout.decode().strip()

    async def take_commit(
        self, branch: WantedBranch, base: str, commit: str, pack: bytes
    ) -> list[Changed]:
        """Put a commit into the clone, and return in what it differs from its base, which is
        fetched where it is missing. Raise `CloneError` if the pack isn't whole."""
        _check_branch(branch)
        clone = self._folder(branch.name)
        async with self._room.used(clone):
            async with self._turns.setdefault(branch.name, asyncio.Lock()):
                await self._is_clone(clone)
                if not await self._has(clone, base):
                    await self._remote(clone, branch, f"--depth={DEPTH}", base)
                if not await self._has(clone, commit):
                    await self._index(clone, pack)
            parents = await self._git(clone, "rev-parse", f"{commit}^@")
            if parents.stdout.decode().split() != [base]:
                raise CloneError("the commit isn't one of this base alone", may_retry=False)
            diff = ("diff-tree", "-r", "-z", "--no-renames")
            raw = await self._git(clone, *diff, "--raw", base, commit)
            counted = await self._git(clone, *diff, "--numstat", "--text", base, commit)
        lines = line_counts(counted.stdout)
        return [one.changed(lines) for one in tree_changes(raw.stdout)]

    async def push(self, branch: WantedBranch, commit: str, lease: str) -> None:
        """Make a commit a branch of the repository; `lease`: the commit that this must be at now,
        "" if there must be no such branch. With "" as `commit`, the branch is removed."""
        _check_branch(branch)
        clone, ref = self._folder(branch.name), f"refs/heads/{branch.branch}"
        words = ("push", "--porcelain", "--no-verify", f"--force-with-lease={ref}:{lease}")
        turn = self._turns.setdefault(branch.name, asyncio.Lock())
        async with self._room.used(clone), turn:
            await self._is_clone(clone)
            done, secret = await self._authorized(
                clone, branch.token, *words, branch.url, f"{commit}:{ref}"
            )
        if not done.ok:
            refused = _NOT_TAKEN.search(
                (done.stdout + b"\n" + done.stderr).decode(errors="replace")
            )
            why = refused[0] if refused else ""
            said = "; ".join(filter(None, (why, _said(done, secret))))
            raise CloneError(f"the branch can't be pushed: {said}", may_retry=refused is None)

    async def since(self, checkout: Checkout, last: str) -> list[ChangedFile] | None:
        """Return the changes since an earlier head in the pull request's files; None if that commit
        is gone."""
        if not is_sha(last) or not await self._has(checkout.clone, last):
            return None
        found = await self._files(checkout.clone, last, checkout.head)
        names = {name for one in checkout.files for name in (one.path, one.old_path)}
        return [one for one in found if one.path in names or one.old_path in names]

    async def rebased(self, checkout: Checkout, base: str) -> set[str] | None:
        """Return the files that differ between an earlier base and this one; None if that commit is
        gone, or there are too many."""
        if not is_sha(base) or not await self._has(checkout.clone, base):
            return None
        words = (*_DIFF, "--name-only", "--no-renames", "-z", base, checkout.base)
        found = await self._try(checkout.clone, *words)
        names = found.stdout.decode("utf-8", "surrogateescape").split("\0")
        return set(names) if found.ok and not found.truncated else None

    async def message(self, name: str, commit: str) -> str:
        """Return the message of a commit that was fetched, "" if it is gone."""
        clone = self._folder(name)
        if not (is_sha(commit) and (clone / "HEAD").is_file()):
            return ""
        async with self._room.used(clone):
            words = ("show", "--no-patch", "--format=%B", commit)
            said = await self._try(clone, *words, limit_bytes=MOST_MESSAGE_BYTES)
        return said.stdout.decode("utf-8", "replace").strip() if said.ok else ""

    async def known_diff(self, name: str, base: str, head: str) -> list[FilePatch]:
        """Return the change between two commits that were fetched, file by file. Empty if they are
        gone, or it is too long to be shown."""
        clone = self._folder(name)
        if not (is_sha(base) and is_sha(head) and (clone / "HEAD").is_file()):
            return []
        async with self._room.used(clone):
            raw = await self._try(
                clone,
                *_DIFF,
                "--raw",
                "--no-abbrev",
                "-z",
                base,
                head,
                limit_bytes=MOST_SHOWN_BYTES,
            )
            patch = await self._try(clone, *_DIFF, base, head, limit_bytes=MOST_SHOWN_BYTES)
        if not (raw.ok and patch.ok) or raw.truncated or patch.truncated:
            return []
        return await asyncio.to_thread(file_patches, raw.stdout, patch.stdout)

    async def both_sides(
        self, name: str, base: str, head: str, file: ChangedFile
    ) -> tuple[bytes, bytes]:
        """Return a changed file's bytes before and after, of commits that were fetched; empty where
        there are none."""
        clone = self._folder(name)
        sides = ((base, file.old_path), (head, file.path))
        async with self._room.used(clone):
            old, new = [await self._data(clone, *one) if is_sha(one[0]) else None for one in sides]
        return old or b"", new or b""

    async def text_at(self, checkout: Checkout, revision: str, path: str) -> str | None:
        """Return a file as text at a commit; None if it doesn't exist or is too long."""
        data = await self.data_at(checkout, revision, path)
        return None if data is None else data.decode("utf-8", "replace")

    async def data_at(self, checkout: Checkout, revision: str, path: str) -> bytes | None:
        """Return a file's bytes at a commit; None if it doesn't exist, isn't a file, or is too
        long."""
        return await self._data(checkout.clone, revision, path)

    async def branch_files(self, branch: WantedBranch, paths: Sequence[str]) -> BranchFiles | None:
        """Return a branch's current version of these files, without a checkout; None if there is no
        such branch. Raise `CloneError` if it can't be fetched."""
        _check_branch(branch)
        # Separate from the clone for checkouts, whose history this would shorten.
        name = f"{branch.name} configuration"
        clone = self._folder(name)
        async with self._room.used(clone), self._turns.setdefault(name, asyncio.Lock()):
            await self._is_clone(clone)
            try:
                ref = f"+refs/heads/{branch.branch}:refs/gatehouse/branch"
                await self._remote(clone, branch, "--depth=1", ref)
            except CloneError as error:
                if NO_REF in str(error):
                    return None
                raise
            head = await self._git(clone, "rev-parse", "refs/gatehouse/branch^{commit}")
            sha = head.stdout.decode().strip()
            found = {path: await self._data(clone, sha, path) for path in paths}
        return BranchFiles(sha, {path: data for path, data in found.items() if data is not None})

    async def _data(self, clone: Path, revision: str, path: str) -> bytes | None:
        name = f"{revision}:{path}"
        found = await self._try(clone, "cat-file", "blob", name, limit_bytes=MOST_TEXT_BYTES)
        return found.stdout if found.ok else None

    def _folder(self, name: str) -> Path:
        return self._root / hashlib.sha256(name.casefold().encode()).hexdigest()[:24]

    async def names_at(self, checkout: Checkout, revision: str, folder: str) -> list[str]:
        """Return the paths of the files below a folder at a commit."""
        words = ("ls-tree", "-r", "-z", "--name-only", revision, "--", f"{folder}/")
        found = await self._try(checkout.clone, *words, timeout_s=LIST_S)
        return [one for one in found.stdout.decode("utf-8", "replace").split("\0") if one]

    async def _has(self, clone: Path, commit: str) -> bool:
        return (await self._try(clone, "cat-file", "-e", f"{commit}^{{commit}}")).ok

    async def _is_clone(self, clone: Path) -> bool:
        """Return whether there is a clone; if there is none, make an empty one."""
        may_go = not any(clone in one.parents for one in self._used)
        is_kept = await self._room.is_kept(clone, may_go=may_go)
        if not is_kept:
            await self._git(clone, "init", "--quiet", "--bare", "--template=")
        without_attributes(clone)
        return is_kept

    async def _fetch(self, clone: Path, wanted: WantedCode) -> bool:
        """Bring head and base into the clone. Return whether there was one before."""
        is_warm = await self._is_clone(clone)
        for one in _sides(wanted):
            try:
                await self._bring(clone, one)
            except CloneError as error:
                if one.place.url == wanted.url:
                    raise
                raise _UnreachableError(error.message) from error
        return is_warm

    async def _bring(self, clone: Path, side: "_Side") -> None:
        if all([await self._has(clone, one) for one in side.commits]):
            return
        await self._remote(clone, side.place, f"--depth={DEPTH}", *side.refs)
        for one in side.commits:
            if not await self._has(clone, one):
                # A push in between moved the branch; the commit may still exist.
                await self._remote(clone, side.place, f"--depth={DEPTH}", one)

    async def _patched(self, clone: Path, wanted: WantedCode, patch: bytes) -> tuple[str, str]:
        """Return a commit of the base with this patch, and in words what it lacks."""
        if len(patch) > MOST_DIFF_BYTES:
            raise CloneError(
                f"the change has more than {MOST_DIFF_BYTES >> 20} MB", may_retry=False
            )
        text, binary = without_binary(patch)
        index = GitPlace(clone, index_file=clone / "patched.index")
        (clone / "patched.index").unlink(missing_ok=True)
        read = await run_git(index, "read-tree", wanted.base_sha, timeout_s=GIT_S)
        words = ("apply", "--cached", "--whitespace=nowarn", "-")
        done = (
            read
            if not read.ok or not text
            else await run_git(index, *words, stdin=text, timeout_s=GIT_S)
        )
        if not done.ok:
            raise CloneError(
                "the pull request's repository can't be read, and its diff doesn't fit its base:"
                f" {_said(done)}",
                may_retry=False,
            )
        tree = (await run_git(index, "write-tree", timeout_s=GIT_S)).stdout.decode().strip()
        made = await self._committed(clone, tree, wanted.base_sha, wanted.base_sha)
        return made, f", without {binary} binary files" if binary else ""

    async def _size_bytes(self, clone: Path, head: str) -> int:
        """Return the disk space that the files of a commit take. Raise `CloneError` if it is too
        much."""
        words = ("ls-tree", "-r", "-t", "-l", "-z", head)
        listed = await self._try(clone, *words, timeout_s=LIST_S, limit_bytes=MOST_LIST_BYTES)
        why = "it has more files than can be listed"
        size_bytes = 0
        if listed.ok:
            size_bytes, why = await asyncio.to_thread(tree_size, listed.stdout)
        elif not (listed.truncated or listed.timed_out):
            raise CloneError(f"git ls-tree failed: {_said(listed)}")
        if why:
            raise CloneError(f"the code can't be checked out: {why}", may_retry=False)
        return size_bytes

    async def _merge_base(self, clone: Path, wanted: WantedCode) -> str:
        for depth in range(0, MOST_DEPTH + 1, DEEPEN_BY):
            found = await self._try(clone, "merge-base", wanted.base_sha, wanted.head_sha)
            if found.ok:
                return found.stdout.decode().strip()
            if not (clone / "shallow").is_file() or depth == MOST_DEPTH:
                break
            for one in _sides(wanted):
                await self._remote(clone, one.place, f"--deepen={DEEPEN_BY}", *one.commits)
        raise CloneError(
            f"no commit is common to {wanted.base_ref} and the pull request", may_retry=False
        )

    async def _files(self, clone: Path, base: str, head: str) -> list[ChangedFile]:
        words = (*_DIFF, "--raw", "--no-abbrev", "-z", base, head)
        raw = await self._try(clone, *words, limit_bytes=MOST_NAMES_BYTES)
        if raw.truncated:
            raise CloneError(
                f"the change has more than {MOST_NAMES_BYTES >> 20} MB of names", may_retry=False
            )
        patch = await self._try(clone, *_DIFF, base, head)
        if patch.truncated:
            raise CloneError(
                f"the change has more than {MOST_DIFF_BYTES >> 20} MB", may_retry=False
            )
        for done in (raw, patch):
            if not done.ok:
                raise CloneError(f"git diff failed: {_said(done)}")
        return await asyncio.to_thread(changed_files, raw.stdout, patch.stdout)

    async def _worktree(self, clone: Path, head: str, size_bytes: int) -> Path:
        trees = clone / "trees"
        idle = [one for one in await self._room.trees(clone) if one not in self._used]
        for one in idle[MOST_IDLE:]:
            await self._room.remove_tree(one)
        for folder in idle[:MOST_IDLE]:
            if await self._checked_out(folder, head, size_bytes):
                return folder
            await self._room.remove_tree(folder)
        taken = {one.name for one in await self._room.trees(clone)}
        folder = trees / next(str(n) for n in range(10_000) if str(n) not in taken)
        clone_room.make_tree(folder)
        if not await self._checked_out(folder, head, size_bytes):
            await self._room.remove_tree(folder)
            raise CloneError("the files can't be written", may_retry=True)
        return folder

    async def _checked_out(self, folder: Path, head: str, size_bytes: int) -> bool:
        """Write the files of a commit into a worktree; return whether that succeeded."""
        clone_room.note_size(folder, size_bytes)
        place = GitPlace(clone_room.admin_of(folder), folder)
        moved = await run_git(
            place, "checkout", "--quiet", "--force", "--detach", head, timeout_s=GIT_S
        )
        return moved.ok and (await run_git(place, "clean", "-ffdxq", timeout_s=GIT_S)).ok

    async def _remote(self, clone: Path, wanted: WantedCode | WantedBranch, *words: str) -> None:
        """Run `git fetch` with the token, and stop it if it fetches too much."""
        secret, done = "", None
        _check_url(wanted.url)
        depth, *refs = words
        fetch = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", depth, wanted.url, *refs)
        most_bytes = await self._room.packs_bytes(clone) + MOST_FETCH_BYTES
        async with asyncio.TaskGroup() as tasks:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None) as patience:
                    watching = tasks.create_task(self._watch(clone, most_bytes, patience))
                    done, secret = await self._authorized(clone, wanted.token, *fetch)
            watching.cancel()
        if done is None:
            raise CloneError(f"the code has more than {MOST_FETCH_BYTES >> 30} GB", may_retry=False)
        if not done.ok:
            raise CloneError(f"the code can't be fetched: {_said(done, secret)}")

    async def _authorized(self, clone: Path, token: str, *words: str) -> tuple[Completed, str]:
        """Run git with a token, if there is one; return also what must not be shown of it."""
        basic = base64.b64encode(token.encode()).decode()
        done = await run_git(
            GitPlace(clone),
            *words,
            config=_FETCH,
            hidden_config={"http.extraHeader": f"Authorization: Basic {basic}"} if token else None,
            protocols=("http", "https"),
            timeout_s=FETCH_S,
        )
        return done, basic

    async def _watch(self, clone: Path, most_bytes: int, patience: asyncio.Timeout) -> None:
        """Stop a fetch that fetches too much."""
        # Polling, because a size on disk changes without a notification.
        while await self._room.packs_bytes(clone) <= most_bytes:  # noqa: ASYNC110
            await asyncio.sleep(FETCH_LOOK_S)
        patience.reschedule(0)

    async def _git(self, clone: Path, *words: str) -> Completed:
        done = await self._try(clone, *words)
        if not done.ok:
            raise CloneError(f"git {words[0]} failed: {_said(done)}")
        return done

    async def _try(
        self,
        clone: Path,
        *words: str,
        timeout_s: float = GIT_S,
        limit_bytes: int = MOST_DIFF_BYTES,
    ) -> Completed:
        return await run_git(GitPlace(clone), *words, timeout_s=timeout_s, limit_bytes=limit_bytes)


def clone_name(forge: str, repository: str) -> str:
    """Return the name of a repository's clone."""
    return f"{forge}:{repository}"


def jobs_clone_name(forge: str, repository: str) -> str:
    """Return the name of the clone for a repository's jobs, whose history reviews don't share."""
    return f"{clone_name(forge, repository)} jobs"


class _Side(NamedTuple):
    """What one repository has of a pull request's code: refs to fetch, for these commits."""

    place: WantedCode
    refs: tuple[str, ...]
    commits: tuple[str, ...]


def _sides(wanted: WantedCode) -> list[_Side]:
    """Return the repositories that have the code, the pull request's own first."""
    base = f"+refs/heads/{wanted.base_ref}:refs/gatehouse/{wanted.number}/base"
    there = wanted.head or HeadSource(wanted.url, f"refs/pull/{wanted.number}/head", "")
    head = f"+{there.ref}:refs/gatehouse/{wanted.number}/head"
    if there.url == wanted.url:
        return [_Side(wanted, (head, base), (wanted.head_sha, wanted.base_sha))]
    other = wanted._replace(url=there.url, token=there.token)
    return [
        _Side(wanted, (base,), (wanted.base_sha,)),
        _Side(other, (head,), (wanted.head_sha,)),
    ]


def without_binary(patch: bytes) -> tuple[bytes, int]:
    """Return a patch without its binary files, which a forge names only, and how many these are."""
    start = b"diff --git "
    files = [start + one for one in (b"\n" + patch).split(b"\n" + start)[1:]]
    kept = [one for one in files if not _BINARY.search(one)]
    return b"".join(one.rstrip(b"\n") + b"\n" for one in kept), len(files) - len(kept)


def _said(done: Completed, secret: str = "") -> str:
    """Return the end of git's error output, without credentials."""
    said = done.stderr.decode(errors="replace").strip()
    return without_tokens(said.replace(secret, "") if secret else said)[-300:]


def _check(wanted: WantedCode) -> None:
    """Check the values that go to git. INVARIANT: nothing from a forge or a webhook reaches git
    unless it is a commit id, a branch's name or an HTTP URL."""
    if not (is_sha(wanted.head_sha) and is_sha(wanted.base_sha) and is_branch(wanted.base_ref)):
        raise CloneError("the forge names no commit or branch that git could take", may_retry=False)
    _check_url(wanted.url)
    if wanted.head is not None and wanted.head.url and not is_branch(wanted.head.ref):
        raise CloneError("the forge names no branch that git could take", may_retry=False)


def _check_branch(wanted: WantedBranch) -> None:
    _check_url(wanted.url)
    if not is_branch(wanted.branch):
        raise CloneError("the forge names no branch that git could take", may_retry=False)


def _check_url(url: str) -> None:
    if not url.startswith(("https://", "http://")) or "@" in url.split("/")[2]:
        raise CloneError("the forge names no URL to clone from", may_retry=False)


def tree_size(listed: bytes) -> tuple[int, str]:
    """Return the size of the listed files in bytes, and why they can't be checked out: "" if they
    can."""
    if listed.count(b"\0") > MOST_ENTRIES:
        return 0, f"it has more than {MOST_ENTRIES:,} files and folders"
    size_bytes = 0
    for entry in listed.split(b"\0")[:-1]:
        about, _, path = entry.partition(b"\t")
        if len(path) > MOST_PATH_BYTES or max(map(len, path.split(b"/"))) > MOST_NAME_BYTES:
            return 0, f"a path is longer than {MOST_PATH_BYTES:,} bytes, or a name than 255"
        size = about.split()[-1]
        # Folders, submodules and small files each take a block.
        size_bytes += _BLOCK_BYTES + (int(size) if size != b"-" else 0)
        if size_bytes > MOST_BYTES:
            return 0, f"its files have more than {MOST_BYTES >> 30} GB"
    return size_bytes, ""
