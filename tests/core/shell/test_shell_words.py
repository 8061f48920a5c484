"""One word of bash: literal only where the shell would change nothing more."""

import random
import subprocess

import pytest

from supervisor.core.shell.shell_words import (
    Word,
    ansi_c,
    ansi_c_end,
    from_bytes_text,
    literal_cat,
    resolve,
    to_bytes_text,
)
from tests.tables import each_row


@each_row(
    ("raw", "text"),
    [
        ("abc", "abc"),
        ("a\\ b", "a b"),
        # A backslash before a line break joins the lines; alone at the end it is itself.
        ("a\\\nb", "ab"),
        ("a\\", "a\\"),
        ('"a\\\nb"', "ab"),
        ("'a'\"b\"c", "abc"),
        ('"a\\n\\$"', "a\\n$"),
        ("$'\\x41\\102\\u00e9\\U0001f600'", "AB\u00e9\U0001f600"),
        ("$'\\cA\\ca\\c?'", "\x01\x01\x7f"),
        ("$'\\a\\e\\q\\''", "\a\x1b\\q'"),
        ("[", "["),
        ("$", "$"),
        ("a$", "a$"),
        ("$.", "$."),
        ("\"$(cat <<'E'\nit's $x\nE\n)\"", "it's $x"),
        ("\"$(cat <<-'E'\n\tx\n\tE\n)\"", "x"),
    ],
)
def test_a_literal_word_is_what_the_shell_would_pass(raw: str, text: str) -> None:
    word = resolve(to_bytes_text(raw))
    assert word.is_literal
    assert word.text == text


@each_row(
    ("raw", "prefix", "splits", "globs"),
    [
        ("$x", "", True, False),
        ("a$x", "a", True, False),
        ('"a$x"', "a", False, False),
        ('"$@"', "", True, False),
        ("a*b", "a", False, True),
        ("a{b,c}", "a", False, True),
        ("a{b,$c}", "a", True, True),
        ("'a'?", "a", False, True),
        # What can't be read to its end, or does more than insert, is uncertain from there on.
        ("a'b", "a", True, False),
        ("$'a", "", True, False),
        ("$'\\0'", "", True, False),
        ("$'\\U110000'", "", True, False),
        ("$'\\c\xe9'", "", True, False),
        ('a$"b"', "a", True, False),
        ("a$(b)", "a", True, False),
        ("a`b`c", "a", True, False),
        ('"a`b`"', "a", True, False),
        ("${a:-b}c", "", True, False),
        ("\"$(cat <<'E'\nx\nE\n; id)\"", "", True, False),
        ("\"$(cat <<'E'\nx\n", "", True, False),
        ("\"$(cat <<'E'\nx", "", True, False),
        ("\"$(cat <<'E'\n", "", True, False),
    ],
)  # fmt: skip
def test_a_word_that_the_shell_would_still_change_is_never_literal(
    raw: str, prefix: str, splits: bool, globs: bool
) -> None:
    word = resolve(raw)
    assert not word.is_literal
    assert (word.prefix, word.splits, word.globs) == (prefix, splits, globs)
    assert word.is_many is (splits or globs)


def test_a_string_with_a_nul_has_no_meaning_of_its_own() -> None:
    assert ansi_c("a\\x00b") is None
    assert ansi_c("a\\0b") is None
    assert ansi_c("a\\x{}b") is None
    assert ansi_c("plain") == "plain"


def test_a_control_character_that_versions_of_bash_read_differently_is_not_read() -> None:
    assert ansi_c("\\c1") is None
    assert ansi_c("\\ca\\c\\\\") == "\x01\x1c"


def test_a_string_is_read_as_bash_reads_it() -> None:
    pieces = ["\\x", "{", "}", "7", "2", "6d", "\\u", "0072", "\\U", "\\c", "\\\\", "\\'", "a", "[",
              "?", "\\1", "62", "\\q", "\\e", "\\x{", "r", "\\xfg", "\\u00e9", "@"]  # fmt: skip
    chance = random.Random(3)
    bodies = ["".join(chance.choices(pieces, k=chance.randint(1, 6))) for _ in range(2000)]
    bodies = [one for one in bodies if ansi_c_end(f"$'{one}'", 0) == len(one) + 3]
    script = "".join(f"printf '%s=END=' $'{one}'\n" for one in bodies)
    done = subprocess.run(
        ("bash", "--norc"), input=script.encode(), capture_output=True, check=True, timeout=60,
        env={"LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
    )  # fmt: skip
    read = done.stdout.split(b"=END=")[:-1]
    mine = [ansi_c(one) for one in bodies]
    assert len(read) == len(bodies)
    assert sum(one is not None for one in mine) > 1000
    for body, text, given in zip(bodies, mine, read, strict=True):
        assert text is None or text.encode("latin-1") == given, body


def test_a_literal_here_document_ends_at_its_delimiter_or_is_none() -> None:
    text = "$(cat <<'E'\na\nb\n\nE\n) tail"
    assert literal_cat(text, 0) == (len(text) - len(" tail"), "a\nb")
    for other in (
        "$(cat <<E\na\nE\n)",
        "$(cat <<'E' | sh\na\nE\n)",
        "$(cat x <<'E'\na\nE\n)",
        "$(cat <<'E'\na\nE \n)",
        "$(cat <<'E'\na\n",
    ):
        assert literal_cat(other, 0) is None


@pytest.mark.parametrize("text", ["abc", "\u00e9\U0001f600", "\ud800"])
def test_byte_text_comes_back_but_for_what_is_no_text(text: str) -> None:
    assert from_bytes_text(to_bytes_text(text)) == text.encode("utf-8", "replace").decode()


def test_bytes_that_are_no_text_equal_nothing_that_was_typed() -> None:
    assert resolve("$'\\xff'") == Word("\udcff", raw="$'\\xff'")
