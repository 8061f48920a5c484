"""Parser from a git command line to a git action, and its names for rules.

Decides which remote, which refs, and whether something is rewritten or deleted, as git itself would
read the words: long options by their unique beginnings, bundled short ones, `+ref`, `:ref`, `a:b`,
`tag NAME`. It must never treat an unknown option as harmless.

Sources: git-push(1), git-fetch(1), gitcli(7), git-check-ref-format(1).
"""

import posixpath
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import msgspec

from supervisor.core.actions import Git
from supervisor.core.text.display import first_hidden
from supervisor.core.text.ref_names import is_spelled
from supervisor.core.text.words import split_command

type RefKind = Literal["branch", "mapping", "tag", "ref", "unknown"]

READS = frozenset({"fetch", "pull", "ls-remote"})
REACHES = frozenset({"push", *READS})
# Operations whose words after the remote are refs (or, for `clone`, the folder, which is checked
# alike). All others have words.
TAKES_REFS = REACHES | {"clone"}
SYSTEM_FOLDERS = frozenset({"/bin", "/usr/bin", "/usr/local/bin"})
# Options without an effect that matters here, by operation: they are ignored unless a rule names
# them. The same letter may mean something else for another operation (`git push -n` only tries,
# `git commit -n` runs no hooks), so each operation has its own list.
_QUIET = frozenset({"-q", "--quiet"})
_TALK = _QUIET | {
    "-v", "--verbose", "--progress", "--no-progress", "--no-quiet", "--no-verbose", "-4", "--ipv4",
    "-6", "--ipv6",
}  # fmt: skip
_TRANSFER = _TALK | {
    "-n", "--dry-run", "--set-upstream", "--no-set-upstream", "--no-recurse-submodules",
    "--no-force", "--no-tags", "--no-prune",
    "--no-all",
}  # fmt: skip
_HARMLESS = {
    "push": _TRANSFER | {
        "-u", "--porcelain", "--atomic", "--no-atomic", "--thin", "--no-thin", "--no-follow-tags",
        "--no-mirror", "--no-delete", "--verify",
        "--no-signed",
    },
    "fetch": _TRANSFER | {"--porcelain", "--atomic", "--no-atomic"},
    "pull": _TRANSFER | {"--ff-only", "--no-rebase", "--verify"},
    "ls-remote": _QUIET | {"--heads", "--exit-code"},
    "clone": _TALK | {"-n", "--no-checkout", "--no-tags", "--no-recurse-submodules"},
}  # fmt: skip
# Options that rewrite, remove or reach beyond the named refs: only a rule that names such an option
# matches.
FORCES = frozenset({"--force", "--force-with-lease"})
_PUSH_LONG = (
    "--all", "--branches", "--prune", "--mirror", "--dry-run", "--porcelain", "--delete", "--tags",
    "--follow-tags", "--signed",
    "--atomic", "--push-option", "--receive-pack", "--exec", "--force-with-lease", "--force",
    "--force-if-includes", "--repo",
    "--set-upstream", "--thin", "--quiet", "--verbose", "--progress", "--recurse-submodules",
    "--verify", "--ipv4", "--ipv6",
)  # fmt: skip
_SHORT = {
    "f": "--force", "d": "--delete", "u": "-u", "q": "-q", "v": "-v", "n": "-n", "4": "-4",
    "6": "-6", "o": "--push-option",
}  # fmt: skip
_TAKES_WORD = frozenset(
    {"--repo", "--receive-pack", "--exec", "--push-option", "--depth", "--deepen"}
)
# Options of operations that only read the remote: amount, and effects in the private copy.
_COMES = r"-p|--prune|-t|--tags|--unshallow|--(?:depth|deepen)=[0-9]+"
_READ_HARMLESS = {
    "fetch": re.compile(rf"(?:{_COMES})\Z"),
    "pull": re.compile(rf"(?:{_COMES}|-r|--rebase|--autostash|--ff|--no-ff)\Z"),
    "ls-remote": re.compile(r"(?:-t|--tags)\Z"),
}
_DELETES = re.compile(r"\+?:.")
_GLOBAL_HARMLESS = frozenset(
    {"--no-pager", "--paginate", "-p", "-P", "--no-optional-locks", "--literal-pathspecs"}
)
_BLANK = re.compile(r"[\x00-\x20\x7f\s\u2800]")
# Remotes that aren't another machine: their target is run or read here.
RUNS_OR_READS = re.compile(r"(?:ext|fd|file)::?", re.IGNORECASE)
MAX_ROUGH_WORDS = 500
UNREAD = "--gatehouse-unread="


class Ref(msgspec.Struct, frozen=True, gc=False):
    """One ref that a push moves or a fetch gets. `name` is the branch or full ref at the other end,
    empty if it isn't known.

    `text` is the refspec as a rule spells it, without `+`; for a branch under `refs/heads/` the
    bare name.
    """

    kind: RefKind
    name: str
    text: str
    source: str = ""
    force: bool = False
    delete: bool = False


# An action that came with its command is parsed to see whether both agree, so most lines are read
# twice.
@lru_cache(maxsize=256)
def parse_command(command: str, cwd: str = ".") -> Git:
    """Parse a command line to a git action. Never raises: an unreadable part is kept as a flag that
    no rule matches."""
    try:
        words = split_command(command)
    except ValueError as error:
        return _unread(f"the command {error}", command, cwd)
    if not words or not is_git(words[0]):
        return _unread("this is not one git command", command, cwd)
    return from_words(words[1:], command, cwd)


def is_git(word: str) -> bool:
    """Return whether a command's name is git's: `git`, or that name in a system folder."""
    return word == "git" or (
        posixpath.basename(word) == "git" and posixpath.dirname(word) in SYSTEM_FOLDERS
    )


def _unread(why: str, command: str, cwd: str) -> Git:
    return Git(operation="", flags=(f"{UNREAD}{why}",), command=command, cwd=cwd)


def from_words(words: Sequence[str], command: str | None = None, cwd: str = ".") -> Git:
    """Return the git action of the words after `git`."""
    flags: list[str] = []
    at = 0
    while at < len(words) and words[at].startswith("-"):
        if words[at] not in _GLOBAL_HARMLESS:
            # `-c`, `-C`, `--git-dir`, `--exec-path`: another repository, another configuration,
            # other programs.
            return Git(
                operation="",
                flags=(f"{UNREAD}the option `{words[at]}` comes before the operation",),
                command=command,
                cwd=cwd,
            )
        at += 1
    if at >= len(words):
        return Git(
            operation="", flags=(f"{UNREAD}no git operation is named",), command=command, cwd=cwd
        )
    operation, rest = words[at], words[at + 1 :]
    operands: list[str] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        if word == "--":
            operands.extend(rest[at + 1 :])
            break
        if word.startswith("-") and len(word) > 1:
            found, takes = _options(operation, word)
            flags.extend(found)
            if takes and at + 1 < len(rest):
                at += 1
                flags[-1] = f"{flags[-1]}={rest[at]}"
        else:
            operands.append(word)
        at += 1
    return _action(operation, operands, flags, command, cwd)


def _action(
    operation: str, operands: Sequence[str], flags: Sequence[str], command: str | None, cwd: str
) -> Git:
    remote, *refs = operands or [""]
    repo = next((flag.partition("=")[2] for flag in flags if flag.startswith("--repo=")), "")
    names = {flag.partition("=")[0] for flag in flags}
    refspecs = tuple(joined_tags(refs) if operation in TAKES_REFS else refs)
    return Git(
        operation=operation,
        remote=remote or repo or None,
        refspecs=refspecs,
        force=operation == "push"
        and (bool(names & FORCES) or any(ref.startswith("+") for ref in refspecs)),
        delete=operation == "push"
        and (
            "--delete" in names
            or any(ref.startswith((":", "+:")) and len(ref) > 1 for ref in refspecs)
        ),
        flags=tuple(flags),
        command=command,
        cwd=cwd,
    )


def joined_tags(words: Sequence[str]) -> list[str]:
    """Join `tag NAME` into the refspec `refs/tags/NAME:refs/tags/NAME` (git-push(1))."""
    found: list[str] = []
    at = 0
    while at < len(words):
        if words[at] == "tag" and at + 1 < len(words):
            found.append(f"refs/tags/{words[at + 1]}")
            at += 1
        else:
            found.append(words[at])
        at += 1
    return found


def harmless(operation: str) -> frozenset[str]:
    """Return the options that don't affect the verdict; for an operation without a remote, only
    those that reduce output."""
    return _HARMLESS.get(operation, _QUIET)


def _options(operation: str, word: str) -> tuple[list[str], bool]:
    """Return the canonical flags of an option word that aren't harmless, and whether the next word
    is a value of the last."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        if operation == "push":
            name = _full_name(name)
        if name in harmless(operation) and not equals:
            return [], False
        return [f"{name}{equals}{value}"], name in _TAKES_WORD and not equals
    if operation != "push":
        return ([] if word in harmless(operation) else [word]), False
    flags: list[str] = []
    for index, letter in enumerate(word[1:], 1):
        name = _SHORT.get(letter, f"-{letter}")
        if name == "--push-option":
            value = word[index + 1 :]
            return [*flags, f"{name}={value}" if value else name], not value
        if name not in harmless(operation):
            flags.append(name)
    return flags, False


def _full_name(name: str) -> str:
    """Return a long option's full name by its unique beginning, as git's option parser does;
    unchanged if none or several fit."""
    if name in _PUSH_LONG or len(name) < 4:
        return name
    negated = name.startswith("--no-")
    stem = f"--{name[5:]}" if negated else name
    found = [one for one in _PUSH_LONG if one.startswith(stem)]
    if len(found) != 1:
        return name
    return f"--no-{found[0][2:]}" if negated else found[0]


def rough_actions(command: str) -> list[Git]:
    """Return every git operation that an unreadable text might run. Only deny rules use it, so that
    they still apply."""
    found: list[Git] = []
    for piece in re.split(r"[;&|()<>{}`$\r\n]+", command)[:MAX_ROUGH_WORDS]:
        words = re.sub(r"['\"\\]", "", piece).split()[:MAX_ROUGH_WORDS]
        starts = [index for index, word in enumerate(words) if word in REACHES]
        found.extend(from_words(words[start:]) for start in starts[:8])
    return found[:64]


def agrees(action: Git) -> bool:
    """Return whether an action's fields match its command; True without a command."""
    if action.command is None:
        return True
    parsed = parse_command(action.command, action.cwd)
    return parsed == msgspec.structs.replace(action, url="", updates=(), by_exec=False)


def special_flags(action: Git) -> frozenset[str]:
    """Return the canonical options that match only a rule which spells them, including those that
    fields and refspecs imply."""
    found = _said(action) if action.flags else set[str]()
    if action.operation == "push":
        if (action.force or any(ref.startswith("+") for ref in action.refspecs)) and not _names(
            found
        ) & FORCES:
            found.add("--force")
        if action.delete or any(map(_DELETES.match, action.refspecs)):
            found.add("--delete")
    return frozenset(found)


def _said(action: Git) -> set[str]:
    operation, found = action.operation, set[str]()
    for flag in action.flags:
        name, equals, value = flag.partition("=")
        found.update(
            f"{one}{equals}{value}"
            for one in ([name] if name.startswith("--") else _options(operation, name)[0])
        )
    found -= harmless(operation)
    if operation in READS:
        found = {flag for flag in found if not _READ_HARMLESS[operation].match(flag)}
    return {flag for flag in found if not flag.startswith("--repo=")}


def _names(flags: set[str]) -> set[str]:
    return {flag.partition("=")[0] for flag in flags}


def refs_of(action: Git) -> list[Ref]:
    """Return the refs of an action, one by one; an unknown one for a push that names none. An
    operation that takes words has none.

    Raise `ValueError` (a complete reason) if a name is invalid, or a word could be taken for an
    option or for a remote that runs something.
    """
    if action.operation not in TAKES_REFS:
        for word in action.refspecs:
            _check_word(word)
        return []
    if not action.refspecs:
        return [Ref("unknown", "", "")] if action.operation == "push" else []
    return [_ref(text, action) for text in joined_tags(action.refspecs)]


def _check_word(word: str) -> None:
    """Check a word of an operation that takes any words: `git diff a b..c`, `git remote add name
    url`."""
    if word.startswith("-"):
        raise ValueError(f"`{word}` could be taken for an option")
    if RUNS_OR_READS.match(word):
        raise ValueError(f"the remote `{word}` would run a program or read files")
    if first_hidden(word) is not None:
        raise ValueError(f"`{word}` holds a character that nobody sees")


def _ref(text: str, action: Git) -> Ref:
    force = text.startswith("+")
    spec = text.removeprefix("+")
    if spec == ":" or "*" in spec or spec in ("HEAD", "@"):
        # Matching branches, a pattern, or whatever is checked out: the words don't say what moves.
        return Ref("unknown", "", spec, force=force)
    source, colon, target = spec.partition(":")
    if spec.startswith("-") or target.startswith("-"):
        raise ValueError(f"`{text}` could be taken for an option")
    full = target if colon else spec
    name = _branch(full)
    if not is_spelled(full) or first_hidden(spec) is not None:
        raise ValueError(f"`{text}` is not a valid ref")
    if colon and not source:
        return Ref(_kind(name), name, name, force=force, delete=True)
    if colon and _branch(source) != name:
        if source != "HEAD" and _BLANK.search(source):
            raise ValueError(f"`{text}` is not a valid refspec")
        return Ref(
            "mapping", name, f"{_branch(source)}:{name}", source=_branch(source), force=force
        )
    return Ref(_kind(name), name, name, force=force, delete=deletes_names(action))


def deletes_names(action: Git) -> bool:
    """Return whether a ref that is only named is deleted: by `--delete`, not beside `:REF`."""
    if not action.delete or any(
        flag.partition("=")[0] in ("--delete", "-d") for flag in action.flags
    ):
        return action.delete
    return not any(map(_DELETES.match, action.refspecs))


def _branch(ref: str) -> str:
    return ref.removeprefix("refs/heads/")


def _kind(name: str) -> RefKind:
    if name.startswith(("refs/tags/", "tags/")):
        return "tag"
    return "ref" if name.startswith(("refs/", "heads/", "remotes/")) else "branch"
