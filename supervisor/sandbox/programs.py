"""Locate the agent's program, and what it needs of the host read-only.

Programs below /usr are in every sandbox. The home is invisible. So for a program in it
(`~/.local/bin/claude`, a node of nvm's), only the program's own folder is shown. It must never show
a whole home folder.
"""

import os
import shutil
from pathlib import Path

from supervisor.errors import UserError

_ALWAYS_THERE = (Path("/usr"), Path("/bin"), Path("/sbin"), Path("/lib"), Path("/lib64"))
# A folder with one of these can be moved as a whole: PREFIX/bin/x with PREFIX/lib beside it.
_PREFIX_MARKS = ("lib", "share", "libexec")
# Entries that only a home has. It may be another person's (sudo), or have another name than HOME (a
# link).
_HOME_MARKS = (".local", ".config", ".ssh", ".gnupg", ".aws", ".bashrc", ".profile", ".cache")


def find_program(
    name: str, search_path: str, home: Path
) -> tuple[str, tuple[tuple[Path, str], ...]]:
    """Return the path to run inside, and the (host path, path inside) pairs to bind read-only.
    Raise `UserError` where there is none."""
    found = shutil.which(name, path=search_path)
    if found is None:
        if "/" in name and not name.startswith("/"):
            return (
                name,
                (),
            )  # a program of the workspace: looked up in the private copy, when it starts
        raise UserError(
            f"`{name}` is not on the PATH", "install it, or give the path of the program"
        )
    path = Path(os.path.abspath(found))  # noqa: PTH100 - the symlink itself matters, so it isn't resolved
    path = _behind_shim(path, search_path)
    if _is_shown(path) and _is_shown(path.resolve()):
        return str(path), ()
    binds = {
        root: str(root)
        for step in _link_chain(path)
        if not _is_shown(step)
        for root in [_install_root(step, home)]
    }
    return str(path), tuple(sorted(binds.items()))


def _behind_shim(path: Path, search_path: str) -> Path:
    """Return the program that a shim of pyenv, rbenv or nodenv would start. A shim is a script that
    starts the manager, which no sandbox shows. The machine-wide choice counts (`ROOT/version`),
    else the next program on the PATH, as with the managers."""
    root = path.parent.parent
    if path.parent.name != "shims" or not (root / "versions").is_dir():
        return path
    try:
        chosen = (root / "version").read_text("utf-8", "replace").split()
    except OSError:
        chosen = []
    for version in chosen:
        program = root / "versions" / version / "bin" / path.name
        if os.access(program, os.X_OK):
            return program
    others = [one for one in search_path.split(os.pathsep) if Path(one) != path.parent]
    found = shutil.which(path.name, path=os.pathsep.join(others))
    if found is None:
        raise UserError(
            f"`{path}` starts the version that {root / 'version'} chooses, and none of those has"
            f" `{path.name}`",
            "choose one that has it, or give the path of the program",
        )
    return _behind_shim(Path(found), os.pathsep.join(others))


def _is_shown(path: Path) -> bool:
    return any(path.is_relative_to(folder) for folder in _ALWAYS_THERE)


def _link_chain(path: Path) -> list[Path]:
    """Return the path and every symlink's target on the way to the real file; at most 40, the
    kernel's own limit."""
    chain = [path]
    while chain[-1].is_symlink() and len(chain) < 40:
        target = chain[-1].parent / chain[-1].readlink()
        chain.append(Path(os.path.normpath(target)))
    return chain


def _install_root(path: Path, home: Path) -> Path:
    """Return the smallest folder with the program and its needs; only the file where that would be
    the home itself."""
    parts = path.parts
    if "node_modules" in parts:
        return Path(*parts[: parts.index("node_modules") + 1])
    prefix = path.parent.parent
    is_prefix = path.parent.name == "bin" and any(
        (prefix / mark).is_dir() for mark in _PREFIX_MARKS
    )
    return prefix if is_prefix and not is_too_wide(prefix, home) else path


def is_too_wide(prefix: Path, home: Path) -> bool:
    """Return whether the folder is a home, a parent of one, or holds data of all of a home's
    programs (`.local/share`: keyrings, too)."""
    real = prefix.resolve()
    if any(
        one.is_relative_to(folder) for one in (home, home.resolve()) for folder in (prefix, real)
    ):
        return True
    names = {prefix.name, real.name}
    is_home = any((real / mark).exists() for mark in _HOME_MARKS)
    return (
        is_home
        or ".local" in names
        or real in (home.resolve() / "bin", Path("/opt"), Path("/"), Path("/home"))
    )
