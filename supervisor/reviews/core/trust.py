"""Trust: the revision at which a pull request's configuration is read.

Pure. A stranger's text is data: their pull request uses the configuration, guidance and skills of
the branch that it would be merged into, and gets no commands. The forge says each time whether its
author may write; a webhook's word never counts.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

from supervisor.reviews.core.diffs import ChangedFile, plain_text

Trust = Literal["head", "base"]

WRITERS = frozenset({"admin", "maintain", "write"})
CONFIGURATION = (".reviewerc", ".code-refinery.yml")
GUIDANCE = ("CLAUDE.md", "AGENTS.md")
SKILLS = ".claude/skills"
# The maximum number of folders whose guidance is used, and of skills that are used; of skills that
# are checked against a change, and of globs of each.
MOST_FOLDERS, MOST_SKILLS = 10, 20
MOST_SKILLS_READ, MOST_GLOBS = 200, 50


def trusted(*, fork: bool, permission: str) -> Trust:
    """Return the commit whose configuration applies: the head if it isn't a fork's and its author
    may write to the repository, else the base."""
    return "head" if not fork and permission in WRITERS else "base"


def guidance_paths(files: Iterable[str]) -> list[str]:
    """Return the paths where guidance for these files may lie: in the root and in each folder above
    them, outermost first."""
    folders = {""}
    for path in files:
        # Parents come before their children: deeper folders are never among the nearest.
        parts = path.split("/", MOST_FOLDERS)[:-1]
        folders.update("/".join(parts[:count]) for count in range(1, len(parts) + 1))
    nearest = sorted(folders, key=lambda one: (one.count("/") + bool(one), one))[:MOST_FOLDERS]
    return [f"{folder}/{name}".lstrip("/") for folder in nearest for name in GUIDANCE]


def is_skill(path: str) -> bool:
    """Return whether a path is one of a repository's own skills."""
    return path.startswith(f"{SKILLS}/") and path.endswith("/SKILL.md") and path.count("/") == 3


def changed_configuration(files: Sequence[ChangedFile]) -> list[str]:
    """Return the files among a pull request's changes that steer reviews, for its receipt."""
    return sorted(
        {
            plain_text(path)
            for one in files
            for path in (one.path, one.old_path)
            if path in CONFIGURATION
            or path.rpartition("/")[2] in GUIDANCE
            or path.startswith(f"{SKILLS}/")
        }
    )


def skill_text(source: str) -> tuple[str, tuple[str, ...]]:
    """Return a skill's text without its head, and the globs of the files that it is for (`globs:`
    in its head, with commas), up to a limit; empty means all files."""
    lines = source.replace("\r\n", "\n").split("\n")
    if lines[0].strip() != "---" or "---" not in [one.strip() for one in lines[1:]]:
        return source.strip(), ()
    end = next(n for n, one in enumerate(lines) if n and one.strip() == "---")
    globs: tuple[str, ...] = ()
    for line in lines[1:end]:
        name, _, value = line.partition(":")
        if name.strip() == "globs":
            said = [one.strip().strip("\"'") for one in value.split(",") if one.strip()]
            globs = tuple(said[:MOST_GLOBS])
    return "\n".join(lines[end + 1 :]).strip(), globs
