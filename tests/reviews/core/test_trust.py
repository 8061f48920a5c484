"""Whose words a review follows."""

import pytest

from supervisor.reviews.core.diffs import ChangedFile
from supervisor.reviews.core.trust import (
    MOST_FOLDERS,
    MOST_GLOBS,
    changed_configuration,
    guidance_paths,
    is_skill,
    skill_text,
    trusted,
)


@pytest.mark.parametrize(
    ("fork", "permission", "revision"),
    [
        (False, "admin", "head"),
        (False, "maintain", "head"),
        (False, "write", "head"),
        (False, "read", "base"),
        (False, "none", "base"),
        (False, "", "base"),
        (True, "write", "base"),
        (True, "admin", "base"),
    ],
)
def test_the_head_is_followed_where_its_author_may_write(fork, permission, revision) -> None:
    assert trusted(fork=fork, permission=permission) == revision


def test_guidance_is_that_of_the_root_and_of_the_folders_above_what_changed() -> None:
    assert guidance_paths(["a/b/c.py", "d.py"]) == [
        "CLAUDE.md",
        "AGENTS.md",
        "a/CLAUDE.md",
        "a/AGENTS.md",
        "a/b/CLAUDE.md",
        "a/b/AGENTS.md",
    ]
    many = guidance_paths([f"{n:03}/x.py" for n in range(50)])
    assert (len(many), many[0]) == (2 * MOST_FOLDERS, "CLAUDE.md")
    # Only the nearest of a deep path's folders are looked at.
    deep = guidance_paths([f"{'d/' * 2000}x.py"])
    assert deep[-1] == f"{'d/' * (MOST_FOLDERS - 1)}AGENTS.md"
    assert len(deep) == 2 * MOST_FOLDERS


def test_what_steers_reviews_is_named_where_it_is_changed() -> None:
    names = [
        (".reviewerc", ".reviewerc"),
        ("docs/AGENTS.md", "docs/AGENTS.md"),
        ("kept.md", "CLAUDE.md"),
        (".claude/skills/x/SKILL.md", ".claude/skills/x/SKILL.md"),
        ("a.py", "a.py"),
    ]
    files = [ChangedFile(new, old, "M", 1, 1, ()) for new, old in names]
    assert changed_configuration(files) == [
        ".claude/skills/x/SKILL.md",
        ".reviewerc",
        "CLAUDE.md",
        "docs/AGENTS.md",
    ]


def test_a_name_that_is_no_utf_8_can_be_told_in_a_receipt() -> None:
    odd = ChangedFile("\udcff/CLAUDE.md", "\udcff/CLAUDE.md", "A", 1, 0, ())
    assert changed_configuration([odd]) == ["\ufffd/CLAUDE.md"]


def test_a_skill_is_one_file_of_a_folder() -> None:
    assert is_skill(".claude/skills/money/SKILL.md")
    assert not is_skill(".claude/skills/money/deep/SKILL.md")
    assert not is_skill(".claude/skills/money/other.md")
    assert not is_skill("docs/.claude/skills/money/SKILL.md")


@pytest.mark.parametrize(
    ("source", "text", "globs"),
    [
        ("Look at money.", "Look at money.", ()),
        ("---\nname: money\n---\nLook.", "Look.", ()),
        ("---\r\nglobs: '*.py', \"src/**\",\r\n---\r\nLook.\n", "Look.", ("*.py", "src/**")),
        (f"---\nglobs: {'x,' * 2000}\n---\nLook.", "Look.", ("x",) * MOST_GLOBS),
        ("---\nname: never ends", "---\nname: never ends", ()),
    ],
)
def test_a_skills_head_is_not_told(source, text, globs) -> None:
    assert skill_text(source) == (text, globs)
