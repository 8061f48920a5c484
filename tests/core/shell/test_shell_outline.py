"""The strict second reader: it reads a small part of bash to the letter, and gives up on all
else by name."""

import pytest

from supervisor.core.shell.shell_outline import GiveUp, outline, redirection_problem, spans
from supervisor.core.shell.shell_words import Word
from tests.tables import each_row


def commands(source: str) -> list[list[str]]:
    return [
        [source[start:end] for start, end in command.words] for command in outline(source).commands
    ]


@each_row(
    ("source", "expected"),
    [
        ("a b; c", [["a", "b"], ["c"]]),
        ("{ if a; then b; fi }", [["a"], ["b"]]),
        ("if a; then { b; } fi", [["a"], ["b"]]),
        ("while a; do { b; } done; c", [["a"], ["b"], ["c"]]),
        ("for x in a \\\n b; do c; done", [["c"]]),
        ("for x in a b\ndo c\ndone", [["c"]]),
        ("(a; b) | c", [["a"], ["b"], ["c"]]),
        ("a &> /dev/null", [["a"]]),
        ("a &>> /dev/null b", [["a", "b"]]),
        ("a 2>&1 >|/dev/null <&- b", [["a", "b"]]),
        ("time -p a", [["time", "-p", "a"]]),
        ("a 5$ $. $", [["a", "5$", "$.", "$"]]),
    ],
)
def test_words_are_read_to_the_letter(source: str, expected: list[list[str]]) -> None:
    assert commands(source) == expected


@each_row(
    ("source", "reason"),
    [
        ('a "`b`"', "a command substitution"),
        ("a `b`", "a command substitution"),
        ("a b(c)", "`(` inside a word"),
        ('a "b', "an unclosed quote"),
        ("for x in a & do b; done", "`for` that can't be read"),
        ("for x in a) b", "`for` that can't be read"),
        ("for x do b; done", "`for` without `in`"),
        ("for PATH in a; do b; done", "`for` with the variable `PATH`"),
        ("for git_dir in a; do b; done", "`for` with the variable `git_dir`"),
        ("fi a", "a word after a compound command"),
        ("(a) b", "a word after a compound command"),
        ("time { a; }", "`time` before a compound command"),
        ("a >", "a redirection without a target"),
        ("a > ;", "a redirection without a target"),
        ("a > f", "a redirection to a file"),
        ("a < /dev/tcp/x/1", "a redirection from a device"),
        ("a <<E\nE", "a here-document whose delimiter isn't plainly quoted"),
        ("a <<'E'", "a here-document without its end"),
        ("a <<'E'\nb", "a here-document without its end"),
        ("a {x}>&1", "a redirection that sets a variable"),
        ("a ;; b", "`case`"),
        ("; a", "an operator without a command"),
        ("a <(b)", "a process substitution"),
    ],
)
def test_what_it_does_not_read_is_named(source: str, reason: str) -> None:
    with pytest.raises(GiveUp) as caught:
        outline(source)
    assert str(caught.value) == reason


@each_row(
    ("operator", "target", "reason"),
    [
        (">&", Word("1"), None),
        ("<&", Word("0-"), None),
        (">&", Word("-"), None),
        (">&", Word("out"), "a redirection to a file"),
        ("<", Word("in"), None),
        ("<", Word("/dev/null"), None),
        ("<", Word("//dev/udp/x/1"), "a redirection from a device"),
        ("<", Word("/proc/self/fd/0"), "a redirection from a device"),
        ("<<<", Word("/dev/tcp/x"), None),
        (">", Word("/dev/null"), None),
        (">", Word("/dev/tcp/x/1"), "a redirection to a file"),
        ("<>", Word("/dev/null"), "a redirection to a file"),
        (">", Word("$x", is_literal=False), "a redirection whose target is expanded"),
    ],
)
def test_a_redirection_only_drops_copies_or_reads(
    operator: str, target: Word, reason: str | None
) -> None:
    assert redirection_problem(operator, target) == reason


def test_spans_are_cut_at_blanks_only() -> None:
    assert spans("[ -f 'a b' ]", 0, 12) == ((0, 1), (2, 4), (5, 10), (11, 12))
