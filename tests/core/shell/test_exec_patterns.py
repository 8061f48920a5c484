"""One exec pattern and one command: what a wildcard stands for, what `allow` covers, what `deny`
and `ask` mean."""

import pytest

from supervisor.core.shell.exec_patterns import (
    ExecPattern,
    PatternWord,
    compile_pattern,
    covers,
    might_touch,
    touches,
)
from supervisor.core.shell.shell import parse
from supervisor.core.shell.shell_words import Word
from supervisor.errors import PolicyError
from tests.tables import each_row


def command(text: str) -> tuple[Word, ...]:
    return parse(text).commands[0].words


def is_covered(pattern: str, text: str) -> bool:
    return covers(compile_pattern(pattern), command(text), frozenset())


@each_row(
    ("pattern", "word", "expected"),
    [
        ("a*b*c", "abc", True),
        ("a*b*c", "a/x/b.c", True),
        ("a*b*c*d", "a-b-c-d", True),
        ("a*b*c*d", "a-c-b-d", False),
        ("a*b*c", "ac", False),
        # The middle is found only between the two ends, never inside of them.
        ("ab*b*bc", "abbc", False),
        ("ab*b*bc", "abbbc", True),
        ("a**b", "axb", True),
        ("*x*", "axa", True),
        ("*x*", "aaa", False),
        ("a*a", "a", False),
    ],
)
def test_a_wildcard_in_a_word_stands_for_any_characters(
    pattern: str, word: str, expected: bool
) -> None:
    compiled = compile_pattern(f"run {pattern} end").words[1]
    assert compiled.matches(word) is expected


@each_row(
    ("pattern", "text", "expected"),
    [
        ("cat a", "cat a", True),
        ("cat a", "cat b", False),
        ("cat a", "cat a b", False),
        ("cat a b", "cat a", False),
        ("cat *", "cat", True),
        ("cat * *", "cat", False),
        # A word with an expansion equals no literal, even where they look alike; a wildcard covers
        # it.
        ("cat '$F'", 'cat "$F"', False),
        ("cat *", 'cat "$F"', True),
        ("cat src/*", 'cat "src/$F"', False),
        ("cat src/*", 'cat "$F"', False),
        ("cat src/*.py", 'cat "src/$F"', False),
        # What may become several words is covered by the last `*` alone, or by the very same glob.
        ("cat src/* x", "cat src/$F x", False),
        ("cat src/* x", "cat src/* x", True),
        ("cat src/* x", "cat src/?.py x", False),
        # The name is compared by its basename in the system's folders only.
        ("git log", "/usr/bin/git log", True),
        ("git log", "./git log", False),
        ("git log", "/tmp/git log", False),
        ("./git log", "./git log", True),
        ("g*t log", "git log", True),
        ("g*t log", "./git log", False),
        ("tools/* x", "tools/a x", True),
        ("tools/* x", "tools/../a x", False),
        # A wildcard in the name never becomes a wrapper, which would run what stands behind it.
        ("x* ls", "xargs ls", False),
    ],
)
def test_covering_is_exact_but_for_its_wildcards(pattern: str, text: str, expected: bool) -> None:
    assert is_covered(pattern, text) is expected


def test_a_bare_pattern_covers_as_an_exception_and_never_as_a_rule() -> None:
    bare = compile_pattern("*")
    assert not covers(bare, command("ls"), frozenset())
    assert covers(bare, command("ls"), frozenset(), is_exception=True)
    assert touches(bare, command("ls"))


@each_row(
    ("pattern", "text", "expected"),
    [
        ("rm -rf *", "rm -fr x", True),
        ("rm -rf *", "rm -r -f x", True),
        ("rm -rf *", "rm --recursive x --force", True),
        ("rm -rf *", "rm -R x -f", True),
        ("rm -rf *", "rm -r x", False),
        ("rm -rf *", "/opt/rm -rf x", True),
        ("git push --force *", "git -C x push origin --force", True),
        ("git push --force *", "git push -f origin", True),
        ("git push --force *", "git push origin", False),
        # A wildcard option means every option that it fits, wherever it stands.
        ("tar --checkpoint-action* *", "tar cf x --checkpoint-action=exec=sh y", True),
        ("tar --checkpoint-action* *", "tar cf x y", False),
        # The name may hold a wildcard: other programs aren't meant.
        ("pip* install *", "pip3 install x", True),
        ("pip* install *", "/x/pip3 install x", True),
        ("pip* install *", "npm install x", False),
        # Operands begin with those of the rule; a word behind an option may be that option's value.
        ("cp -r secret *", "cp -r secret x", True),
        ("cp -r secret *", "cp secret -r x", True),
        ("cp -r secret *", "cp -r -t x secret", True),
        ("cp -r secret *", "cp -r other secret", True),
        ("cp -r secret", "cp -r x y", False),
        ("cp -r secret", "cp x -r", False),
        ("cp a -r b", "cp -r x b a", False),
    ],
)
def test_touching_takes_options_in_any_form_and_place(
    pattern: str, text: str, expected: bool
) -> None:
    assert touches(compile_pattern(pattern), command(text)) is expected


@each_row(
    ("pattern", "text", "expected"),
    [
        ("rm x", 'rm "$F"', True),
        ("rm src/x", 'rm "src/$F"', True),
        ("rm src/x", 'rm "lib/$F"', False),
        ("rm src*", 'rm "src/$F"', True),
        ("rm a x", 'rm b "$F"', False),
        ("rm a x", 'rm -v "$F"', True),
        ("rm a x", 'rm "$F"', False),
        ("rm a x", "rm $F", True),
        ("rm a x", "rm a", False),
        ("rm x", 'mv "$F"', False),
    ],
)
def test_an_expansion_might_make_a_command_what_a_rule_means(
    pattern: str, text: str, expected: bool
) -> None:
    assert might_touch(compile_pattern(pattern), command(text)) is expected


@each_row(
    ("text", "said"),
    [
        ("", "without a command"),
        ("a" * 2_001, "2001 characters"),
        ("a\x07", "a control character"),
        ("A=1 b", "starts with an assignment"),
        ("a; b", "holds `;`"),
        ("a b;", "holds `;`"),
        ("a 'b", "holds an unclosed quote"),
        ("a $(b)", "holds a command substitution"),
        ("a $b", "holds the expansion `$b`"),
        ("a {b,c}", "holds a brace expansion"),
    ],
)
def test_what_is_not_the_words_of_one_command_is_refused_with_a_remedy(
    text: str, said: str
) -> None:
    with pytest.raises(PolicyError) as caught:
        compile_pattern(text)
    assert said in caught.value.message
    assert caught.value.remedy


def test_a_rule_behind_its_wrapper_is_a_rule_for_the_payload() -> None:
    pattern = compile_pattern("sudo apt-get *")
    tail = pattern.behind(1)
    assert tail is not None
    assert covers(tail, command("apt-get update"), frozenset())
    assert compile_pattern("sudo *").behind(1) is None
    assert compile_pattern("sudo a* b").behind(1) is None
    assert ExecPattern("x", (PatternWord("x"),), has_tail=False, is_bare=False).is_exact
