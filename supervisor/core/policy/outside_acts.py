"""Finds pushes, fetches and installs in a command line.

A line that is such an act alone is carried out by its own channel, instead of a tool sandbox, which
has neither credentials nor access to an index. A longer one starts, unless a part of it is denied
(`evaluate`), and each part asks when it comes to it (agent_image/programs). This is no security
boundary: a push that isn't recognised here runs in the tool sandbox, whose walls stop it.
"""

import posixpath
import re
import shlex
from functools import lru_cache
from typing import NamedTuple

from msgspec.structs import replace

from supervisor.core.actions import WORKSPACE, Exec, Git, Packages
from supervisor.core.packages.package_commands import manager_named, managers, parse_command
from supervisor.core.policy import git_refs
from supervisor.core.shell.exec_commands import ExecCommand, ParsedLine
from supervisor.core.shell.exec_rules import LineJudge, Rules
from supervisor.core.shell.exec_tables import program_name
from supervisor.core.shell.shell import Script, parse

# Git operations that reach beyond the private copy and have a channel.
GIT_OPERATIONS = frozenset({"push", "fetch", "pull", "ls-remote"})
# Programs without an effect of their own, and programs that run the command after them: beside
# these, an install is still the only effective command of its line.
_IDLE = frozenset({":", "cat", "echo", "grep", "head", "printf", "pwd", "tail", "true"})
_RUN_ANOTHER = frozenset(
    {"bash", "command", "ionice", "nice", "nohup", "setsid", "sh", "stdbuf", "time", "timeout"}
)
_PYTHON = re.compile(r"python3?(?:\.[0-9]+)?\Z")
_NO_RULES: Rules[int] = Rules([])


class OutsideActs(NamedTuple):
    """The acts of a command line. `acts`: every push, fetch and install in it. `open`: the
    positions of those with an expansion among their words. `alone`: its only act, with its folder,
    if the line does nothing else. `is_whole`: there is no other command but `cd`."""

    acts: tuple[Git | Packages, ...] = ()
    open: frozenset[int] = frozenset()
    alone: Git | Packages | None = None
    is_whole: bool = False


NONE = OutsideActs()


def outside_acts(action: Exec) -> OutsideActs:
    """Return the acts in a command line that git and package rules judge, too. Pure."""
    if not _hint().search(action.command):
        return NONE
    return _read(action.command, action.cwd)


@lru_cache(maxsize=1)
def _hint() -> re.Pattern[str]:
    names = {name for manager in managers().values() for name in manager.names}
    return re.compile("|".join(map(re.escape, sorted({*names, "git"}))))


@lru_cache(maxsize=256)
def _read(text: str, cwd: str) -> OutsideActs:
    judge = LineJudge(text, cwd, _NO_RULES, _NO_RULES, _NO_RULES, (WORKSPACE,))
    script = parse(text)
    judge.line = ParsedLine(script)
    judge.judge()
    acts = [(command, act) for command in judge.found if (act := _act(command, cwd))]
    if not acts:
        return NONE
    found = [act for _, act in acts]
    unspelled = frozenset(at for at, (one, _) in enumerate(acts) if not one.is_spelled_out)
    alone = _alone(judge, script, cwd) if len(found) == 1 else None
    others = [one for one in judge.found if program_name(one.words[0].text) != "cd"]
    return OutsideActs(tuple(found), unspelled, alone, alone is not None and len(others) == 1)


def _act(command: ExecCommand, cwd: str) -> Git | Packages | None:
    """Return the push, fetch or install that a single command is; None if it isn't one."""
    plain, folders = command.plain or (command, [])
    words = [word.text for word in plain.words]
    name = program_name(words[0])
    if name == "git":
        cwd = _folder(cwd, *folders)
        git = git_refs.parse_command(shlex.join(words), cwd)
        return replace(git, by_exec=True) if git.operation in GIT_OPERATIONS else None
    if name is None or not (manager_named(name) or _PYTHON.match(name)):
        return None
    packages = parse_command(shlex.join(words), cwd)
    manager = managers().get(packages.manager)
    is_known = manager is not None and packages.operation in manager.operations
    # Deny rules know what an unreadable one may fetch.
    is_known = is_known or (manager is None and manager_named(name) is not None)
    return replace(packages, by_exec=True) if is_known else None


def _alone(judge: LineJudge[int], script: Script, cwd: str) -> Git | Packages | None:
    """Return the act with the folder that it runs in, if nothing else in its line has an effect."""
    if judge.problems or any(command.in_loop for command in script.commands):
        return None
    folder, act = cwd, None
    for command in judge.found:
        words = command.words
        name = program_name(words[0].text)
        if name == "cd":
            # A folder that leaves the workspace, or has an expansion, is among the problems.
            if act is None and len(words) == 2:
                folder = _folder(folder, words[1].text)
        elif found := _act(command, folder):
            if not (command.is_spelled_out and found.operation) or found.cwd.startswith(".."):
                return None
            act = found
        elif name not in _IDLE and not (name in _RUN_ANOTHER and _is_followed(command)):
            return None
    return act


def _is_followed(command: ExecCommand) -> bool:
    """Return whether the command is only what runs another one, which was found."""
    return command.unwrapped is not None and bool(command.unwrapped.payloads)


def _folder(cwd: str, *words: str) -> str:
    """Return the folder after these changes of folder, relative to the workspace's root."""
    return posixpath.relpath(posixpath.normpath(posixpath.join(WORKSPACE, cwd, *words)), WORKSPACE)
