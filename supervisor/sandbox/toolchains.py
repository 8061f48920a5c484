"""Tools of a person's home that a sandbox shows read-only, where the person names them.

A name stands for a version manager's own folders: `nvm`, `pyenv`, `cargo`. A whole path stands for
a folder of programs. It must never show a home, nor a file known to hold a credential.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from supervisor.base import log
from supervisor.core.text.numbers import whole_number
from supervisor.errors import UserError
from supervisor.sandbox.programs import is_too_wide

# Files in which programs keep credentials, by name.
CREDENTIALS = frozenset(
    {".credentials.json", ".git-credentials", ".netrc", ".npmrc", ".pypirc", "auth.json"}
    | {"credentials", "credentials.toml", "id_dsa", "id_ecdsa", "id_ed25519", "id_rsa"}
)
# The beginning of such a name: what google-github-actions/auth writes into a workflow's folder.
CREDENTIALS_BEGIN = "gha-creds-"
# How deep credential files are searched below a folder, and in how many folders at most.
MASK_DEPTH = 4
MOST_FOLDERS = 20_000
MOST_CHECKED_OUT = 200_000


class ShownTools(NamedTuple):
    """`folders` are shown at their own place, except `masked`; `programs` go before the search
    path."""

    folders: tuple[Path, ...] = ()
    masked: tuple[Path, ...] = ()
    programs: tuple[Path, ...] = ()

    def __add__(self, other: "ShownTools") -> "ShownTools":  # type: ignore[override]
        return ShownTools(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def tools_of(names: tuple[str, ...], home: Path) -> ShownTools:
    """Return what is shown for these names and folders. Raise `UserError`, naming what can't be
    shown."""
    found = ShownTools()
    for name in names:
        if name == "gitconfig":  # it once stood for name and e-mail, which are always there now
            continue
        known = MANAGERS.get(name)
        one = known(home) if known else _folder(name, home)
        found += one._replace(masked=tuple(_named_in(one.folders, CREDENTIALS, deepest=MASK_DEPTH)))
    return found


def checkouts_in(folders: tuple[Path, ...]) -> ShownTools:
    """Return what is shown of these checkouts: all but `.git`, where a checkout's token may be, and
    files that keep credentials. INVARIANT: each is looked through whole, or nothing of it is
    shown."""
    found = ShownTools()
    for one in folders:
        try:
            masked = _named_in((one,), CREDENTIALS | {".git"}, most=MOST_CHECKED_OUT)
        except UserError as error:
            log.warning("what was checked out is not shown", why=str(error))
        else:
            found += ShownTools((one,), tuple(masked))
    return found


def _nvm(home: Path) -> ShownTools:
    versions = home / ".nvm/versions/node"
    return _managed("nvm", versions, _first_line(home / ".nvm/alias/default"))


def _pyenv(home: Path) -> ShownTools:
    return _managed("pyenv", home / ".pyenv/versions", _first_line(home / ".pyenv/version"))


def _cargo(home: Path) -> ShownTools:
    toolchains, programs = home / ".rustup/toolchains", home / ".cargo/bin"
    settings = home / ".rustup/settings.toml"
    default = next(
        (
            line.partition("=")[2].strip().strip('"')
            for line in (settings.read_text().splitlines() if settings.is_file() else ())
            if line.startswith("default_toolchain")
        ),
        "",
    )
    shown = _managed("cargo", toolchains, default)
    return shown + ShownTools((programs,), (), (programs,)) if programs.is_dir() else shown


MANAGERS: dict[str, Callable[[Path], ShownTools]] = {"nvm": _nvm, "pyenv": _pyenv, "cargo": _cargo}


def _managed(name: str, versions: Path, default: str) -> ShownTools:
    """Return all versions, with the programs of the default one in front: the version of that name,
    or the newest whose name begins with it."""
    if not versions.is_dir():
        raise UserError(f"there is no {name} in {versions}", "leave it out, or name its folder")
    installed = sorted((one for one in versions.iterdir() if one.is_dir()), key=_by_version)
    fitting = [one for one in installed if one.name.lstrip("v").startswith(default.lstrip("v"))]
    chosen = (fitting or installed)[-1:]
    return ShownTools((versions,), (), tuple(one / "bin" for one in chosen))


def _folder(name: str, home: Path) -> ShownTools:
    folder = Path(name).expanduser()
    if not folder.is_absolute() or not folder.is_dir():
        known = ", ".join(MANAGERS)
        raise UserError(
            f"`{name}` can't be shown to an agent: it is no folder", f"give a folder, or {known}"
        )
    folder = folder.resolve()
    programs = folder if folder.name == "bin" else folder / "bin"
    if is_too_wide(folder, home) or not programs.is_dir():
        raise UserError(
            f"`{name}` can't be shown to an agent: it is no folder of programs",
            "name one that is called `bin`, or that has one in it",
        )
    return ShownTools((folder,), (), (programs,))


def _named_in(
    folders: tuple[Path, ...],
    names: frozenset[str],
    *,
    most: int = MOST_FOLDERS,
    deepest: int | None = None,
) -> list[Path]:
    """Return the files and folders with these names, down to some depth."""
    found, seen = [], 0
    for top in folders:
        depth = len(top.parts)
        for here, below, files in os.walk(top):
            seen += 1
            if seen > most:
                raise UserError(f"`{top}` is too large to be looked through", "name a folder in it")
            found += [
                Path(here, name)
                for name in (*files, *below)
                if name in names or name.startswith(CREDENTIALS_BEGIN)
            ]
            below[:] = [name for name in below if name not in names]
            if deepest is not None and len(Path(here).parts) - depth >= deepest:
                below.clear()
    return found


def _first_line(file: Path) -> str:
    try:
        return file.read_text().partition("\n")[0].strip()
    except OSError:
        return ""


def _by_version(folder: Path) -> list[tuple[int, str]]:
    words = folder.name.lstrip("v").replace("-", ".").split(".")
    numbers = [whole_number(word) for word in words]
    return [(-1 if one is None else one, word) for one, word in zip(numbers, words, strict=True)]
