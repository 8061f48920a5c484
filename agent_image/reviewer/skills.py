"""What a review looks for, chosen by the changed files: a text per skill.

`skills/NAME.md` begins with `priority:` and `globs:`; the text for the model follows the first
empty line. These skills are only ours: a repository's own come another way.
"""

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).with_name("skills")


class Skill(NamedTuple):
    """One text, and the files that it applies to. Lower priorities come first."""

    name: str
    priority: int
    globs: tuple[str, ...]
    text: str


@cache
def skills() -> tuple[Skill, ...]:
    """Return every skill, by priority."""
    return tuple(sorted(map(_read, _FOLDER.glob("*.md")), key=lambda one: one.priority))


def chosen(files: Iterable[str]) -> list[Skill]:
    """Return the skills for a change of these files."""
    names = list(files)
    return [one for one in skills() if any(_fits(one.globs, name) for name in names)]


def _read(path: Path) -> Skill:
    head, _, text = path.read_text("utf-8").partition("\n\n")
    facts = dict(line.split(": ", 1) for line in head.splitlines())
    globs = tuple(one.strip() for one in facts["globs"].split(","))
    return Skill(path.stem, int(facts["priority"]), globs, " ".join(text.split()))


def _fits(globs: tuple[str, ...], name: str) -> bool:
    return any(_pattern(one).fullmatch(name) for one in globs)


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """Return the expression of a glob: `**/` is any folders or none, `*` anything within one
    name."""
    text = ""
    for part in re.split(r"(\*\*/|\*\*|\*)", glob):
        text += {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}.get(part, re.escape(part))
    return re.compile(text, re.DOTALL)
