"""One exec pattern in another, for each pair of effects: what is contained, and each reason why
something only looks as if it were."""

from supervisor.core.shell.exec_containment import (
    allow_in_allow,
    allow_in_strict,
    spelled_words,
    strict_in_strict,
)
from supervisor.core.shell.exec_patterns import compile_pattern
from tests.tables import each_row

ALLOW_IN_ALLOW = [
    ("git log *", "git log", True),
    ("git log *", "git log -3 *", True),
    ("git *", "git log *", True),
    ("cat *", "cat 'a' b", True),
    ("cat *", "cat src/*", True),
    ("rm *", "rm {workspace}", True),
    ("rm {workspace}", "rm {workspace}", True),
    ("env *", "'env' *", True),
    ("python *", "python tool.py *", True),
    ("uv *", "uv sync *", True),
    ("find *", "find . -name x *", True),
    # A bare rule allows nothing, and a name must be spelled alike: `/usr/bin/git` may be another
    # program.
    ("*", "git log", False),
    ("git *", "*", False),
    ("git *", "/opt/git log", False),
    ("gi* log", "git log", False),
    # No room.
    ("git log", "git log *", False),
    ("git log -3 *", "git log *", False),
    ("git log", "git log -3", False),
    ("rm {workspace}", "rm *", False),
    ("rm {workspace}", "rm a {workspace}", False),
    # Other words.
    ("git log *", "git diff *", False),
    ("git * -3", "git * -4", False),
    # What a wildcard may stand for in a command line is only met by the same one.
    ("cat a*", "cat ab*", False),
    ("cat a* *", "cat '*'", False),
    # A word that turns the program into something else is covered by no wildcard.
    ("git *", "git -c a=b log", False),
    ("find *", "find . -delete", False),
    # The payload of a wrapper is judged by itself, and only a rule that spells it speaks of it.
    ("timeout *", "timeout 5 ls", False),
    ("timeout *", "timeout 5 *", False),
    ("timeout *", "timeout * ls *", False),
    ("env *", "env -i *", False),
    ("uv *", "uv run *", False),
    ("find *", "find . -exec rm *", False),
    ("python *", "python -m pytest *", False),
    # A shell that is given nothing reads its input.
    ("bash *", "bash", False),
]


@each_row(("outer", "inner", "expected"), ALLOW_IN_ALLOW)
def test_an_allow_rule_in_an_allow_rule(outer: str, inner: str, expected: bool) -> None:
    assert allow_in_allow(compile_pattern(outer), compile_pattern(inner)) is expected


STRICT_IN_STRICT = [
    ("*", "git log", True),
    ("*", "*", True),
    ("git *", "git push *", True),
    ("git *", "/usr/bin/git push", True),
    ("git push *", "git push", True),
    ("cat a*", "cat ab*", True),
    ("cat a* *", "cat ab c", True),
    ("cat * *", "cat a*b c *", True),
    ("git log", "git log", True),
    ("git *", "*", False),
    ("git *", "hg push", False),
    ("g* push", "git push", False),
    ("git push", "git push *", False),
    ("cat ab*", "cat a*", False),
    ("git push *", "git pull *", False),
    # A rule with an option finds it anywhere among the words, one without looks at their order.
    ("tar x *", "tar x --exclude *", False),
    ("tar x *", "tar x -*", False),
]


@each_row(("outer", "inner", "expected"), STRICT_IN_STRICT)
def test_a_stricter_rule_in_a_stricter_rule(outer: str, inner: str, expected: bool) -> None:
    assert strict_in_strict(compile_pattern(outer), compile_pattern(inner)) is expected


ALLOW_IN_STRICT = [
    ("*", "git log", True),
    ("git *", "git log *", True),
    ("npm *", "npm test", True),
    ("cat a *", "cat a b", True),
    ("cat a", "cat a", True),
    ("git *", "*", False),
    ("git *", "hg log", False),
    ("cat a", "cat a *", False),
    ("cat a", "cat b", False),
    ("cat a* *", "cat ab* *", False),
    ("cat * *", "cat '[ab]' *", False),
    # `npm -C folder test` is judged as `npm test`, and `make -C folder x` as `make x`: a stricter
    # rule compares the words in order.
    ("npm test", "npm test", False),
    ("make x *", "make x", False),
]


@each_row(("outer", "inner", "expected"), ALLOW_IN_STRICT)
def test_an_allow_rule_in_a_stricter_rule(outer: str, inner: str, expected: bool) -> None:
    assert allow_in_strict(compile_pattern(outer), compile_pattern(inner)) is expected


def test_a_pattern_is_found_by_what_it_spells_out() -> None:
    assert spelled_words(compile_pattern("/usr/bin/git log * -3 *")) == [
        ("git", 0, "git"),
        ("git", 1, "log"),
        ("git", 3, "-3"),
    ]
    assert spelled_words(compile_pattern("gi* log")) == []
