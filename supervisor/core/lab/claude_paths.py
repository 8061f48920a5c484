"""Translate Claude Code's path rules to filesystem rules.

Decides which patterns below the workspace's root mean the same files, or fewer for allow and more
for ask and deny. It is separate from `claude_permissions` because Claude Code's paths are gitignore
patterns with four anchors, and ours are relative to the workspace.

Source: https://code.claude.com/docs/en/permissions ("Read and Edit"), read in November 2026, and
gitignore(5):
    //path          from the root of the file system
    ~/path          from the home folder
    /path           from the folder of the settings
    path, ./path    from the current folder
    A bare name is matched at any depth; `dir/**` at any depth by ask and deny rules, at the top by
    allow rules; all else where it stands. A pattern that matches a folder matches all below it.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from supervisor.core.lab.claude_commands import WHOLE_CATEGORY, NoCounterpartError
from supervisor.core.policy.policy_text import parse_rule
from supervisor.core.text.globs import Glob, escape
from supervisor.errors import PolicyError

_OUTSIDE = "nothing outside of the workspace is ever changed, so no rule is needed"


class SettingsPlace(NamedTuple):
    """Where the settings lie: `root` is the project's folder (absolute), `home` the person's home
    folder, None if it isn't known.

    `is_user`: they are the person's own, for every project.
    """

    root: str | None = None
    home: str | None = None
    is_user: bool = False


def patterns(spec: str, place: SettingsPlace, *, allows: bool) -> tuple[str, ...]:
    """Return the patterns of filesystem rules for `Edit(spec)`. Raise `NoCounterpartError` if there
    are none."""
    found = tuple(dict.fromkeys(_anchored(spec.strip(), place, allows=allows)))
    return tuple(_checked(one, allows=allows) for one in found)


def _checked(pattern: str, *, allows: bool) -> str:
    # For ask and deny, text that isn't a pattern in Claude Code is the path itself.
    literal = "/".join(one if one == "**" else escape(one) for one in pattern.split("/"))
    for candidate in (pattern,) if allows else (pattern, literal):
        try:
            parse_rule(f"filesystem({candidate})", "allow" if allows else "deny")
        except PolicyError as error:
            reason = error.message
        else:
            return candidate
    raise NoCounterpartError(
        f"can't be a pattern here: {reason}", None if allows else WHOLE_CATEGORY
    )


def _anchored(spec: str, place: SettingsPlace, *, allows: bool) -> list[str]:
    if spec.startswith("!"):
        raise NoCounterpartError(
            "takes something out of the rules before it; write it as `except` of a rule"
        )
    is_folder = spec.endswith("/")
    if spec.startswith("//"):
        return _absolute(_segments(spec), place, is_folder=is_folder, allows=allows)
    if spec == "~" or spec.startswith("~/"):
        below_home = [*_home(place, allows=allows), *_segments(spec[1:])]
        return _absolute(below_home, place, is_folder=is_folder, allows=allows)
    if spec.startswith("/") and place.is_user:
        below_settings = [*_home(place, allows=allows), ".claude", *_segments(spec)]
        return _absolute(below_settings, place, is_folder=is_folder, allows=allows)
    segments = _segments(spec)
    if ".." in segments:
        if place.root is None:
            raise _unknown_root(allows=allows)
        climbed = _climbed([*_literal(place.root), *segments])
        return _absolute(climbed, place, is_folder=is_folder, allows=allows)
    if spec.startswith("/"):
        return [_below(segments, is_folder=is_folder, allows=allows)]
    return [_relative(spec, segments, allows=allows)]


def _relative(spec: str, segments: list[str], *, allows: bool) -> str:
    is_folder = spec.endswith("/")
    has_one_name = len(segments) == 1 or (len(segments) == 2 and segments[1] == "**")
    if has_one_name and segments[0] not in ("*", "**"):
        if not allows:
            return f"**/{segments[0]}/**"
        if len(segments) == 1 and not is_folder and not spec.startswith("./"):
            return f"**/{segments[0]}"
    return _below(segments, is_folder=is_folder, allows=allows)


def _below(segments: list[str], *, is_folder: bool, allows: bool) -> str:
    """Return the pattern at its place. For ask and deny, and for a folder, add everything below
    it."""
    if allows and is_folder and segments[-1:] in (["*"], ["**"]):
        # `*/` and `**/` match folders only, not files beside them.
        return "/".join([*segments[:-1], "*", "**"])
    if not segments or segments in (["*"], ["**"]):
        return "**"
    text = "/".join(segments)
    if segments[-1] == "**" or (allows and not is_folder):
        return text
    return f"{text}/**"


def _segments(path: str) -> list[str]:
    return [_segment(one) for one in path.split("/") if one not in ("", ".")]


def _segment(segment: str) -> str:
    """Return a gitignore segment as a segment of our globs: escapes become classes of one
    character, and `**` beside other characters becomes `*`."""
    if segment == "**":
        return segment
    plain = re.sub(r"\\(.)", lambda found: escape(found[1]), segment)
    return re.sub(r"\*{2,}", "*", plain)


def _climbed(segments: Sequence[str]) -> list[str]:
    found: list[str] = []
    for one in segments:
        if one != "..":
            found.append(one)
        elif found:
            found.pop()
    return found


def _home(place: SettingsPlace, *, allows: bool) -> list[str]:
    if place.home is None:
        raise _unknown_root(allows=allows)
    return _literal(place.home)


def _literal(path: str) -> list[str]:
    return [escape(one) for one in path.split("/") if one]


def _unknown_root(*, allows: bool) -> NoCounterpartError:
    reason = (
        "is about a place on this machine, and where the workspace lies isn't known: write it"
        " relative to the workspace"
    )
    return NoCounterpartError(reason, None if allows else WHOLE_CATEGORY)


def _absolute(
    pattern: Sequence[str], place: SettingsPlace, *, is_folder: bool, allows: bool
) -> list[str]:
    """Translate an absolute pattern for the files below the project's folder."""
    if place.root is None:
        is_anywhere = pattern[:1] == ["**"] and (
            len(pattern) == 2 or (len(pattern) == 3 and pattern[2] == "**")
        )
        if not is_anywhere:
            raise _unknown_root(allows=allows)
        rests = [list(pattern)]
    else:
        rests = _rests(tuple(pattern), tuple(one for one in place.root.split("/") if one))
    if not rests:
        raise NoCounterpartError(_OUTSIDE)
    return [_below(rest, is_folder=is_folder, allows=allows) for rest in rests]


def _rests(pattern: Sequence[str], root: Sequence[str]) -> list[list[str]]:
    """Return the rest of the pattern for the paths below the root, once for each way in which its
    beginning matches the root."""
    if not root:
        return [list(pattern)]
    if not pattern:
        # It matches a parent folder, and so everything below that.
        return [["**"]]
    if pattern[0] == "**":
        return [*_rests(pattern[1:], root), *_rests(pattern, root[1:])]
    return _rests(pattern[1:], root[1:]) if Glob(pattern[0]).matches(root[0]) else []
