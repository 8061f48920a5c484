"""A clean bare repository of our own, through which commits leave the private copy.

    remote --fetch--> staging <--pack-- private copy (git runs in a tool sandbox)
                      staging --push--> remote, with the person's credentials

Only objects come from the private copy, checked as they arrive; never its hooks, filters,
configuration or alternates. Objects of the host's repository are borrowed, not copied. Git contacts
remotes with the person's own configuration; of the host's repository it reads only the remotes'
addresses, as data (law 12).
"""

import asyncio
import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from supervisor.base.plain_files import read_small
from supervisor.base.process import Completed, Printed
from supervisor.core.actions import RefUpdate
from supervisor.core.git.remote_addresses import Addresses, protocol_of, remotes_in, shown_url
from supervisor.core.git.scoped_commit import (
    CommittedFile,
    commit_stream,
    line_counts,
    tree_changes,
)
from supervisor.core.git.taken_branch import NamesInUse
from supervisor.core.jobs import Changed
from supervisor.core.text.ref_names import RemoteRefs, listed_refs
from supervisor.errors import RefusedError
from supervisor.git.host_repository import HostRepository, borrowed_from, checked_out, config_of
from supervisor.git.repository_view import view_of, writable_ref
from supervisor.git.run_git import GitPlace, run_git, without_attributes

LOCAL_S = 60.0
REMOTE_S = 120.0
MOST_SHALLOW_BYTES = 16 << 20
MOST_PACK_BYTES = 512 * 1024 * 1024
MOST_MEMORY_BYTES = 1 << 30
# Of each program that reads what a remote sends: its packs may be large, and may be hostile, too.
MOST_FETCH_MEMORY_BYTES = 4 << 30
MOST_TREE_BYTES = 16 * 1024 * 1024
MOST_LIST_BYTES = 16 * 1024 * 1024
MOST_COMPARED = 500
# Of a partial clone (git-clone(1), --filter): what is missing is fetched by none of ours.
_FILL = (
    "see what git says; your repository is a partial clone, and `git fetch --refetch --no-filter`"
    " gets what is missing in one"
)
_JOBS = "refs/jobs/"
_COMMITTED = "refs/committed"
type LoginFor = Callable[[str], tuple[str, str] | None]
# git-credential(1): a helper prints what it knows.
_HELPER = '!f() {{ test "$1" != get || cat /dev/fd/{}; }}; f'
# The remote's name in the staging repository: its address is hidden configuration.
_REMOTE = "gatehouse"


class Remote(NamedTuple):
    """A remote of the host's repository. `url` is what the person's `url.*.insteadOf` makes of the
    address in `config`, by which the staging repository knows it. It may hold a password."""

    name: str
    url: str
    config: Mapping[str, str]


class HostBranch(NamedTuple):
    """A branch of the host's repository: its commit, and whether a work tree has it checked out."""

    oid: str
    is_checked_out: bool


class Staging:
    """The staging repository in `folder` for one repository of the host's, in a workspace or around
    it."""

    def __init__(
        self, folder: Path, host: HostRepository, workspace: Path, login_for: LoginFor
    ) -> None:
        """`login_for(url)` gives user and password of a named secret for a remote, or None."""
        self.folder = folder
        self._workspace = workspace
        self._login_for = login_for
        self._host = host
        self._place = GitPlace(folder)
        self._is_partial = False

    async def open(self) -> None:
        """Make it if it doesn't exist, and have it borrow the host repository's objects."""
        objects = self._host.git.common / "objects"
        await asyncio.to_thread(borrowed_from, objects)
        values = await config_of(self._host.git)
        self._is_partial = any(
            key == "extensions.partialclone" or key.endswith(".promisor") for key, _ in values
        )
        if not (self.folder / "HEAD").exists():
            hashes = dict(values).get("extensions.objectformat", "sha1")
            made = await run_git(
                None,
                *("init", "--bare", "--quiet", "--template=", f"--object-format={hashes}"),
                str(self.folder),
            )
            self._check(made, "a staging repository can't be made")
        await asyncio.to_thread(self._borrow, objects)

    def _borrow(self, objects: Path) -> None:
        without_attributes(self.folder)
        info = self.folder / "objects" / "info"
        info.mkdir(exist_ok=True)
        (info / "alternates").write_bytes(_quoted(objects))
        # Without it what the host's clone hasn't would be missing here.
        with contextlib.suppress(OSError):
            shallow = read_small(self._host.git.common / "shallow", MOST_SHALLOW_BYTES)
            (self.folder / "shallow").write_bytes(shallow)

    async def remote(self, wanted: str | None, *, is_push: bool) -> Remote:
        """Return a remote of the host's repository, by its name or its URL, else the default one.
        `RefusedError` where there is none such, or it isn't spoken to."""
        found = remotes_in(await config_of(self._host.git))
        wanted = wanted or (found.push_default if is_push else "") or "origin"
        names = [wanted] if wanted in found.remotes else list(found.remotes)
        for name in names:
            with contextlib.suppress(*(() if name == wanted else (RefusedError,))):
                known = await self._addresses(name, found.remotes[name], is_push=is_push)
                if wanted == name or wanted in (shown_url(one.url) for one in known):
                    return self._only(name, known)
        raise RefusedError(
            f"`{wanted[:200]}` is no remote of the host's repository",
            f"name one that is: {', '.join(found.remotes) or 'there is none'}",
        )

    async def _addresses(self, name: str, said: Addresses, *, is_push: bool) -> list[Remote]:
        is_apart = is_push and bool(said.push_urls)
        keys = ("url", "pushurl") if is_apart else ("url",)
        written = said.push_urls if is_apart else said.urls
        return [await self._known(name, one, keys, is_push=is_push) for one in written]

    async def _known(self, name: str, url: str, keys: Sequence[str], *, is_push: bool) -> Remote:
        """Return the remote with an address as the person's own configuration has it."""
        if _protocol(url) == "file" and not url.startswith(("file://", "/")):
            url = os.path.normpath(f"{self._host.top}/{url}")  # noqa: ASYNC240 (reads nothing)
        remote = await self._rewritten(Remote(name, url, _addressed(url, keys)), is_push=False)
        if not is_push:
            return remote
        pushed = await self._rewritten(remote, is_push=True)
        if pushed.url == remote.url:
            return remote
        # What is pushed to is also what is read and compared with.
        apart = pushed._replace(config=_addressed(pushed.url, ("url", "pushurl")))
        for way in (False, True):
            if await self._rewritten(apart, is_push=way) != apart:
                raise RefusedError(
                    f"the remote `{name}` is pushed to where it isn't read",
                    "give it a pushurl that your configuration leaves as it is",
                )
        return apart

    async def _rewritten(self, remote: Remote, *, is_push: bool) -> Remote:
        listed = await self._as_person("remote", "--verbose", remote=remote)
        self._check(listed, "the remote's address can't be read")
        direction = " (push)" if is_push else " (fetch)"
        for line in listed.stdout.decode("utf-8", "replace").split("\n"):
            one, _, address = line.partition("\t")
            if one == _REMOTE and address.endswith(direction):
                return remote._replace(url=address.removesuffix(direction))
        raise RefusedError(f"the remote `{remote.name}` has no address", "give it one")

    def _only(self, name: str, known: list[Remote]) -> Remote:
        """Return the one address. A repository that the workspace's tree holds isn't spoken to:
        git would run its hooks."""
        if len(known) != 1:
            raise RefusedError(f"the remote `{name}` has {len(known)} URLs", "give it one")
        remote = known[0]
        if _protocol(remote.url) == "file":
            # Git decodes a URL, and takes `~` for a home.
            is_url = remote.url.startswith("file://")
            place = unquote(remote.url.removeprefix("file://")) if is_url else remote.url
            within = map(Path(place).resolve().is_relative_to, (self._host.top, self._workspace))
            if not place.startswith("/") or any(within):
                raise RefusedError(
                    f"the remote `{name}` is a folder of the workspace",
                    "push to a repository outside of it, by its whole path",
                )
        return remote

    async def refs_at(self, remote: Remote, *others: str) -> RemoteRefs:
        """Return the remote's branches and tags, and these others. `RefusedError` where it can't be
        read."""
        there = await self.listed(remote, "HEAD", "refs/heads/*", "refs/tags/*", *others)
        await self._forget(remote, there)
        return there

    async def listed(self, remote: Remote, *patterns: str) -> RemoteRefs:
        """Return the remote's refs that match one of these (git-ls-remote(1)); many remotes have
        several for each merge request.
        """
        words = ("ls-remote", "--quiet", "--symref", "--", _REMOTE, *patterns)
        found = await self._remotely(remote, *words)
        self._check(found, "the remote can't be read")
        try:
            if found.truncated:
                raise ValueError("the remote's list of refs is too long")
            return listed_refs(found.stdout)
        except ValueError as error:
            raise RefusedError(str(error), "push or fetch it yourself") from error

    async def _forget(self, remote: Remote, there: RemoteRefs) -> None:
        """Keep of a remote's refs those that it still has."""
        place = _place_of(remote.url)
        words = ("for-each-ref", "--format=%(objectname) %(refname)", place)
        listed = (await self.read(*words, limit_bytes=MOST_LIST_BYTES)).decode().split("\n")[:-1]
        gone = ""
        for line in listed:
            oid, _, ref = line.partition(" ")
            name = ref.removeprefix(place)
            if there.ids.get(name if name == "HEAD" else f"refs/{name}") != oid:
                gone += f"delete {ref}\n"
        if gone:
            dropped = await self._git("update-ref", "--stdin", stdin=gone.encode())
            self._check(dropped, "what the remote no longer has can't be dropped")

    async def fetch(self, remote: Remote, refs: list[str]) -> None:
        """Fetch the objects of these refs of the remote."""
        if refs:
            place = _place_of(remote.url)
            wanted = (f"+{ref}:{place}{ref.removeprefix('refs/')}\n" for ref in refs)
            got = await self._remotely(
                remote, "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=",
                "--stdin", _REMOTE, stdin="".join(wanted).encode(),
                memory_bytes=MOST_FETCH_MEMORY_BYTES,
            )  # fmt: skip
            self._check(got, "the remote can't be read")

    async def push(
        self,
        remote: Remote,
        updates: Sequence[RefUpdate],
        printed: Printed | None = None,
    ) -> Completed:
        """Push these objects to these refs, if each ref is still as the update says. `printed`: as
        in `process.run`."""
        return await self._remotely(
            remote,
            *("push", "--porcelain", "--no-verify", *(("--atomic",) if len(updates) > 1 else ())),
            *(f"--force-with-lease={one.ref}:{one.old}" for one in updates),
            _REMOTE,
            *(f"{one.new}:{one.ref}" for one in updates),
            printed=printed,
        )

    async def take_in(self, pack: bytes, tips: list[str], known: list[str]) -> None:
        """Store a pack of the private copy. `RefusedError` where an object is broken, or the tips
        need an object that is neither in it nor known.
        """
        stored = await _stored(self._place, pack)
        self._check(stored, "the commits didn't pass git's check")
        for oid in tips:
            found = await self._git("rev-parse", "--verify", "--quiet", oid)
            if found.stdout.decode().strip() != oid:  # the start of an id that is longer here
                raise RefusedError(f"`{oid[:12]}` is no object's whole id", "see `git log`")
            whole = await self._git("rev-list", "--objects", "--quiet", oid, "--not", *known)
            self._check(whole, f"what `{oid[:12]}` needs is not complete")
            await self._git("update-ref", f"refs/taken/{oid}", oid)

    async def pack(self, oids: list[str], known: list[str]) -> bytes:
        """Return a pack of what these reach and the known don't. `RefusedError` where it is too
        large."""
        revisions = "".join(f"{one}\n" for one in [*oids, *(f"^{oid}" for oid in known)])
        made = await run_git(
            self._place,
            *("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"),
            stdin=revisions.encode(),
            timeout_s=LOCAL_S,
            limit_bytes=MOST_PACK_BYTES,
        )
        if made.truncated:
            raise RefusedError("what came is too large for the private copy", "fetch it yourself")
        self._check(made, "what came can't be packed")
        return made.stdout

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Return whether `new` is a descendant of `old`."""
        return (await self._git("merge-base", "--is-ancestor", old, new)).ok

    async def is_commit(self, oid: str) -> bool:
        """Return whether the object is a commit, or a tag of one."""
        return (await self._git("rev-parse", "--verify", "--quiet", f"{oid}^{{commit}}")).ok

    async def has(self, oid: str) -> bool:
        """Return whether the object is here, or in the host's repository."""
        return (await self._git("cat-file", "-e", oid)).ok

    async def host_branches(self) -> dict[str, HostBranch]:
        """Return the branches of the host's repository."""
        async with view_of(self._host) as view:
            listed = await run_git(
                view, "for-each-ref", "--format=%(refname)%00%(objectname)", "refs/heads/"
            )
        self._check(listed, "your repository's branches can't be read")
        taken = await asyncio.to_thread(checked_out, self._host.git)
        lines = listed.stdout.decode(errors="replace").split("\n")[:-1]
        found = (line.split("\0") for line in lines)
        return {
            name.removeprefix("refs/heads/"): HostBranch(oid, name in taken) for name, oid in found
        }

    async def names_in_use(self) -> NamesInUse:
        """Return the names that a new branch of the host's repository must not take over."""
        async with view_of(self._host) as view:
            listed = await run_git(view, "for-each-ref", "--format=%(refname)")
        self._check(listed, "your repository's refs can't be read")
        remotes = remotes_in(await config_of(self._host.git)).remotes
        return NamesInUse(listed.stdout.decode(errors="replace").split("\n")[:-1], remotes)

    async def was_taken(self, oid: str) -> bool:
        """Return whether the commit came out of the private copy before."""
        return (await self._git("rev-parse", "--verify", "--quiet", f"refs/taken/{oid}")).ok

    async def changes(self, base: str, new: str) -> list[Changed]:
        """Return the differences of a commit or tree from another."""
        words = ("diff-tree", "-r", "-z", "--no-renames", base, new)
        raw = await self.read(*words, "--raw", limit_bytes=MOST_TREE_BYTES)
        counted = await self.read(*words, "--numstat", "--text", limit_bytes=MOST_TREE_BYTES)
        lines = line_counts(counted)
        return [one.changed(lines) for one in tree_changes(raw)]

    async def commit(
        self, base: str, message: str, author: str, files: Sequence[CommittedFile]
    ) -> str:
        """Commit these files on `base`. Return the commit."""
        stream = commit_stream(_COMMITTED, base, files, message, author)
        made = await self._git(
            "fast-import", "--quiet", "--force", "--date-format=now", stdin=stream
        )
        self._check(made, "the changes can't be committed")
        return (await self.read("rev-parse", "--verify", _COMMITTED)).decode().strip()

    async def keep_job(self, branch: str, oid: str) -> None:
        """Keep a commit as a job's branch, whatever the private copy says."""
        for ref in (f"{_JOBS}{branch}", f"refs/taken/{oid}"):
            self._check(await self._git("update-ref", ref, oid), f"`{branch}` can't be a branch")

    async def job_branches(self) -> dict[str, str]:
        """Return the branches of jobs by name, with their commits."""
        words = ("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", _JOBS)
        listed = (await self.read(*words)).decode().split("\n")[:-1]
        return {name: oid for oid, _, name in (line.partition(" ") for line in listed)}

    async def count_commits(self, oid: str, known: list[str]) -> int:
        """Return how many commits `oid` has that none of the known has."""
        return int(await self.read("rev-list", "--count", oid, "--not", *known))

    async def into_host(self, oid: str, name: str) -> None:
        """Make a commit that was taken in a branch of the host's repository, or move one on.
        `RefusedError` where that is checked out, or would lose commits."""
        branches = await self.host_branches()
        known = list(dict.fromkeys(one.oid for one in branches.values()))
        old = branches.get(name)
        if old is not None and (old.is_checked_out or not await self.is_ancestor(old.oid, oid)):
            raise RefusedError(f"your branch `{name}` isn't one that can move on", "take it again")
        pack = await self.pack([oid], known)
        ref = f"refs/heads/{name}"
        async with writable_ref(self._host, ref) as view:
            self._check(await _stored(view, pack), "git can't store the commits")
            before = "0" * len(oid) if old is None else old.oid
            made = await run_git(view, "update-ref", "--no-deref", ref, oid, before)
            self._check(made, "git can't make the branch")

    async def is_tag_of_tag(self, oid: str) -> bool:
        """Return whether the object is a tag, and what it names is one, too."""
        head = (await self._git("cat-file", "tag", oid)).stdout
        return head.split(b"\n", 2)[1:2] == [b"type tag"]

    async def base_of(self, new: str, url: str) -> str:
        """Return the base of a new ref: its last common commit with the refs of the remote at a
        shown URL, and of no other remote, else the empty tree.
        """
        count = f"--count={MOST_COMPARED}"
        listed = await self._git("for-each-ref", count, "--format=%(objectname)", _place_of(url))
        others = listed.stdout.decode().split()
        found = await self._git("merge-base", "--octopus", new, *others) if others else None
        if found is not None and found.ok:
            return found.stdout.decode().strip()
        return (await self.read("hash-object", "-t", "tree", "/dev/null")).decode().strip()

    async def sizes(self, ids: list[str]) -> dict[str, int]:
        """Return the sizes of objects in bytes."""
        listed = await self._git(
            "cat-file",
            "--batch-check=%(objectname) %(objectsize)",
            stdin="".join(f"{one}\n" for one in ids).encode(),
            limit_bytes=16 * 1024 * 1024,
        )

        def read() -> dict[str, int]:
            pairs = (line.split(" ") for line in listed.stdout.decode().split("\n")[:-1])
            return {one: int(size) for one, size in pairs if size != "missing"}

        return await asyncio.to_thread(read)

    async def read(
        self, *words: str, stdin: bytes | None = None, limit_bytes: int = 1024 * 1024
    ) -> bytes:
        """Return the output of a read-only git command. `RefusedError` where it fails or prints
        more than the limit.
        """
        done = await self._git(*words, stdin=stdin, limit_bytes=limit_bytes)
        if done.truncated:
            raise RefusedError("this push is too large to be shown", "push fewer commits at once")
        self._check(done, "the push can't be shown")
        return done.stdout

    async def _remotely(
        self,
        remote: Remote,
        *words: str,
        stdin: bytes | None = None,
        memory_bytes: int | None = None,
        printed: Printed | None = None,
    ) -> Completed:
        """Run git where it speaks to a remote, with the person's credentials: their own helpers
        first, then a named secret for its host."""
        with contextlib.ExitStack() as opened:
            config, pass_fds = [], []
            if (login := self._login_for(remote.url)) is not None:
                # By a descriptor: arguments and environment can be read by others.
                pass_fds.append(opened.enter_context(_told(*login)))
                # For this host alone: wherever it redirects to, the login doesn't go.
                origin = "/".join(shown_url(remote.url).split("/")[:3])
                config.append(f"credential.{origin}.helper={_HELPER.format(pass_fds[0])}")
            return await self._as_person(
                *words,
                remote=remote,
                config=config,
                stdin=stdin,
                timeout_s=REMOTE_S,
                pass_fds=pass_fds,
                memory_bytes=memory_bytes,
                printed=printed,
            )

    async def _as_person(
        self,
        *words: str,
        remote: Remote,
        config: Sequence[str] = (),
        stdin: bytes | None = None,
        timeout_s: float = LOCAL_S,
        pass_fds: Sequence[int] = (),
        memory_bytes: int | None = None,
        printed: Printed | None = None,
    ) -> Completed:
        return await run_git(
            self._place,
            *words,
            config=config,
            hidden_config=remote.config,
            protocols=(_protocol(remote.url),),
            as_person=True,
            stdin=stdin,
            timeout_s=timeout_s,
            pass_fds=pass_fds,
            memory_bytes=memory_bytes,
            printed=printed,
        )

    async def _git(
        self, *words: str, stdin: bytes | None = None, limit_bytes: int = 1024 * 1024
    ) -> Completed:
        """Run git on the staging repository alone: nobody's configuration. A tree of a few objects
        may have more paths than any memory holds."""
        return await run_git(
            self._place,
            *words,
            stdin=stdin,
            timeout_s=LOCAL_S,
            limit_bytes=limit_bytes,
            memory_bytes=MOST_MEMORY_BYTES,
        )

    def _check(self, done: Completed, problem: str) -> None:
        if done.timed_out:
            raise RefusedError(f"{problem}: it took too long", "try again")
        if done.exit_code != 0:
            said = done.stderr.decode(errors="replace").strip()
            remedy = _FILL if self._is_partial else "see what git says"
            raise RefusedError(f"{problem}: {said[-2000:]}", remedy)


async def _stored(place: GitPlace, pack: bytes) -> Completed:
    """Store a pack whose objects were made by whom we don't know: a small one may hold some that
    are a thousand times as large."""
    words = ("index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects")
    return await run_git(
        place, *words, stdin=pack, timeout_s=LOCAL_S, memory_bytes=MOST_MEMORY_BYTES
    )


@contextlib.contextmanager
def _told(user: str, password: str) -> Iterator[int]:
    """Yield a descriptor that says a login to git, as often as it is read from its start."""
    with tempfile.TemporaryFile() as file:
        file.write(f"username={user}\npassword={password}\n".encode())
        file.flush()
        yield file.fileno()


def _addressed(url: str, keys: Sequence[str]) -> dict[str, str]:
    return {f"remote.{_REMOTE}.{key}": url for key in keys}


def _place_of(url: str) -> str:
    """Return where the refs of the remote at a URL are kept, apart from any other's."""
    return f"refs/remote/{hashlib.sha256(shown_url(url).encode()).hexdigest()[:24]}/"


def _protocol(url: str) -> str:
    try:
        return protocol_of(url)
    except ValueError as error:
        raise RefusedError(str(error), "fetch and push with it yourself") from error


def _quoted(path: Path) -> bytes:
    """Return a line of `objects/info/alternates` (gitrepository-layout(5)): quoted as in C."""
    text = os.fsencode(path).replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
    return b'"' + text + b'"\n'
