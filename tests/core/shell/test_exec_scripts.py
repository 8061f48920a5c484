"""sed and awk programs: plain is only what is known to read and print, and read to its end."""

import random
import subprocess

import pytest

from supervisor.core.shell.exec_scripts import is_plain_awk, is_plain_sed, script_words
from supervisor.core.shell.shell import parse
from tests.tables import each_row


@each_row(
    "text",
    [
        "", "p", "1p", "1,5p", "$d", "/a/d", "/a/,/b/p", "1~2d", "2,+3p", "1!d", "s/a/b/",
        "s/a/b/gI", "s|a|b|2", "s/a\\/b/c/", "y/ab/cd/",
        "p;p", "/a/{p;d}", "{ p; }", "{\n\tp\n}", "/x/ { ; n; d }", "1q", "q0", "s/[a-z]/x/",
        " p ; d ", "/[[:alpha:]_]/p", "/[]a]/p", "/[^]a]/d", "s:[a]:x:", "y/[a]/xyz/",
    ],
)  # fmt: skip
def test_sed_scripts_that_print_are_plain(text: str) -> None:
    assert is_plain_sed(text)


@each_row(
    "text",
    [
        "e", "1e id", "w out", "r in", "s/a/b/e", "s/a/b/w out", "s/a/b/ge", "s/a/b/;e", "W x",
        "i\\\ntext", "p w", "s/a", "s/a/b", "s", "s\n",
        "saxbxc", "s\\a\\b\\", "sé", "s/[/]/x/e", "s/[/]/x/", "y/a", "pp e", "}e", "b x;e", ":a",
        "=e", "s/a\nb/c/", "F x",
        "/[/]e id/p", "/[]/]/p", "/[^/]/p", "/[a\\]/p", "/[a/p", "s:[:alpha:]:x:", "s^[^a]^x^",
        "s[a[b[", "s]a]b]", "/\\ca/p", "s/a/\\cb/",
    ],
)  # fmt: skip
def test_sed_scripts_that_may_run_or_write_are_not_plain(text: str) -> None:
    assert not is_plain_sed(text)


@pytest.mark.parametrize(
    "text",
    ["{print $1}", "NR==1", "$3 >= 5 || $4", "{printf \"%s\\n\", substr($1, 2)}",
     "/a/ {n++} END {print n}", "{ if (length($0) < 9) print }"],
)  # fmt: skip
def test_awk_programs_that_print_are_plain(text: str) -> None:
    assert is_plain_awk(text)


@each_row(
    "text",
    ['BEGIN{system("id")}', '{print > "f"}', '{print | "sh"}', '"id" | getline', "@f()", "{x(1)}",
     "function f(a) {}", "{print ENVIRON[\"A\"]}",
     '{print "\\x41"}', "BEGIN { @load \"x\" }"],
)  # fmt: skip
def test_awk_programs_that_may_do_more_are_not_plain(text: str) -> None:
    assert not is_plain_awk(text)


def test_gnu_sed_finds_nothing_in_a_plain_script_that_runs_or_writes() -> None:
    """sed's own switch `--sandbox` refuses a script that holds `e`, `r` or `w`."""
    pieces = ["s", "y", "/", "|", ",", "[", "]", "^", "\\", "[:alpha:]", "a", "1", "$", "!", "{",
              "}", ";", "\n", "p", "d", "e", "w", " ", "e id", "w out", "g", "I", "s/[/]/x/",
              "/[]/]/", "[^", "s/a/b/", "/a/", "~", "+", "q", "=", "l", "n", ":"]  # fmt: skip
    chance = random.Random(7)
    plain = 0
    while plain < 150:
        text = "".join(chance.choices(pieces, k=chance.randint(1, 9)))
        if not is_plain_sed(text):
            continue
        plain += 1
        words = ("sed", "--sandbox", "-n", "--expression", text)
        done = subprocess.run(words, input=b"", capture_output=True, check=False, timeout=10)
        assert b"sandbox" not in done.stderr, text


@each_row(
    ("text", "expected"),
    [
        ("sed -n p f", set()), ("sed -n 'e id' f", {2}), ("sed -e", {}),
        ("sed -e p -e 'e id' f", {4}),
        ("sed -ie p f", {1}), ("sed -f s f", {1, 2}), ("sed -fs f", {1}), ("sed p -f s", {2, 3}),
        ("sed -n p \"$x\"", {3}), ("sed -n p -- \"$x\"", set()), ("sed -e \"$x\" f", {2}),
        ("sed -l 5 p", set()), ("sed -l x p", {2}), ("sed -l", {}), ("sed -Z p f", {1, 2, 3}),
        ("awk 1 \"$x\"", set()), ("awk -f p f", {1, 2}), ("awk -v \"$x\" 1", {2}),
        ("awk - 1", set()),
        ("awk --posix 1 f", {1, 2, 3}), ("awk --version", set()),
    ],
)  # fmt: skip
def test_words_that_only_a_rule_which_spells_them_out_may_cover(
    text: str, expected: set[int]
) -> None:
    words = parse(text).commands[0].words
    assert script_words("sed" if text.startswith("sed") else "awk", words, 1) == set(expected)
