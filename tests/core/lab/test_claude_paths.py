"""Claude Code's rules about paths as a policy's: none is widened by it, and nothing is forbidden
less.

The reference here is written from the documentation alone: gitignore for paths.
"""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.core.lab.claude_permissions import SettingsPlace
from tests.core.lab.test_claude_permissions import change, policy, read, reasons, rules
from tests.tables import each_row

PATHS = [
    ("Edit(/src/**)", ["src/**"], ["src/**"]),
    ("Edit(/src/**/*.ts)", ["src/**/*.ts"], ["src/**/*.ts/**"]),
    ("Edit(src/**)", ["src/**"], ["**/src/**"]),
    ("Edit(./src/**)", ["src/**"], ["**/src/**"]),
    ("Edit(src/components/**)", ["src/components/**"], ["src/components/**"]),
    ("Edit(**/src/**)", ["**/src/**"], ["**/src/**"]),
    ("Edit(.env)", ["**/.env"], ["**/.env/**"]),
    ("Edit(./.env)", [".env"], ["**/.env/**"]),
    ("Edit(*.env)", ["**/*.env"], ["**/*.env/**"]),
    ("Edit(docs/a.md)", ["docs/a.md"], ["docs/a.md/**"]),
    ("Edit(build/)", ["build/**"], ["**/build/**"]),
    ("Edit(//home/me/work/build/)", ["build/**"], ["build/**"]),
    ("Edit(a/**/)", ["a/*/**"], ["**/a/**"]),
    ("Edit(*/)", ["*/**"], ["**"]),
    ("Edit(**/)", ["*/**"], ["**"]),
    ("Edit(*)", ["**"], ["**"]),
    ("Edit(**)", ["**"], ["**"]),
    ("Edit(/)", ["**"], ["**"]),
    ("Edit", ["**"], ["**"]),
    ("Edit(a**b/c)", ["a*b/c"], ["a*b/c/**"]),
    (r"Edit(/\[2024\] x/**)", ["[[]2024] x/**"], ["[[]2024] x/**"]),
    ("Edit(./Finance (2024)/**)", ["Finance (2024)/**"], ["**/Finance (2024)/**"]),
    ("Edit(//home/me/work/src/**)", ["src/**"], ["src/**"]),
    ("Edit(//home/me/**)", ["**"], ["**"]),
    ("Edit(//home/*/work/a)", ["a"], ["a/**"]),
    ("Edit(//home/me)", ["**"], ["**"]),
    ("Edit(//**/.env)", ["**/.env"], ["**/.env/**"]),
    (
        "Edit(//**/work/secrets/**)",
        ["secrets/**", "**/work/secrets/**"],
        ["secrets/**", "**/work/secrets/**"],
    ),
    ("Edit(~/work/x)", ["x"], ["x/**"]),
    ("Edit(../work/x)", ["x"], ["x/**"]),
    ("NotebookEdit", ["**/*.ipynb"], ["**/*.ipynb"]),
]


@each_row(("there", "allowed", "denied"), PATHS)
def test_a_rule_about_paths(there: str, allowed: list[str], denied: list[str]) -> None:
    assert rules("allow", there) == [f"filesystem({one})" for one in allowed]
    assert rules("deny", there) == rules("ask", there) == [f"filesystem({one})" for one in denied]


@each_row(
    "there",
    [
        "Edit(//etc/**)",
        "Edit(../../../../etc/x)",
        "Edit(~/.zshrc)",
        "Edit(../other/x)",
        "Edit(//home/you/work/x)",
    ],
)
@each_row("effect", ["allow", "deny"])
def test_outside_of_the_workspace_no_rule_is_needed(effect: str, there: str) -> None:
    assert rules(effect, there) == []
    assert "nothing outside of the workspace is ever changed" in reasons(effect, there)[0]
    assert [one.rule for one in read(allow=["Edit(src/**)"], deny=[there]).rules] == [
        "filesystem(src/**)"
    ]


def test_settings_for_every_project_anchor_in_their_own_folder() -> None:
    own = SettingsPlace(home="/home/me", is_user=True)
    assert rules("deny", "Edit(/secrets/**)", own) == []
    assert rules("deny", "Edit(secrets/**)", own) == ["filesystem(**/secrets/**)"]
    assert "where the workspace lies isn't known" in reasons("deny", "Edit(/secrets/**)", own)[0]
    assert [
        one.rule for one in read(own, allow=["Edit(src/**)"], deny=["Edit(~/x/**)"]).rules
    ] == []


def test_where_nothing_is_known_absolute_paths_are_named() -> None:
    nowhere = SettingsPlace()
    for there in ("Edit(//home/me/work/x)", "Edit(~/x)", "Edit(../x)", "Edit(//**/a/b)"):
        assert rules("allow", there, nowhere) == []
        assert "isn't known" in reasons("deny", there, nowhere)[0]
    assert rules("deny", "Edit(//**/.env)", nowhere) == ["filesystem(**/.env/**)"]


@pytest.mark.parametrize(
    ("there", "why"),
    [
        ("Edit(!docs/**)", "`except` of a rule"),
        ("Edit(replace_all:true)", "a parameter of the tool"),
        ("Write(src/**)", "never looks at paths of Write rules"),
        ("MultiEdit", "no such tool any more"),
        ("Edit(a[b)", "can't be a pattern here"),
    ],
)
def test_a_path_rule_that_isnt_carried_over_says_why(there: str, why: str) -> None:
    assert rules("allow", there) == []
    assert why in reasons("allow", there)[0]


def test_what_says_nothing_there_may_still_forbid_here() -> None:
    assert rules("deny", "Write(src/**)") == ["filesystem(**/src/**)"]
    assert rules("deny", "Edit(a[b)") == ["filesystem(**/a[[]b/**)"]
    assert rules("deny", "Write") == []
    assert rules("allow", "Write") == ["filesystem(**)"]


NAMES = ["a", "b", "src", "x.py", "y.md", "[c]"]
PATTERNS = st.builds(
    lambda start, segments, end: f"{start}{'/'.join(segments)}{end}",
    st.sampled_from(["", "", "./", "/", "//home/me/work/", "//home/me/", "~/", "//**/"]),
    st.lists(
        st.sampled_from(["a", "b", "src", "*", "**", "*.py", "?", "[ab]", "work", r"\[c\]"]),
        min_size=1,
        max_size=3,
    ),
    st.sampled_from(["", "", "/", "/**"]),
)


def gitignored(pattern: str, path: str) -> bool:
    """Whether a pattern matches a file below /home/me/work, by gitignore(5) and the four
    anchors."""
    anchor, depth = "home/me/work/", False
    if pattern.startswith("//"):
        anchor, pattern = "", pattern[2:]
    elif pattern.startswith("~/"):
        anchor, pattern = "home/me/", pattern[2:]
    elif pattern.startswith("/"):
        pattern = pattern[1:]
    else:
        pattern = pattern.removeprefix("./")
        depth = "/" not in pattern.rstrip("/")
    expression = re.escape(anchor) + ("(?:.*/)?" if depth else "") + _expression(pattern.strip("/"))
    # A folder that matches takes all below it along.
    full = f"home/me/work/{path}"
    cuts = [full[:at] for at in range(1, len(full) + 1) if at == len(full) or full[at] == "/"]
    last = cuts[:-1] if pattern.endswith("/") else cuts
    return any(re.fullmatch(expression, cut) for cut in last)


def _expression(pattern: str) -> str:
    parts = []
    for segment in re.sub(r"\*\*(?:/\*\*)+", "**", pattern).split("/"):
        if segment == "**":
            parts.append("**")
            continue
        text = re.sub(r"\\(.)|(\*)|(\?)|(\[[^\]]+\])|(.)", _piece, segment)
        parts.append(text)
    joined = "/".join(parts)
    joined = re.sub(r"(?:\*\*/)+", "(?:[^/]+/)*", joined)
    return re.sub(r"/\*\*\Z|\A\*\*\Z", lambda found: "/.+" if found[0][0] == "/" else ".+", joined)


def _piece(found: re.Match[str]) -> str:
    escaped, star, one, many, other = found.groups()
    return (
        re.escape(escaped or other or "")
        if escaped or other
        else "[^/]*"
        if star
        else "[^/]"
        if one
        else many
    )


@given(
    PATTERNS,
    st.lists(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join),
        min_size=1,
        max_size=6,
    ),
)
def test_paths_are_never_widened_nor_forbidden_less(pattern: str, paths: list[str]) -> None:
    for effect in ("allow", "deny"):
        imported = read(**{effect: [f"Edit({pattern})"]})
        made = policy(imported)
        for path in paths:
            if effect == "allow" and change(made, path) == "allow":
                # `src/**` covers the folder itself too: the documentation says so of
                # `Edit(src/**)`.
                assert gitignored(pattern, path) or gitignored(pattern, f"{path}/x"), path
            if effect == "deny" and gitignored(pattern, path) and imported.rules:
                assert change(made, path) == "deny", path
