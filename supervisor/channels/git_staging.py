"""A clean bare repository of our own, which commits leave the private copy through.

    remote --fetch--> staging <--pack-- private copy (git runs in a tool sandbox)
                      staging --push--> remote, with the person's credentials

Only objects come from the private copy, checked as they arrive; never its hooks, filters,
configuration or alternates. What the host's repository has is borrowed, not copied. The person's
configuration, that of the host's repository included, is used where a remote is spoken to.
"""

import contextlib
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from supervisor import settings as environment
from supervisor.base.process import Completed, run
from supervisor.core.git.scoped_commit import TreeChange, commit_stream, tree_changes
from supervisor.core.text.ref_names import RemoteRefs, listed_refs
from supervisor.errors import RefusedError, UserError

LOCAL_S = 60.0
REMOTE_S = 120.0
MOST_PACK_BYTES = 512 * 1024 * 1024
MOST_TREE_BYTES = 16 * 1024 * 1024
_JOBS = "refs/jobs/"
_COMMITTED = "refs/committed"
type LoginFor = Callable[[str], tuple[str, str] | None]
# git-credential(1): a helper prints what it knows.
_HELPER = '!f() {{ test "$1" != get || cat /dev/fd/{}; }}; f'
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]*@")
# Of the configurations that are in force these must not be.
_OWN = (
    "core.bare=true",
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.version=2",  # the first that says which refs are symbolic
    "push.followTags=false",
    "push.recurseSubmodules=no",
    "fetch.recurseSubmodules=no",
    "fetch.writeCommitGraph=false",
    "safe.directory=*",
)


class Remote(NamedTuple):
    """A remote of the host's repository. The URL may hold a password."""

    name: str
    url: str


class HostBranch(NamedTuple):
    """A branch of the host's repository: its commit, and whether a work tree has it checked out."""

    oid: str
    is_checked_out: bool


class Staging:
    """The staging repository in `folder` for one repository of the host's, which `host_folder`
    lies in."""

    def __init__(self, folder: Path, host_folder: Path, login_for: LoginFor) -> None:
        """`login_for(url)` gives user and password of a named secret for a remote, or None."""
        self.folder = folder
        self._login_for = login_for
        self._host_folder = host_folder
        self._host_config: Path | None = None

    async def open(self) -> None:
        """Make it where it isn't there yet. `UserError` where the host has no repository."""
        paths = (word for name in ("config", "objects", "shallow") for word in ("--git-path", name))
        found = await self._on_host(
            "rev-parse", "--show-object-format", "--path-format=absolute", *paths
        )
        if not found.ok:
            raise UserError("the workspace is no git repository", "nothing can be pushed from it")
        said = found.stdout.decode(errors="surrogateescape").splitlines()
        hashes, self._host_config, objects, shallow = said[0], *map(Path, said[1:])
        if not (self.folder / "HEAD").exists():
            made = await self._run(
                *("git", "init", "--bare", "--quiet", f"--object-format={hashes}"), str(self.folder)
            )
            _check(made, "a staging repository can't be made")
            (self.folder / "objects" / "info" / "alternates").write_text(f"{objects}\n")
        if shallow.exists():  # else what the host's clone hasn't would be missing here
            (self.folder / "shallow").write_bytes(shallow.read_bytes())

    async def remote(self, wanted: str | None, *, is_push: bool) -> Remote:
        """Return a remote of the host's repository, by its name or its URL, else the default one.
        `RefusedError` where there is none such."""
        if wanted is None:
            default = await self._on_host("config", "--get", "remote.pushDefault")
            wanted = (default.stdout.decode().strip() if is_push else "") or "origin"
        listed = await self._on_host("remote")
        names = listed.stdout.decode(errors="replace").split()
        for name in names:
            words = ("--push", "--all") if is_push else ()
            found = await self._on_host("remote", "get-url", *words, name)
            urls = found.stdout.decode(errors="replace").splitlines()
            if wanted == name or wanted in map(shown_url, urls):
                if len(urls) != 1:
                    raise RefusedError(f"the remote `{name}` has {len(urls)} URLs", "give it one")
                return Remote(name, urls[0])
        raise RefusedError(
            f"`{wanted[:200]}` is no remote of the host's repository",
            f"name one that is: {', '.join(names) or 'there is none'}",
        )

    async def refs_at(self, url: str) -> RemoteRefs:
        """Return the remote's refs. `RefusedError` where it can't be read."""
        listed = await self.remotely(
            "ls-remote", "--quiet", "--symref", "--end-of-options", url, url=url
        )
        _check(listed, "the remote can't be read")
        try:
            return listed_refs(listed.stdout)
        except ValueError as error:
            raise RefusedError(str(error), "push or fetch it yourself") from error

    async def fetch(self, url: str, refs: list[str]) -> None:
        """Get the objects of these refs of the remote's."""
        if refs:
            got = await self.remotely(
                "fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--refmap=",
                "--end-of-options", url,
                *(f"+{ref}:refs/remote/{ref.removeprefix('refs/')}" for ref in refs),
                url=url,
            )  # fmt: skip
            _check(got, "the remote can't be read")

    async def take_in(self, pack: bytes, tips: list[str], known: list[str]) -> None:
        """Store what came out of the private copy. `RefusedError` where an object of it is broken,
        or one is missing of what the tips need besides what is known."""
        stored = await self._git(
            "index-pack", "--stdin", "--fix-thin", "--strict", "--fsck-objects", stdin=pack
        )
        _check(stored, "the commits didn't pass git's check")
        for oid in tips:
            whole = await self._git("rev-list", "--objects", "--quiet", oid, "--not", *known)
            _check(whole, f"what `{oid[:12]}` needs is not complete")
            await self._git("update-ref", f"refs/taken/{oid}", oid)

    async def pack(self, oids: list[str], known: list[str]) -> bytes:
        """Return a pack of what these reach and the known don't. `RefusedError` where it is too
        large."""
        revisions = "".join(f"{one}\n" for one in [*oids, *(f"^{oid}" for oid in known)])
        made = await self._git(
            *("pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"),
            stdin=revisions.encode(),
            limit_bytes=MOST_PACK_BYTES,
        )
        if made.truncated:
            raise RefusedError("what came is too large for the private copy", "fetch it yourself")
        _check(made, "what came can't be packed")
        return made.stdout

    async def is_ancestor(self, old: str, new: str) -> bool:
        """Return whether `new` was made on top of `old`."""
        return (await self._git("merge-base", "--is-ancestor", old, new)).ok

    async def is_commit(self, oid: str) -> bool:
        """Return whether the object is a commit, or a tag of one."""
        return (await self._git("rev-parse", "--verify", "--quiet", f"{oid}^{{commit}}")).ok

    async def has(self, oid: str) -> bool:
        """Return whether the object is here, or in the host's repository."""
        return (await self._git("cat-file", "-e", oid)).ok

    async def host_branches(self) -> dict[str, HostBranch]:
        """Return the branches of the host's repository."""
        listed = await self._on_host(
            "for-each-ref", "--format=%(refname:lstrip=2)%00%(objectname)%00%(worktreepath)",
            "refs/heads/",
        )  # fmt: skip
        _check(listed, "your repository's branches can't be read")
        lines = listed.stdout.decode(errors="replace").splitlines()
        found = (line.split("\0") for line in lines)
        return {name: HostBranch(oid, bool(where)) for name, oid, where in found}

    async def was_taken(self, oid: str) -> bool:
        """Return whether the commit came out of the private copy before."""
        return (await self._git("rev-parse", "--verify", "--quiet", f"refs/taken/{oid}")).ok

    async def changes(self, base: str, new: str) -> tuple[TreeChange, ...]:
        """Return in what a commit or tree differs from another."""
        words = ("diff-tree", "-r", "-z", "--raw", "--no-renames", base, new)
        return tree_changes(await self.read(*words, limit_bytes=MOST_TREE_BYTES))

    async def commit(self, base: str, message: str, changes: Sequence[TreeChange]) -> str:
        """Commit changes of `base` whose contents were taken in. Return the commit."""
        stream = commit_stream(_COMMITTED, base, changes, message)
        made = await self._git(
            "fast-import", "--quiet", "--force", "--date-format=now", stdin=stream
        )
        _check(made, "the changes can't be committed")
        return (await self.read("rev-parse", "--verify", _COMMITTED)).decode().strip()

    async def keep_job(self, branch: str, oid: str) -> None:
        """Keep a commit as what a job's branch is, whatever the private copy says."""
        for ref in (f"{_JOBS}{branch}", f"refs/taken/{oid}"):
            _check(await self._git("update-ref", ref, oid), f"`{branch}` can't be a branch")

    async def job_branches(self) -> dict[str, str]:
        """Return the branches of jobs by name, with their commits."""
        words = ("for-each-ref", "--format=%(objectname) %(refname:lstrip=2)", _JOBS)
        listed = (await self.read(*words)).decode().splitlines()
        return {name: oid for oid, _, name in (line.partition(" ") for line in listed)}

    async def count_commits(self, oid: str, known: list[str]) -> int:
        """Return how many commits `oid` has that none of the known has."""
        return int(await self.read("rev-list", "--count", oid, "--not", *known))

    async def into_host(self, oid: str, ref: str) -> None:
        """Make a commit that was taken in a branch of the host's repository, or move one on. Git
        refuses what is checked out and what would lose commits."""
        done = await self._on_host(
            *("-c", "core.hooksPath=/dev/null", "-c", "fetch.fsckObjects=true"),
            *("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"),
            *("--refmap=", "--end-of-options", str(self.folder), f"refs/taken/{oid}:{ref}"),
        )
        _check(done, "git can't make the branch")

    async def base_of(self, new: str) -> str:
        """Return what a new ref is compared with: the last commit that it has in common with the
        remote's own refs, else the empty tree."""
        listed = await self._git("for-each-ref", "--format=%(objectname)", "refs/remote/")
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
        pairs = (line.split(" ") for line in listed.stdout.decode().splitlines())
        return {one: int(size) for one, size in pairs if size != "missing"}

    async def read(self, *words: str, limit_bytes: int = 1024 * 1024) -> bytes:
        """Return what a git command that only reads prints. `RefusedError` where that is more than
        the limit, or fails."""
        done = await self._git(*words, limit_bytes=limit_bytes)
        if done.truncated:
            raise RefusedError("this push is too large to be shown", "push fewer commits at once")
        _check(done, "the push can't be shown")
        return done.stdout

    async def remotely(self, *words: str, url: str) -> Completed:
        """Run git with the person's configuration and credentials, where it speaks to a remote:
        their own credential helpers first, then a named secret for its host."""
        config = [f"include.path={self._host_config}", *_OWN]
        with contextlib.ExitStack() as opened:
            pass_fds = []
            if (login := self._login_for(url)) is not None:
                # By a descriptor: arguments and environment can be read by others.
                pass_fds.append(opened.enter_context(_told(*login)))
                # For this host alone: wherever it redirects to, the login doesn't go.
                origin = "/".join(shown_url(url).split("/")[:3])
                config.append(f"credential.{origin}.helper={_HELPER.format(pass_fds[0])}")
            return await self._run(
                "git",
                f"--git-dir={self.folder}",
                *(word for one in config for word in ("-c", one)),
                *words,
                env=environment.for_own_git(),
                timeout_s=REMOTE_S,
                pass_fds=pass_fds,
            )

    async def _git(
        self, *words: str, stdin: bytes | None = None, limit_bytes: int = 1024 * 1024
    ) -> Completed:
        """Run git on the staging repository alone: nobody's configuration."""
        env = environment.inherited("PATH") | {
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "GIT_NO_REPLACE_OBJECTS": "1",
        }
        config = tuple(word for one in _OWN for word in ("-c", one))
        return await self._run(
            "git", f"--git-dir={self.folder}", *config, *words, env=env, stdin=stdin,
            limit_bytes=limit_bytes,
        )  # fmt: skip

    async def _on_host(self, *words: str) -> Completed:
        """Read the host's repository as the person has configured it; no hook of it is run."""
        own = ("-c", "core.fsmonitor=false", "-c", "safe.directory=*")
        return await self._run(
            "git", "-C", str(self._host_folder), *own, *words, env=environment.for_own_git()
        )

    async def _run(
        self,
        *argv: str,
        env: dict[str, str] | None = None,
        stdin: bytes | None = None,
        timeout_s: float = LOCAL_S,
        limit_bytes: int = 1024 * 1024,
        pass_fds: Sequence[int] = (),
    ) -> Completed:
        return await run(
            argv,
            env=environment.inherited("PATH") if env is None else env,
            stdin=stdin,
            timeout_s=timeout_s,
            output_limit_bytes=limit_bytes,
            pass_fds=pass_fds,
        )


@contextlib.contextmanager
def _told(user: str, password: str) -> Iterator[int]:
    """Yield a descriptor that says a login to git, as often as it is read from its start."""
    with tempfile.TemporaryFile() as file:
        file.write(f"username={user}\npassword={password}\n".encode())
        file.flush()
        yield file.fileno()


def shown_url(url: str) -> str:
    """Return a URL without user and password."""
    return _CREDENTIALS.sub("", url)


def _check(done: Completed, problem: str) -> None:
    if done.timed_out:
        raise RefusedError(f"{problem}: it took too long", "try again")
    if done.exit_code != 0:
        said = done.stderr.decode(errors="replace").strip()
        raise RefusedError(f"{problem}: {said[-2000:]}", "see what git says")
