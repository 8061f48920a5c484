"""Read the change under review from git, running nothing that it configures.

The copy's `.git/config` and attributes belong to the reviewed code, and git runs programs that they
name: file monitors, external diffs, text converters, clean filters, credential helpers, hooks. All
are switched off for each call; filters by name, since git has no switch for them. Each call sees
the copy's git folder through one of our own, in which no attribute counts. Nothing is fetched and
no lock or index is written.
"""

import contextlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from agent_image.reviewer.process import Output, run

_ENVIRONMENT = {
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
}
_SAFE_SETTINGS = (
    # Take attributes from the empty tree, if git is new enough (2.43).
    "attr.tree=4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.quotePath=false",
    "core.untrackedCache=false",
    "diff.external=",
    "protocol.allow=never",
    "submodule.recurse=false",
)
_SAFE_DIFF = (
    *(
        "diff",
        "--no-color",
        # Otherwise an attribute of the code decides how it is shown.
        "--text",
        "--no-ext-diff",
        "--no-textconv",
        "--no-relative",
        "--src-prefix=a/",
        "--dst-prefix=b/",
    ),
    *("--ignore-submodules=dirty", "--submodule=short", "--find-renames"),
)
# Overrides the attributes of a tree in each version of git; `ident` alone would change code.
_NO_ATTRIBUTES = (
    "* !text !eol !crlf !working-tree-encoding !ident !filter !diff !merge !whitespace"
    " !conflict-marker-size\n"
)
_EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
_DRIVER = re.compile(r"^filter\.(.+)\.(?:clean|smudge|process|required)$", re.DOTALL)
_SMALL_BYTES = 1_000_000


class GitError(Exception):
    """Git can't answer. Its text is one line."""


class Change(msgspec.Struct, frozen=True):
    """The change under review. `base` and `head` are commit ids. If `base` is None, there is no
    comparison: review the files."""

    base: str | None
    head: str | None
    files: tuple[str, ...] = ()
    untracked: tuple[str, ...] = ()
    summary: str = "no base to compare with"


class GivenChange(msgspec.Struct, frozen=True):
    """A change that the supervisor gives to a reader without a workspace. `references` are those of
    its files, by path.

    It replaces a `Repository`. Its diff is all that there is to review: of `diff_files`, in this
    order, and perhaps truncated.
    """

    base: str | None
    head: str | None
    files: tuple[str, ...]
    summary: str
    diff_text: str = msgspec.field(name="diff", default="")
    diff_files: tuple[str, ...] = ()
    is_cut: bool = False
    references: dict[str, str] = {}

    def change(self, _base: str) -> Change:
        return Change(self.base, self.head, self.files, (), self.summary)

    def diff(
        self, _change: Change, _paths: list[str], limit_bytes: int, *, since: str = ""
    ) -> Output:
        data = self.diff_text.encode()
        if self.is_cut or len(data) > limit_bytes:
            return Output(None, data[:limit_bytes], "said more and was cut")
        return Output(0, data)

    def diff_names(self, _change: Change, _paths: list[str], *, since: str = "") -> tuple[str, ...]:
        return self.diff_files


class Repository:
    """Read-only git for one folder, which may be no repository (`exists`)."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.exists = (root / ".git").exists() and self._run("rev-parse", "--git-dir").code == 0

    def change(self, base: str) -> Change:
        """Return the change since `base`: a revision, `none`, or `auto`, which finds one. Raise
        `GitError`."""
        if base == "none" or (base == "auto" and not self.exists):
            return Change(None, None)
        if not self.exists:
            raise GitError(
                "the workspace is not a git repository; use --base none to review its files"
            )
        head = self._commit("HEAD")
        start = self._automatic_base(head) if base == "auto" else self._commit(base)
        if start is None:
            raise GitError(
                f"`{base}` is no revision of the workspace's repository; give a branch, tag or"
                " commit"
            )
        names = self._text(*_SAFE_DIFF, "--name-only", "-z", "--end-of-options", start, "--")
        others = self._text("ls-files", "--others", "--exclude-standard", "-z")
        counts = self._text(*_SAFE_DIFF, "--shortstat", "--end-of-options", start, "--").strip()
        return Change(
            start, head, _split(names), _split(others), counts or "no tracked file differs"
        )

    def diff(
        self, change: Change, paths: list[str], limit_bytes: int, *, since: str = ""
    ) -> Output:
        """Return the diff of the working copy against the change's base, or against the commit
        `since`; only of `paths` if any are given."""
        if change.base is None:
            raise GitError("there is no base to compare with; read the files instead")
        start = since or change.base
        return self._run(
            *_SAFE_DIFF, "--end-of-options", start, "--", *paths, limit_bytes=limit_bytes
        )

    def diff_names(self, change: Change, paths: list[str], *, since: str = "") -> tuple[str, ...]:
        """Return the files in the same diff, in its order."""
        assert change.base is not None
        start = since or change.base
        return _split(
            self._text(*_SAFE_DIFF, "--name-only", "-z", "--end-of-options", start, "--", *paths)
        )

    def log(self, since_hours: int, paths: list[str], limit_bytes: int) -> Output:
        """Return the commits of the last hours, newest first, with each one's files."""
        return self._run(
            *("log", "--no-color", "--no-decorate", "--no-show-signature", "--no-ext-diff"),
            *("--date=iso-strict", "--pretty=format:%h %ad %an: %s", "--name-status"),
            *(f"--since={since_hours} hours ago", "--end-of-options", "HEAD", "--", *paths),
            limit_bytes=limit_bytes,
        )

    def diff_range(self, start: str, end: str, paths: list[str], limit_bytes: int) -> Output:
        """Return the diff between two commits. Raise `GitError` where one doesn't exist."""
        ends = [(one, self._commit(one)) for one in (start, end)]
        for name, found in ends:
            if found is None:
                raise GitError(f"`{name}` is no commit that is here; git_log lists some")
        commits = [found for _, found in ends if found is not None]
        return self._run(
            *_SAFE_DIFF, "--end-of-options", *commits, "--", *paths, limit_bytes=limit_bytes
        )

    def _automatic_base(self, head: str | None) -> str | None:
        """Return the base: HEAD for uncommitted changes, else the trunk of the branch, else the
        previous commit."""
        if head is None:
            return _EMPTY_TREE
        if self._run(*_SAFE_DIFF, "--quiet", "--end-of-options", head, "--").code != 0:
            return head
        for trunk in (
            "refs/remotes/origin/HEAD",
            "refs/remotes/origin/main",
            "refs/heads/main",
            "refs/heads/master",
        ):
            found = self._run("merge-base", "--end-of-options", trunk, head)
            base = found.data.decode("ascii", "replace").strip()
            if found.code == 0 and base != head:
                return base
        return self._commit("HEAD~1") or _EMPTY_TREE

    def _commit(self, revision: str) -> str | None:
        found = self._run(
            "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}"
        )
        return found.data.decode("ascii", "replace").strip() if found.code == 0 else None

    def _text(self, *arguments: str) -> str:
        output = self._run(*arguments)
        if output.code != 0:
            first = (
                output.ended or output.data.decode("utf-8", "replace").strip().partition("\n")[0]
            )
            raise GitError(f"git {arguments[0]} failed: {first}")
        return output.data.decode("utf-8", "replace")

    def _run(self, *arguments: str, limit_bytes: int = _SMALL_BYTES) -> Output:
        settings = [
            word for setting in (*_SAFE_SETTINGS, *self._no_filters()) for word in ("-c", setting)
        ]
        return self._git(*settings, *arguments, limit_bytes=limit_bytes)

    def _no_filters(self) -> list[str]:
        """Return settings that switch off each filter driver named in the repository (reading
        settings runs nothing)."""
        named = self._git("config", "--list", "--name-only", "-z")
        names = named.data.decode("utf-8", "surrogateescape").split("\0")
        drivers = {found[1] for name in names if (found := _DRIVER.match(name))}
        if named.ended or any("=" in driver or "\n" in driver for driver in drivers):
            raise GitError(
                "the repository's settings name filters that can't be switched off; use --base none"
            )
        off = (("clean", ""), ("smudge", ""), ("process", ""), ("required", "false"))
        return [
            f"filter.{driver}.{key}={value}" for driver in sorted(drivers) for key, value in off
        ]

    def _git(self, *arguments: str, limit_bytes: int = _SMALL_BYTES) -> Output:
        given = self.root / ".git"
        try:
            with _git_folder(given) as folder:
                argv = [
                    "git",
                    f"--git-dir={folder}",
                    f"--work-tree={self.root}",
                    "--no-pager",
                    "--literal-pathspecs",
                ]
                argv += ["-c", f"safe.directory={self.root}", *arguments]
                env = dict(_ENVIRONMENT)
                if folder != given:
                    env["GIT_OBJECT_DIRECTORY"] = str(given / "objects")
                return run(argv, cwd=self.root, limit_bytes=limit_bytes, env=env)
        except OSError as error:
            raise GitError("git can't be started in the sandbox; use --base none") from error


@contextlib.contextmanager
def _git_folder(given: Path) -> Iterator[Path]:
    """Yield a copy of a git folder without its attributes. An incomplete one, such as a worktree's,
    is yielded itself: a sandbox has none."""
    if not (given / "HEAD").is_file() or (given / "commondir").exists():
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="git-") as name:
        folder = Path(name)
        # HEAD must not be a link.
        (folder / "HEAD").write_bytes((given / "HEAD").read_bytes())
        (folder / "info").mkdir()
        (folder / "info" / "attributes").write_text(_NO_ATTRIBUTES)
        for one in [*given.iterdir(), *(given / "info").glob("*")]:
            place = folder / one.relative_to(given)
            if not place.exists() and one.name != "objects":
                place.symlink_to(one)
        yield folder


def not_shown(output: Output, names: Sequence[str]) -> Sequence[str]:
    """Return the files of a diff that it doesn't show completely, in its order."""
    if output.code == 0:
        return ()
    heads = [line for line in output.data.split(b"\n") if line.startswith(b"diff --git ")]
    # A file that became a link, or was one, has two heads.
    begun = sum(one != before for one, before in zip(heads, [b"", *heads], strict=False))
    return names[max(0, begun - 1) :]


def _split(names: str) -> tuple[str, ...]:
    return tuple(name for name in names.split("\0") if name)
