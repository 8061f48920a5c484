"""Parser from a package command line to a package action.

Decides which manager, which operation, which packages, and whether every option is known as
harmless. The knowledge is data (`data/package_managers.yaml`). It must never take a URL, a path, an
archive, a repository or another package's alias for a package.
"""

import posixpath
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Literal

import msgspec

from supervisor.core.actions import Packages
from supervisor.core.packages.installed_places import HOME
from supervisor.core.text.data_tables import table
from supervisor.core.text.paths import canonical
from supervisor.core.text.words import split_command

SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})
UNREAD = "--gatehouse-unread="
_PYTHON = re.compile(r"python3?(?:\.[0-9]+)?\Z")
_NPM_NAME = r"(?:@[a-zA-Z0-9_~-][a-zA-Z0-9._~-]*/)?[a-zA-Z0-9_~-][a-zA-Z0-9._~-]*"
_PIP_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?(?:\[[A-Za-z0-9,._ -]*\])?"
_GO_NAME = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9-]+)+(?:/[A-Za-z0-9._~+-]+)*"
_VERSION = r"[A-Za-z0-9.*^~<>=|+_ -]+"
_SPECS = {
    "at": re.compile(rf"(?P<name>{_NPM_NAME})(?:@(?P<version>{_VERSION}))?\Z"),
    "pip": re.compile(rf"(?P<name>(?>{_PIP_NAME}))\s*(?P<version>(?:===|[=!<>~]=|[<>])\s*[A-Za-z0-9.*+!_-]+(?:\s*,\s*(?:[=!<>~]=|[<>])\s*[A-Za-z0-9.*+!_-]+)*)?\Z"),  # noqa: E501
    "poetry": re.compile(rf"(?P<name>(?>{_PIP_NAME}))(?:@?(?P<version>{_VERSION}))?\Z"),
    "colon": re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9._-]*)(?::(?P<version>[A-Za-z0-9._-]+))?\Z"),  # noqa: E501
    "go": re.compile(rf"(?P<name>{_GO_NAME})(?:@(?P<version>[A-Za-z0-9._+-]+))?\Z"),
}  # fmt: skip
_ALIAS = re.compile(r"@npm:(@?[^@]+)")
_ORIGIN = re.compile(
    r"://|^(?:git|file|link|portal|patch|npm|workspace|github|gitlab|bitbucket|gist|jsr|http|https|ssh|hg|svn|bzr)[+:]|@(?:git|file|link|npm|workspace|github|gitlab|bitbucket|gist|http|https)[+:]|@\s+\S|^git@"
)
ARCHIVE = re.compile(r"\.(?:tgz|tar|tar\.[a-z0-9]+|zip|whl|gem|crate)\Z", re.IGNORECASE)
_BAD = re.compile(
    "[\x00-\x1f\x7f;&|$`(){}'\"\\\\\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)


class Manager(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One entry of package_managers.yaml; the fields are explained at the top of that file."""

    names: tuple[str, ...]
    operations: dict[str, tuple[str, ...]]
    without: frozenset[str] = frozenset()
    default: str = ""
    harmless: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()
    files: frozenset[str] = frozenset()
    same: dict[str, str] = {}
    versions: Literal["at", "pip", "poetry", "colon"] = "at"
    fold: bool = False


class Item(msgspec.Struct, frozen=True, gc=False):
    """One package, or one file of requirements. `name` as rules compare it; `text` with its
    version; `origin` says where the code comes from if it is neither."""

    text: str
    name: str
    origin: str = ""
    is_file: bool = False


# Operations that take away what is there, by the manager alone.
_REMOVALS = frozenset(
    {("pip", "uninstall"), ("uv", "pip uninstall"), ("cargo", "uninstall"), ("gem", "uninstall")}
)
# Options with which a manager fetches nothing.
LEFT_ALONE = frozenset({"--help", "-h", "--offline", "--no-index"})
# Operations that fetch, too, and that no request carries out; with `*` if a word follows.
_OTHER_FETCHES = {
    "npm": frozenset(
        {"it", "install-test", "cit", "install-ci-test", "clean-install-test", "sit", "audit fix"}
        | {"init *", "innit *", "create *", "link *", "ln *"}
    ),
    "pnpm": frozenset({"dlx", "create"}),
    "yarn": frozenset({"dlx", "create"}),
    "bun": frozenset({"x", "create", "c"}),
    "pip": frozenset({"wheel"}),
    "uv": frozenset({"tool run", "tool upgrade"}),
    "cargo": frozenset({"vendor"}),
}
# The folders of a project that pip takes for its environment, the first that is there; and the
# option that names another one.
ENVIRONMENTS = (".venv", "venv")
OTHER_ENVIRONMENT = "--python"


@cache
def managers() -> dict[str, Manager]:
    """Return every known manager, by its canonical name."""
    return msgspec.convert(table("package_managers"), dict[str, Manager])


@cache
def _by_program() -> dict[str, str]:
    return {program: name for name, manager in managers().items() for program in manager.names}


@cache
def _operation_names() -> dict[str, dict[str, str]]:
    return {
        name: {
            alias: canonical
            for canonical, others in manager.operations.items()
            for alias in (canonical, *others)
        }
        for name, manager in managers().items()
    }


def manager_named(word: str) -> str | None:
    """Return the canonical name of a package manager's program; None if it isn't one."""
    return _by_program().get(word)


def operation_named(manager: str, word: str) -> str | None:
    """Return the canonical name of an operation; None if the table doesn't know it."""
    return _operation_names().get(manager, {}).get(word)


# An action that came with its command is parsed to see whether both agree, so most lines are read
# twice.
@lru_cache(maxsize=256)
def parse_command(command: str, cwd: str = ".") -> Packages:
    """Parse a command line to a package action. Never raises: an unreadable part is kept as a flag
    that is always asked."""
    try:
        words = split_command(command)
    except ValueError as error:
        return _unread(f"the command {error}", command, cwd)
    program = words[0] if words else ""
    folder, name = posixpath.split(program)
    if folder and folder not in SYSTEM_FOLDERS:
        name = ""
    if _PYTHON.match(name) and words[1:2] == ["-m"] and manager_named("".join(words[2:3])) == "pip":
        name, words = "pip", words[2:]
    manager = manager_named(name)
    if manager is None:
        return _unread("this is not the command of a known package manager", command, cwd)
    return _from_words(manager, words[1:], command, cwd)


def _unread(why: str, command: str, cwd: str) -> Packages:
    return Packages(manager="", operation="", flags=(f"{UNREAD}{why}",), command=command, cwd=cwd)


def _from_words(manager: str, words: Sequence[str], command: str, cwd: str) -> Packages:
    table = managers()[manager]
    operation, rest, early = _split_operation(manager, words)
    names: list[str] = []
    flags: list[str] = list(early)
    at = 0
    while at < len(rest):
        word = rest[at]
        if word == "--":
            names.extend(rest[at + 1 :])
            break
        if not word.startswith("-") or word == "-":
            names.append(word)
        elif word in table.files | table.valued and at + 1 < len(rest):
            at += 1
            flags.append(f"{word}={rest[at]}")
        else:
            flags.append(word)
        at += 1
    if manager in ("pnpm", "bun") and names and operation in table.same:
        operation = table.same[operation]
    return Packages(
        manager=manager,
        operation=operation,
        names=tuple(names),
        flags=tuple(flags),
        command=command,
        cwd=cwd,
    )


def _split_operation(manager: str, words: Sequence[str]) -> tuple[str, Sequence[str], list[str]]:
    """Return the operation (canonical if known), the words after it, and the options before it."""
    at = _operation_at(manager, words)
    early: list[str] = []
    for word in words[:at]:
        if _is_option(word):
            early.append(word)
        else:
            early[-1] += f"={word}"
    if at >= len(words):
        return managers()[manager].default, (), early
    pair = " ".join(words[at : at + 2])
    if at + 1 < len(words) and operation_named(manager, pair):
        return pair, words[at + 2 :], early
    return operation_named(manager, words[at]) or words[at], words[at + 1 :], early


def _operation_at(manager: str, words: Sequence[str]) -> int:
    """Return where the operation is: the first that the table knows with only options and their
    values before it (`npm --prefix web install`), else the first word that is no option."""
    plain = next((at for at, word in enumerate(words) if not _is_option(word)), len(words))
    for at, word in enumerate(words):
        if operation_named(manager, word) or operation_named(manager, " ".join(words[at : at + 2])):
            return at
        before = words[at - 1] if at else ""
        if not _is_option(word) and ("=" in before or not _is_option(before)):
            break
    return plain


def _is_option(word: str) -> bool:
    return word.startswith(("-", "+"))  # `cargo +nightly`


def fetches(action: Packages) -> bool:
    """Return whether a manager's command may fetch packages."""
    key = (action.manager, action.operation)
    return operation_named(*key) == key[1] and key not in _REMOVALS and not _is_left_alone(action)


def _is_left_alone(action: Packages) -> bool:
    """Return whether an option keeps the manager from fetching, and isn't the value of another."""
    before = ["=", *action.flags]
    harmless = managers()[action.manager].harmless
    return any(
        flag in LEFT_ALONE and ("=" in one or one in harmless)
        for one, flag in zip(before, action.flags, strict=False)
    )


def fetches_otherwise(action: Packages) -> str:
    """Return the words with which a manager fetches packages by an operation that the table
    doesn't know; empty if it doesn't."""
    verb, first = action.operation, action.names[:1]
    named = (verb, " ".join((verb, *first)), f"{verb} *" if first else "")
    found = _OTHER_FETCHES.get(action.manager, frozenset()).intersection(named)
    return min(found, default="").removesuffix(" *")


def environments(action: Packages) -> tuple[str, ...]:
    """Return the folders, from the action's own on, that pip takes for its environment, the first
    that is there; none where it says that it wants none."""
    if "--user" in action.flags:
        return ()
    named = [flag.partition("=") for flag in action.flags]
    others = [value for name, _, value in named if name == OTHER_ENVIRONMENT and value]
    return tuple(re.sub(r"/bin/python[0-9.]*\Z", "", one) for one in others[-1:]) or ENVIRONMENTS


def rough_actions(command: str) -> list[Packages]:
    """Return every package operation that an unreadable text might run. Only deny rules use it, so
    that they still apply."""
    found: list[Packages] = []
    for piece in re.split(r"[;&|()<>{}`$\r\n]+", command)[:500]:
        words = re.sub(r"['\"\\]", "", piece).split()[:500]
        starts = [
            index for index, word in enumerate(words) if manager_named(posixpath.basename(word))
        ]
        for start in starts[:8]:
            manager = manager_named(posixpath.basename(words[start])) or ""
            found.append(_from_words(manager, words[start + 1 :], command, "."))
    return found[:64]


def agrees(action: Packages) -> bool:
    """Return whether an action's fields match its command; True without a command."""
    if action.command is None:
        return True
    return parse_command(action.command, action.cwd) == msgspec.structs.replace(
        action, by_exec=False, index="", hosts=(), plan=(), notes=(), unknown=(), doubt=""
    )


def risky_flags(action: Packages) -> list[str]:
    """Return the options that aren't known as harmless, as they are shown. The manager must be
    known."""
    table = managers()[action.manager]
    found = []
    for flag in action.flags:
        name = flag.partition("=")[0]
        is_file = name in table.files and "=" in flag
        is_bundle = re.fullmatch(r"-[A-Za-z]{2,4}", flag) and all(
            f"-{letter}" in table.harmless for letter in flag[1:]
        )
        is_save = (
            re.fullmatch(r"--save(?:-[a-z]+)?", flag)
            and table.versions == "at"
            and "--save-dev" in table.harmless
        )
        if not (
            flag in table.harmless
            or (name in table.valued and "=" in flag and not _is_outside(action))
            or is_file
            or is_bundle
            or is_save
        ):
            found.append(flag)
    return found


def _is_outside(action: Packages) -> bool:
    """Return whether an environment that pip is told of lies outside of the workspace."""
    paths = (posixpath.normpath(posixpath.join(action.cwd, one)) for one in environments(action))
    return any(path.startswith(("..", "/")) and not path.startswith(HOME) for path in paths)


def environment_at_home(action: Packages) -> str:
    """Return the environment in the session's home that pip is told of; empty where it is none."""
    if action.manager != "pip":
        return ""
    paths = map(posixpath.normpath, environments(action))
    return next((path for path in paths if path.startswith(HOME)), "")


def items_of(action: Packages) -> list[Item]:
    """Return the packages and files of requirements, one by one. Raise `ValueError` (a complete
    reason) if a word can be neither."""
    table = managers()[action.manager]
    found = [_item(action.manager, table, name) for name in action.names]
    for flag in action.flags:
        name, equals, value = flag.partition("=")
        if equals and name in table.files:
            found.append(_file(_full_file_flag(name), value))
    return found


def _full_file_flag(name: str) -> str:
    return "-c" if name.lstrip("-").startswith("c") else "-r"


def _file(flag: str, value: str) -> Item:
    try:
        path = canonical(value)
    except ValueError:
        return Item(
            f"{flag} {value}",
            value,
            origin=f"`{flag} {value}` is outside of the workspace",
            is_file=True,
        )
    if path.is_odd or "://" in value:
        return Item(
            f"{flag} {value}",
            value,
            origin=f"`{flag} {value}` is not a file of the workspace",
            is_file=True,
        )
    return Item(f"{flag} {path.text}", path.text, is_file=True)


def _item(manager: str, table: Manager, word: str) -> Item:
    shown = word[:100].encode("ascii", "backslashreplace").decode()
    if not word or word.startswith("-") or _BAD.search(word):
        raise ValueError(f"`{shown}` is not the name of a package")
    if _ORIGIN.search(word) or ARCHIVE.search(word):
        # An alias installs the package behind it: that is what deny and ask rules are about.
        alias = _ALIAS.search(word)
        name = alias[1] if alias else word
        return Item(word, _name(table, name), origin=f"`{shown}` says where code comes from")
    if word.startswith((".", "/", "~")):
        return Item(word, word, origin=f"`{shown}` is a path")
    spec = _SPECS["go" if manager == "go" else table.versions].match(word)
    if spec is None:
        return Item(word, word, origin=f"`{shown}` is not a plain package name")
    name = spec["name"]
    return Item(word, _name(table, name), origin="")


def _name(table: Manager, name: str) -> str:
    return fold_name(name.partition("[")[0]) if table.fold else name


def fold_name(name: str) -> str:
    """Return a name in the form of PEP 503: case and runs of `-`, `_` and `.` don't distinguish
    names."""
    return re.sub(r"[-_.]+", "-", name).lower()


def folded_spec(manager: str, text: str) -> str:
    """Return a name with its version as rules compare it: the name is folded if the manager folds
    names."""
    table = managers().get(manager)
    if table is None or not table.fold:
        return text
    found = re.match(r"[A-Za-z0-9._*-]*[A-Za-z0-9*]", text)
    if found is None:
        return text
    return fold_name(found[0]) + re.sub(r"\s+", "", text[found.end() :])
