"""Globs over paths: each sign of the language, in linear time."""

import re

import pytest

from supervisor.core.text.globs import (
    MAX_WILDCARDS,
    Glob,
    check,
    escape,
    has_wildcard,
    ignore_step,
    inner_expression,
    steps_fit,
)
from supervisor.errors import PolicyError
from tests.tables import each_row


@each_row(
    ("pattern", "path", "expected"),
    [
        ("src/*", "src/a.py", True),
        ("src/*", "src/a/b.py", False),
        ("src/*", "src", False),
        ("src/*", "src/.env", True),
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "a/b/c.py", True),
        ("src/**", "src", True),
        ("src/**", "src/a/b", True),
        ("src/**", "srcs/a", False),
        ("**", "a/b", True),
        ("a/**/b", "a/b", True),
        ("a/**/b", "a/x/y/b", True),
        ("a/**/b", "a/x/y/c", False),
        ("a/**/b/**/c", "a/b/x/b/c", True),
        ("**/a/**", "x/a", True),
        ("a?c", "abc", True),
        ("a?c", "a/c", False),
        ("a[bc]d", "acd", True),
        ("a[!b]d", "acd", True),
        ("a[!b]d", "abd", False),
        ("a[^b]d", "abd", False),
        ("a[!b]d", "a/d", False),
        ("a[b-d]e", "ace", True),
        # A range that runs backwards matches nothing.
        ("a[d-b]e", "ace", False),
        # Signs that an expression would take for more.
        ("a[.]b", "a.b", True),
        ("a[.]b", "axb", False),
        ("a[]]b", "a]b", True),
        ("a[&&b]", "a&", True),
        ("a.b", "axb", False),
        ("[[]x]", "[x]", True),
        ("[*]", "*", True),
        ("[*]", "a", False),
        ("a*b*c", "a-b-c", True),
        ("a*b*c", "acb", False),
        ("a**b", "axb", True),
        ("**b", "axb", True),
        ("x/a**b?c", "x/azzbxc", True),
        # A bracket that isn't closed is a bracket.
        ("a[b*", "a[bc", True),
    ],
)
def test_each_sign_means_what_the_page_says(pattern: str, path: str, expected: bool) -> None:
    assert Glob(pattern).matches(path) is expected


@pytest.mark.parametrize("path", ["a", "a*b", "a?[b]", "**", "[!x]", "a/[/b", "é\n"])
def test_an_escaped_path_matches_itself_alone(path: str) -> None:
    glob = Glob(escape(path))
    assert glob.literal == path
    assert glob.matches(path)
    assert not glob.matches(f"{path}x")
    assert not has_wildcard(escape(path))


def test_a_glob_knows_its_literal_parts() -> None:
    assert (Glob("a/b/*.py").fixed, Glob("a/b/*.py").last, Glob("a/b/*.py").literal) == (
        ("a", "b"),
        None,
        None,
    )
    assert (Glob("a/[*]").fixed, Glob("a/[*]").literal) == (("a", "*"), "a/*")
    assert has_wildcard("a/?")
    assert not has_wildcard("a/[?]")


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("a**/b", "`**` beside other characters"),
        ("a/b**", "`**` beside other characters"),
        ("a[b", "`[` without `]`"),
        ("a[b]c[d", "`[` without `]`"),
        ("*a" * (MAX_WILDCARDS + 1), f"more than {MAX_WILDCARDS} wildcards"),
    ],
)
def test_what_would_surprise_is_refused_with_a_remedy(pattern: str, said: str) -> None:
    with pytest.raises(PolicyError) as caught:
        check(pattern, f"filesystem({pattern})")
    assert said in caught.value.message
    assert caught.value.remedy


@pytest.mark.parametrize("pattern", ["a/**/b", "[ab]/?", "a[]]", "**", "a/[[]"])
def test_what_is_plain_passes(pattern: str) -> None:
    check(pattern, f"filesystem({pattern})")


def test_an_inner_expression_is_whole_segments() -> None:
    assert inner_expression("a/*/*.py") == "a/[^/]*/[^/]*\\.py"


def test_hostile_patterns_take_no_time_that_grows_with_their_wildcards() -> None:
    assert not Glob("/".join(["**", "a"] * 15 + ["b"])).matches("/".join("a" * 500))
    assert not Glob("*a" * 30 + "b").matches("a" * 4_000)


@pytest.mark.parametrize(
    ("segment", "name", "fits"),
    [
        ("a", "a", True),
        ("a", "A", False),
        ("*.py", "x.py", True),
        ("\\*", "*", True),
        ("\\*", "a", False),
        ("a\\?*", "a?b", True),
        ("[!a]?", "bc", True),
        ("[]a]", "]", True),
        ("*a*a*ab", "a" * 200 + "c", False),
    ],
)
def test_a_segment_as_gits_ignore_files_write_it(segment: str, name: str, fits: bool) -> None:
    assert steps_fit([ignore_step(segment)], [name]) is fits


def test_a_segment_of_an_ignore_file_may_ignore_case_and_be_none() -> None:
    assert steps_fit([ignore_step("Ab", re.IGNORECASE)], ["aB"])
    assert ignore_step("**") is None
    for segment in ("[a", "a\\"):
        with pytest.raises(ValueError, match=re.escape(segment)):
            ignore_step(segment)
