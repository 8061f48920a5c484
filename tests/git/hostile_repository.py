"""Repositories that would run a program wherever git believes them, and all that we ask of one.

The program is a canary: it leaves a file. Each key of a configuration that names a program, each
hook, driver and address does.
"""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from supervisor.channels.git_staging import Staging
from supervisor.core.actions import RefUpdate
from supervisor.errors import GatehouseError
from supervisor.git.host_repository import repository_at
from supervisor.sessions import workspace_git
from supervisor.workspace.copy import git_copy
from supervisor.workspace.disk import git_files

# Values: `{run}` is the canary, `{folder}` one with it under other names, `{config}` a file with
# all other keys.
KEYS = {
    "core.fsmonitor": "{run}",
    "core.sshCommand": "{run}",
    "core.gitProxy": "{run}",
    "core.askPass": "{run}",
    "core.editor": "{run}",
    "core.pager": "{run}",
    "core.hooksPath": "{folder}",
    "core.alternateRefsCommand": "{run}",
    "core.attributesFile": "{folder}/attributes",
    "core.worktree": "{folder}",
    "credential.helper": "!{run}",
    "diff.external": "{run}",
    "diff.evil.command": "{run}",
    "diff.evil.textconv": "{run}",
    "filter.evil.clean": "{run}",
    "filter.evil.smudge": "{run}",
    "filter.evil.process": "{run}",
    "merge.evil.driver": "{run}",
    "gpg.program": "{run}",
    "gpg.ssh.program": "{run}",
    "gpg.ssh.defaultKeyCommand": "{run}",
    "log.showSignature": "true",
    "push.gpgSign": "true",
    "uploadpack.packObjectsHook": "{run}",
    "remote.origin.uploadpack": "{run}",
    "remote.origin.receivepack": "{run}",
    "remote.origin.vcs": "ext",
    "remote.origin.proxy": "http://127.0.0.1:9",
    "http.proxy": "http://127.0.0.1:9",
    "protocol.ext.allow": "always",
    "protocol.allow": "always",
    "url.ext::{run}.insteadOf": "/",
    "url.ext::{run}.pushInsteadOf": "/",
    "remote.pushDefault": "evil",
    "remote.evil.url": "ext::{run}",
    "remote.evil.promisor": "true",
    "extensions.partialClone": "evil",
    "include.path": "{config}",
    "includeIf.gitdir:/.path": "{config}",
    "alias.ls-files": "!{run}",
    "alias.evil": "!{run}",
    "pager.diff": "{run}",
    "pager.ls-files": "{run}",
    "interactive.diffFilter": "{run}",
    "submodule.sub.update": "!{run}",
    "submodule.recurse": "true",
    "fetch.recurseSubmodules": "true",
    "fetch.bundleURI": "ext::{run}",
    "gc.auto": "1",
    "maintenance.auto": "true",
    "extensions.worktreeConfig": "true",
    "ssh.variant": "simple",
}
HOOKS = (
    "pre-push", "reference-transaction", "pre-auto-gc", "post-checkout", "post-index-change",
    "post-update", "pre-receive", "update", "post-receive", "fsmonitor-watchman", "query-watchman",
    "proc-receive", "push-to-checkout",
)  # fmt: skip
LAYOUTS = ("own", "embedded", "embedded workspace", "around", "nested", "pointer", "submodule")


class Hostile:
    """A workspace in `tmp`, beside a remote, a canary, and the keys that are tried."""

    def __init__(self, tmp: Path, layout: str, keys: tuple[str, ...]) -> None:
        self.tmp = tmp
        self.ran = tmp / "ran"
        self.folder = tmp / "programs"
        self.folder.mkdir()
        (self.folder / "attributes").write_text("* diff=evil filter=evil merge=evil\n")
        for name in ("canary", *HOOKS):
            self._program(self.folder / name)
        self.remote = tmp / "remote.git"
        top = tmp / "project"
        self._git(tmp, "init", "-q", "--bare", "-b", "main", str(self.remote))
        self._git(tmp, "init", "-q", "-b", "main", str(top))
        self._git(top, "remote", "add", "origin", str(self.remote))
        (top / "a.txt").write_text("one\n")
        (top / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
        self._commit(top, "first")
        self.first = self._git(top, "rev-parse", "HEAD")
        self._git(top, "push", "-q", "origin", "main")
        (top / "a.txt").write_text("two\n")
        self._commit(top, "second")
        self.second = self._git(top, "rev-parse", "HEAD")
        self._git(top, "push", "-q", "origin", "main:other")
        self.workspace, self.cwds = top, (".",)
        evil = top / ".git"
        if layout != "own":
            evil = top / "fixtures" / "x"
            self._git(tmp, "clone", "-q", "--bare", str(top), str(evil))
            self.cwds = (".", "fixtures/x", "fixtures/x/refs")
        if layout == "embedded workspace":
            self.workspace, self.cwds = evil, (".", "refs")
        if layout == "around":
            evil = top / ".git"
            (top / "part").mkdir()
            self.workspace, self.cwds = top / "part", (".",)
        if layout == "nested":
            (top / "fixtures" / "y").mkdir()
            evil = evil.rename(top / "fixtures" / "y" / ".git")
            self.cwds = (".", "fixtures/y")
        if layout == "pointer":
            (top / "fixtures" / "y").mkdir()
            (top / "fixtures" / "y" / ".git").write_text("gitdir: ../x\n")
            self._git(evil, "config", "core.worktree", "../y")
            self.cwds = (".", "fixtures/y")
        if layout == "submodule":
            words = ("-c", "protocol.file.allow=always", "submodule", "--quiet", "add")
            self._git(top, *words, str(self.remote), "sub")
            evil = top / ".git" / "modules" / "sub"
            self.cwds = (".", "sub")
        self._poison(evil, keys)
        self.ran.unlink(missing_ok=True)

    def _poison(self, git_dir: Path, keys: tuple[str, ...]) -> None:
        included = self.tmp / "included"
        values = {
            "run": str(self.folder / "canary"),
            "folder": str(self.folder),
            "config": str(included),
        }
        for key in keys:
            words = (key.format(**values), KEYS[key].format(**values))
            subprocess.run(["git", "config", "--file", str(git_dir / "config"), *words], check=True)
            if not key.startswith("include"):
                subprocess.run(["git", "config", "--file", str(included), *words], check=True)
        if included.exists():
            shutil.copy(included, git_dir / "config.worktree")
        for name in HOOKS:
            self._program(git_dir / "hooks" / name)
        (git_dir / "info").mkdir(exist_ok=True)
        (git_dir / "info" / "attributes").write_text("* diff=evil filter=evil merge=evil\n")
        if not keys:
            return
        # One object is missing, which a partial clone would get.
        blob = subprocess.run(
            ["git", f"--git-dir={git_dir}", "hash-object", "--stdin"],
            input=b"two\n", capture_output=True, check=True, env={"PATH": os.environ["PATH"]},
        ).stdout.decode().strip()  # fmt: skip
        (git_dir / "objects" / blob[:2] / blob[2:]).unlink(missing_ok=True)

    def _program(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.ran}'\n")
        path.chmod(0o755)

    def _commit(self, top: Path, message: str) -> None:
        self._git(top, "add", ".")
        self._git(top, "commit", "-q", "-m", message)

    def _git(self, folder: Path, *words: str) -> str:
        identity = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
        done = subprocess.run(
            ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def ran_what(self) -> str:
        """What the canary was called as."""
        return self.ran.read_text() if self.ran.exists() else ""

    async def ask_everything(self) -> int:
        """Do whatever we do with a repository. Return how much of it was possible."""
        count = 0

        @contextlib.contextmanager
        def tried() -> Iterator[None]:
            nonlocal count
            with contextlib.suppress(GatehouseError):
                yield
                count += 1

        with tried():
            await workspace_git.remotes(self.workspace)
        with tried():
            await workspace_git.checked_base(self.workspace, self.first)
        with tried():
            await workspace_git.head(self.workspace)
        with tried():
            await workspace_git.change(self.workspace, self.first, 1 << 20, paths=())
        with tried():
            top = await git_copy.around(self.workspace)
            await git_files.files_of(self.workspace, top)
            await git_files.ignored_of(self.workspace, top)
            await git_files.listed(self.workspace, top)
            await git_files.ignored(self.workspace, ["a.txt", "fixtures/x/"], top)
        for cwd in self.cwds:
            with tried():
                await self._copied(self.workspace / cwd)
            with tried():
                await self._spoken_to(cwd)
        return count

    async def _copied(self, folder: Path) -> None:
        copy = self.tmp / "copy"
        git = await git_copy.find(folder, [])
        if git is not None:
            (copy / ".git").mkdir(parents=True)
            await git_copy.finish(folder, copy)
            await git_files.pack_all(folder, git, copy / ".git" / "objects" / "pack")
            shutil.rmtree(copy)

    async def _spoken_to(self, cwd: str) -> None:
        host = await repository_at(self.workspace, cwd)
        if isinstance(host, str):
            return
        folder = self.tmp / "staging.git"
        staging = Staging(folder, host, self.workspace, lambda url: None)
        try:
            await staging.open()
            branches = await staging.host_branches()
            for name, is_push in ((None, True), ("origin", True), ("origin", False)):
                with contextlib.suppress(GatehouseError):
                    remote = await staging.remote(name, is_push=is_push)
                    there = await staging.refs_at(remote)
                    await staging.fetch(remote, ["refs/heads/main"])
                    new = there.ids.get("refs/heads/other", self.first)
                    await staging.push(remote, [RefUpdate("refs/heads/new", "", new)])
                    await staging.into_host(self.first, f"taken-{len(branches)}")
        finally:
            shutil.rmtree(folder, ignore_errors=True)
