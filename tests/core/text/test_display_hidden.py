"""Characters that nobody sees: the same ones everywhere that an agent's text is read, and never
allowed by a rule."""

import unicodedata

import pytest

from supervisor.core.actions import Action, Exec, FileChange, Git
from supervisor.core.packages import package_commands
from supervisor.core.policy import git_refs
from supervisor.core.policy.policy_text import parse_rule
from supervisor.core.text.display import first_hidden, is_hidden
from supervisor.errors import PolicyError
from tests.fakes.ruled import ruled
from tests.tables import each_row

HIDDEN = [
    "\x00", "\x07", "\x1b", "\x7f", "\x85", "\u00ad", "\u034f", "\u0602", "\u061c", "\u115f",
    "\u17b4", "\u180b", "\u180e", "\u200b", "\u200e", "\u2028",
    "\u2029", "\u202e", "\u2060", "\u2066", "\u3164", "\ue000", "\ufeff", "\uffa0", "\ufff9",
    "\ud800", "\u0378", "\U0001d173", "\U000e0001", "\U000e0041",
    "\U000e0101",
]  # fmt: skip
SEEN = [
    "a",
    " ",
    "\u00e9",
    "e\u0301",
    "\u00df",
    "\u65e5",
    "\u0645",
    "\u05d0",
    "\U0001f600",
    "\u2764\ufe0f",
    "\u2013",
    "\u20ac",
]


@each_row("char", HIDDEN, ids=ascii)
def test_no_rule_allows_a_hidden_character_anywhere(char: str) -> None:
    actions: list[tuple[Action, str]] = [
        (Exec(command=f"ls a{char}b"), "exec(ls *)"),
        (FileChange(operation="write", path=f"a{char}b"), "filesystem(**)"),
        (FileChange(operation="rename", path="a", to=f"a{char}b"), "filesystem(**)"),
        (git_refs.parse_command(f"git push origin feature/a{char}b"), "git(push origin feature/*)"),
        (
            Git(operation="push", remote="origin", refspecs=(f"feature/a{char}b",)),
            "git(push origin feature/*)",
        ),
        (
            Git(operation="push", remote="origin", refspecs=(f"a{char}:feature/b",)),
            "git(push origin *:feature/*)",
        ),
        (package_commands.parse_command(f"npm install zod{char}"), "packages(npm:zod*)"),
    ]
    for action, rule in actions:
        assert ruled(action, allow=[rule]).decision != "allow", action
    with pytest.raises(PolicyError, match="hidden character"):
        parse_rule(f"filesystem(a{char}b)")


@each_row("text", SEEN, ids=ascii)
def test_letters_and_signs_of_every_script_are_not_hidden(text: str) -> None:
    assert first_hidden(text) is None
    assert (
        ruled(FileChange(operation="write", path=f"a{text}b"), allow=["filesystem(**)"]).decision
        == "allow"
    )


def test_every_control_and_format_character_of_unicode_is_hidden() -> None:
    every = (chr(point) for point in range(0x80, 0x110000))
    assert all(
        is_hidden(char)
        for char in every
        if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp", "Cs")
    )


def test_what_is_kept_is_passed_over_and_the_first_other_is_named() -> None:
    assert first_hidden("a\tb\nc", kept="\t\n") is None
    assert first_hidden("a\tb\nc", kept="\t") == "\n"
    assert first_hidden("a\tb") == "\t"
    assert first_hidden("\u00e9\u200b\u202e") == "\u200b"
    # A control character is found before one beyond ASCII.
    assert first_hidden("\u200b\x1b") == "\x1b"
