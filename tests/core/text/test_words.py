"""Words of git and package commands: what a shell would act on is refused, not interpreted."""

import re

import pytest

from supervisor.core.text.words import MAX_CHARS, fits, is_star, split_command, split_pattern
from supervisor.errors import PolicyError
from tests.tables import each_row


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("git push origin x", ["git", "push", "origin", "x"]),
        ("  a \t b ", ["a", "b"]),
        ("a 'b c' \"d e\"f\\ g", ["a", "b c", "d ef g"]),
        ('"a\\"b\\\\c\\d"', ['a"b\\c\\d']),
        ("''", [""]),
        ("", []),
        ("a#b a~b a!b é", ["a#b", "a~b", "a!b", "é"]),
        ("'$x;`'", ["$x;`"]),
    ],
)
def test_words_are_what_a_shell_would_pass(text: str, expected: list[str]) -> None:
    assert split_command(text) == expected


@each_row(
    ("text", "said"),
    [
        ("a; b", "holds `;`"),
        ("a $x", "holds `$`"),
        ('a "$x"', "holds `$`"),
        ('a "`x`"', "holds ```"),
        ("a `x`", "holds ```"),
        ("~/a", "starts with `~`"),
        ("a #b", "starts with `#`"),
        ("!a", "starts with `!`"),
        ("a\nb", "a line break or a hidden character"),
        ("a\u202eb", "a line break or a hidden character"),
        ("a 'b", "a quote that isn't closed"),
        ('a "b', "a quote that isn't closed"),
        ("a\\", "ends in a backslash"),
        ("a" * (MAX_CHARS + 1), "is too long"),
    ],
)
def test_what_a_shell_would_act_on_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        split_command(text)


@pytest.mark.parametrize(
    ("text", "said"), [("", "is empty"), ("  ", "is empty"), ("a; b", "holds `;`")]
)
def test_a_pattern_is_the_words_of_one_command(text: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        split_pattern(text, f"git({text})")
    assert said in caught.value.message
    assert caught.value.remedy


@each_row(
    ("pattern", "word", "expected"),
    [
        ("a", "a", True),
        ("a", "ab", False),
        ("a*", "a", True),
        ("a*", "a/b", True),
        ("*", "a", True),
        # A wildcard never stands for an empty word.
        ("*", "", False),
        ("*a", "ba", True),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "a-c", False),
        ("a**c", "a\nc", True),
        ("*.*", "a.b", True),
        ("a.b", "axb", False),
        ("a*b*c*d", "abbccd", True),
    ],
)
def test_a_star_stays_in_its_word_and_crosses_slashes(
    pattern: str, word: str, expected: bool
) -> None:
    assert fits(pattern, word) is expected


def test_a_word_of_stars_alone_is_a_wildcard() -> None:
    assert is_star("*")
    assert is_star("**")
    assert not is_star("")
    assert not is_star("a*")
