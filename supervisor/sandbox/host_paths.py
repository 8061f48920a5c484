"""Check host paths for a sandbox, and list the places that masks must cover.

A mistake here would show the host's secrets, however strong the isolation is. Every path is
resolved once, before it is judged, and the resolved paths are mounted. It must never guess: a path
that doesn't exist, or that would show the whole machine or a home directory, is an error.
"""

import functools
import os
import pwd
import stat
from pathlib import Path

import msgspec

from supervisor.errors import SandboxError
from supervisor.sandbox.base import HOME, LOWER, Spec
from supervisor.sandbox.session_home import OURS, top_of

# A workspace that is one of these, or a parent of one, would show more than the project.
TOO_WIDE = (
    "/bin",
    "/boot",
    "/dev",
    "/etc",
    "/lib",
    "/proc",
    "/root",
    "/run",
    "/sbin",
    "/sys",
    "/usr",
    "/var",
)
# Below these lie the kernel's own files and other programs' sockets.
NEVER_BELOW = ("/dev", "/proc", "/sys", "/run")
OWN_PLACES = ("/proc", "/dev", "/etc", "/workspace", "/usr", "/sys")


def resolved(spec: Spec) -> Spec:
    """Return `spec` with every host path resolved and judged. Raise SandboxError."""
    spec = msgspec.structs.replace(
        spec,
        workspace_lower=(
            None if spec.workspace_lower is None else _directory(spec.workspace_lower, "workspace")
        ),
        workspace_merged=_directory(spec.workspace_merged, "private copy"),
        masked=tuple(_existing(path, "masked path") for path in spec.masked),
        readonly_binds=tuple(
            (_existing(source, "bind"), _inside(inside)) for source, inside in spec.readonly_binds
        ),
        home=None if spec.home is None else _directory(spec.home, "home"),
        writable_binds=tuple(
            (_directory(source, "kept folder"), _inside(inside))
            for source, inside in spec.writable_binds
        ),
        ca_bundle=None if spec.ca_bundle is None else _existing(spec.ca_bundle, "CA bundle"),
        java_store=None if spec.java_store is None else _existing(spec.java_store, "trust store"),
        git_config=None if spec.git_config is None else _existing(spec.git_config, "gitconfig"),
    )
    _judge_command(spec)
    for path in spec.home_files:
        if not os.path.normpath(f"{HOME}/{path}").startswith(f"{HOME}/"):
            raise SandboxError(f"`{path}` is outside of the home", "name a file below it")
    _judge_home(spec)
    if spec.workspace_lower is not None:
        _judge_workspace(spec.workspace_lower)
        _judge_copy(spec, spec.workspace_lower)
    for source, _ in spec.readonly_binds:
        if str(source) == "/" or _within(source, [Path(path) for path in NEVER_BELOW]):
            raise SandboxError(f"can't show `{source}` to an agent", "bind only what it needs")
    return spec


def covers(
    spec: Spec, sources: tuple[tuple[Path, str], ...] = ((Path("/usr"), "/usr"),)
) -> tuple[tuple[str, bool], ...]:
    """Return, for a resolved spec, each place inside where a masked path would show, and whether it
    is a directory.

    `sources` are the host directories that every sandbox shows, with their places inside.
    """
    lower = () if spec.workspace_lower is None else ((spec.workspace_lower, LOWER),)
    shown = (*sources, *spec.readonly_binds, *lower)
    return tuple(
        (os.path.normpath(f"{inside}/{masked.relative_to(source)}"), masked.is_dir())
        for masked in spec.masked
        for source, inside in shown
        if masked.is_relative_to(source)
    )


def _judge_command(spec: Spec) -> None:
    texts = [*spec.command, *spec.env.values(), spec.cwd, spec.hostname]
    if not spec.command or not spec.command[0]:
        raise SandboxError("no command to run", "name one after `--`")
    if any("\0" in text for text in texts) or any(
        "=" in name or "\0" in name or not name for name in spec.env
    ):
        raise SandboxError(
            "a command or an environment that no program can be given",
            "remove NUL, and `=` from names",
        )
    if spec.command[0].startswith("-"):
        raise SandboxError(
            f"`{spec.command[0]}` is no program's name", "give the program before its options"
        )
    if not spec.cwd.startswith("/"):
        raise SandboxError(
            f"the working directory `{spec.cwd}` isn't absolute", "give a path inside the sandbox"
        )


def _judge_home(spec: Spec) -> None:
    """INVARIANT: in a home on disk, nothing is written or mounted below a name that an agent could
    have made a link of."""
    binds = (*spec.readonly_binds, *spec.writable_binds)
    below = [inside.removeprefix(f"{HOME}/") for _, inside in binds if _is_in_home(inside)]
    for path in (*spec.home_files, *below) if spec.home is not None else ():
        if top_of(os.path.normpath(path)) not in OURS:
            raise SandboxError(
                f"nothing of ours can be at `{path}` in the home", "choose a folder that is ours"
            )


def _is_in_home(inside: str) -> bool:
    return Path(inside).is_relative_to(HOME)


def _judge_workspace(lower: Path) -> None:
    wide = [Path(path) for path in (*TOO_WIDE, *_homes())]
    if any(path.is_relative_to(lower) for path in wide) or _within(
        lower, [Path(path) for path in NEVER_BELOW]
    ):
        raise SandboxError(
            f"`{lower}` as workspace would show far more than a project",
            "choose the project's own folder",
        )


def _judge_copy(spec: Spec, lower: Path) -> None:
    merged = spec.workspace_merged
    for masked in spec.masked:
        # The copy is mounted over its cover; any other shown path must not be covered as a whole.
        if lower.is_relative_to(masked):
            raise SandboxError(
                f"the workspace `{lower}` lies in `{masked}`, which agents never see",
                "choose another data directory",
            )
    if lower.is_relative_to(merged):
        raise SandboxError(
            f"the private copy `{merged}` holds the workspace itself",
            "choose another data directory",
        )
    if merged.is_relative_to(lower) and not _within(merged, list(spec.masked)):
        raise SandboxError(
            f"the private copy `{merged}` lies in the workspace and isn't masked there",
            "mask the data directory",
        )


@functools.cache
def _homes() -> tuple[str, ...]:
    """Return people's home directories: they hold keys and mail, not one project."""
    people = [
        entry for entry in pwd.getpwall() if entry.pw_uid == os.getuid() or entry.pw_uid >= 1000
    ]
    homes = {entry.pw_dir for entry in people if entry.pw_dir.startswith("/")}
    return tuple(sorted(homes - {"/", "/nonexistent"}))


def _within(path: Path, places: list[Path]) -> bool:
    return any(path.is_relative_to(place) for place in places)


def _existing(path: Path, what: str) -> Path:
    try:
        return path.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise SandboxError(
            f"the {what} `{path}` can't be used: {error}", "create it or name another"
        ) from error


def _directory(path: Path, what: str) -> Path:
    found = _existing(path, what)
    if not stat.S_ISDIR(found.stat().st_mode) or not os.access(found, os.R_OK | os.X_OK):
        raise SandboxError(f"the {what} `{path}` isn't a directory that can be read", "name one")
    return found


def _inside(inside: str) -> str:
    clean = os.path.normpath(inside)
    if (
        not inside.startswith("/")
        or clean in ("/", "//")
        or _within(Path(clean), [Path(path) for path in OWN_PLACES])
    ):
        raise SandboxError(f"nothing can be bound at `{inside}`", "choose a place like /opt/NAME")
    return clean
