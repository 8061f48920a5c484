"""Make a repository of ours that shows the host's: its refs, index and objects, none of its rest.

Git is never started on the host's own git folder, whose configuration, hooks and attributes it
would take. A view is a temporary folder with copies of plain, bounded files; the objects and the
index are used where they lie. It must never be kept beyond the block that it was made for.
"""

import asyncio
import contextlib
import os
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from supervisor.base.plain_files import read_small
from supervisor.errors import UserError
from supervisor.git.host_repository import (
    ConfigValues,
    HostRepository,
    borrowed_from,
    config_of,
)
from supervisor.git.run_git import GitPlace, without_attributes

MOST_REF_BYTES = 4096
MOST_REFS = 100_000
MOST_LIST_BYTES = 64 << 20
MOST_INDEX_BYTES = 2 << 30
REFTABLE = ("extensions.refstorage", "reftable")
_NO_HEAD = b"ref: refs/heads/none\n"
# What says how the files are laid out, and nothing else.
_FORMAT_KEYS = frozenset(
    {
        *("core.filemode", "core.symlinks", "core.ignorecase", "core.precomposeunicode"),
        *("core.sharedrepository", "core.sparsecheckout", "core.sparsecheckoutcone"),
        *("extensions.objectformat", "extensions.refstorage"),
    }
)


@contextlib.asynccontextmanager
async def view_of(
    repository: HostRepository, *, refs: bool = True, logs: bool = False
) -> AsyncIterator[GitPlace]:
    """Yield a view, with refs and with their logs where these are asked for. `GatehouseError` where
    the repository holds what git can't be given."""
    values = await config_of(repository.git)
    with tempfile.TemporaryDirectory(prefix="gatehouse-git-", ignore_cleanup_errors=True) as made:
        try:
            view = await asyncio.to_thread(_made, Path(made), repository, values, refs, logs)
        except OSError as error:
            raise UserError(
                f"`{repository.git.common}` can't be read: {error.strerror}",
                "see what your repository's folder holds",
            ) from error
        yield view


@contextlib.asynccontextmanager
async def writable_ref(repository: HostRepository, ref: str) -> AsyncIterator[GitPlace]:
    """Yield a view whose ref, this one alone, is the host's own: what is written is written there.
    `UserError` where something else than files and folders is in its way."""
    if REFTABLE in await config_of(repository.git):
        raise UserError(
            f"the refs of `{repository.top}` are kept as a reftable, which Gatehouse doesn't write",
            "run `git refs migrate --ref-format=files` in it",
        )
    async with view_of(repository) as view:
        common = repository.git.common
        await asyncio.to_thread(_check_way, common, ref)
        for name in ("refs", "packed-refs"):
            await asyncio.to_thread(_replace_by_link, view.folder / name, common / name)
        yield view


def config_lines(key: str, value: str) -> list[str]:
    """Return the lines that set a key in a configuration's file."""
    section, _, rest = key.partition(".")
    subsection, _, name = rest.rpartition(".")
    header = f"[{section} {_quoted(subsection)}]" if subsection else f"[{section}]"
    return [header, f"\t{name} = {_quoted(value)}"]


def _made(
    folder: Path, repository: HostRepository, values: ConfigValues, refs: bool, logs: bool
) -> GitPlace:
    common, here = repository.git.common, repository.git.here
    borrowed_from(common / "objects")
    lines = ["[core]", "\tbare = false", "\trepositoryformatversion = 1"]
    for key, value in values:
        if key in _FORMAT_KEYS:
            lines += config_lines(key, value)
    (folder / "config").write_text("\n".join(lines) + "\n", "utf-8", errors="replace")
    (folder / "HEAD").write_bytes(_small(here / "HEAD", MOST_REF_BYTES) or _NO_HEAD)
    (folder / "objects").mkdir()
    without_attributes(folder)
    for name, source in (("info/exclude", common), ("info/sparse-checkout", here)):
        _copy(source / name, folder / name)
    for name in ("packed-refs", "shallow") if refs else ("shallow",):
        _copy(common / name, folder / name)
    if refs:
        _copy_tree(common / "refs", folder / "refs")
    else:
        (folder / "refs").mkdir()
    if logs:
        _copy_tree(common / "logs", folder / "logs")
    if REFTABLE in values:
        (folder / "reftable").symlink_to(common / "reftable")
    for shared in here.glob("sharedindex.*"):
        _check_is(shared, stat.S_ISREG, MOST_INDEX_BYTES)
        (folder / shared.name).symlink_to(shared)
    index = here / "index"
    _check_is(index, stat.S_ISREG, MOST_INDEX_BYTES)
    return GitPlace(folder, repository.top, common / "objects", index)


def _small(path: Path, most_bytes: int) -> bytes | None:
    try:
        return read_small(path, most_bytes)
    except OSError:
        return None


def _copy(source: Path, target: Path, most_bytes: int = MOST_LIST_BYTES) -> int:
    """Copy a plain file of so many bytes; return how many it has."""
    data = _small(source, most_bytes)
    return 0 if data is None else target.write_bytes(data)


def _copy_tree(source: Path, target: Path) -> None:
    """Copy plain files, as many as `MOST_REFS` and `MOST_LIST_BYTES`, no links."""
    target.mkdir()
    count, size = 0, 0
    for at, folders, files in os.walk(source) if not source.is_symlink() else ():
        into = target / os.path.relpath(at, source)
        count += len(files) + len(folders)
        if count > MOST_REFS:
            raise UserError(f"`{source}` has too many files", "run `git pack-refs --all` in it")
        for name in folders:
            (into / name).mkdir()
        for name in files:
            size += _copy(Path(at) / name, into / name, MOST_LIST_BYTES - size)


def _check_way(common: Path, ref: str) -> None:
    """Git would follow a link out of the repository, and read a device to its end."""
    at = common
    for part in Path(ref).parts:
        _check_is(at, stat.S_ISDIR)
        at /= part
    _check_is(at, stat.S_ISREG, MOST_REF_BYTES)
    _check_is(common / "packed-refs", stat.S_ISREG)


def _check_is(path: Path, kind: Callable[[int], bool], most_bytes: int = MOST_LIST_BYTES) -> None:
    with contextlib.suppress(FileNotFoundError):
        status = path.lstat()
        if not kind(status.st_mode) or (kind is stat.S_ISREG and status.st_size > most_bytes):
            raise UserError(
                f"`{path}` isn't what git makes", "see what your repository's folder holds"
            )


def _replace_by_link(name: Path, target: Path) -> None:
    if name.is_dir():
        name.rename(name.with_name(f"{name.name}-copied"))
    else:
        name.unlink(missing_ok=True)
    name.symlink_to(target)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
